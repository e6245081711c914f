/* What a launched NCCL kernel does here: see kernel.c. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* Remember an application's buffer. */
void register_buffer(void *address, size_t size);

/* Remember that this process has mapped memory of another GPU. */
void register_peer_memory(void);

/* Start the all-reduce over the application's last buffer, if it has one; returns a CUDA result at once. */
int launch_kernel(int device);

/* Start what the doctor's own kernel does: own[words + i] = peer[i] and peer[words + i] = own[i]. */
int launch_exchange(int device, unsigned *own, unsigned *peer, unsigned words);

/* Whether everything launched has ended. */
bool kernel_done(void);
