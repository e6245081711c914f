/* The effect of an all-reduce kernel, on the host: the sum of the ranks' buffers of floats.
 *
 * No GPU code runs, and the data does not take the transport that NCCL has connected. The ranks meet in a file; like a
 * kernel, it ends only when every rank has launched its own. The rule `hang launch` keeps a rank from launching,
 * `hang kernel` makes its kernel never arrive and `fail kernel` makes it add wrong data; `kernel_over_p2p` is the same for
 * a kernel in a process that maps memory of a peer, also for the doctor's own, which really goes over that memory. */
#define _GNU_SOURCE
#include "kernel.h"
#include "../source/node.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_RANKS = 64, MAX_FLOATS = 4096 };

typedef struct {
    atomic_int taken, arrived;
    float values[MAX_RANKS][MAX_FLOATS];
} Meeting;

static float *buffer;
static size_t floats;
static atomic_int running;
static bool uses_p2p;
static int device;

void register_buffer(void *address, size_t size) {
    buffer = address;
    floats = size / sizeof(float) < MAX_FLOATS ? size / sizeof(float) : MAX_FLOATS;
}

void register_peer_memory(void) { uses_p2p = true; }

bool kernel_done(void) { return running == 0; }

/* `meeting.txt` beside the library: how many ranks meet, and in which file. */
static Meeting *enter_meeting(int *ranks) {
    Dl_info self;
    char path[8192], where[4096] = "";
    const char *p2p = getenv("NCCL_P2P_DISABLE");
    dladdr((void *)enter_meeting, &self);
    snprintf(path, sizeof path, "%.*s/meeting.txt", (int)(strrchr(self.dli_fname, '/') - self.dli_fname), self.dli_fname);
    FILE *description = fopen(path, "r");
    if (!description || fscanf(description, "%d %4095s", ranks, where) != 2) {
        fprintf(stderr, "fake kernel: %s does not say where the ranks meet\n", path);
        abort();
    }
    fclose(description);
    /* one file per trial: a doctor tries again without P2P */
    snprintf(path, sizeof path, "%s.%s", where, p2p ? p2p : "0");
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof(Meeting))) abort();
    Meeting *meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return meeting;
}

static void *all_reduce(void *unused) {
    (void)unused;
    int wrong = enter("kernel", device);
    if (uses_p2p) wrong |= enter("kernel_over_p2p", device);
    int ranks;
    Meeting *meeting = enter_meeting(&ranks);
    int place = meeting->taken++;
    memcpy(meeting->values[place], buffer, floats * sizeof(float));
    if (wrong) meeting->values[place][0] += 1;
    meeting->arrived++;
    while (meeting->arrived < ranks) usleep(1000);
    for (size_t i = 0; i < floats; i++) {
        float sum = 0;
        for (int rank = 0; rank < ranks; rank++) sum += meeting->values[rank][i];
        buffer[i] = sum;
    }
    running--;
    return NULL;
}

int launch_kernel(int on) {
    pthread_t thread;
    if (!buffer) return 0;
    int code = enter("launch", on);
    if (code) return code;
    device = on;
    running++;
    return pthread_create(&thread, NULL, all_reduce, NULL) ? 999 : 0;
}

typedef struct {
    int device;
    unsigned *own, *peer, words;
} Exchange;

/* wrong: nothing arrives, as seen where an IOMMU swallows the traffic */
static void *exchange(void *given) {
    Exchange *of = given;
    bool lost = enter("kernel_over_p2p", of->device);
    for (unsigned i = 0; !lost && i < of->words; i++) {
        of->own[of->words + i] = of->peer[i];
        of->peer[of->words + i] = of->own[i];
    }
    free(of);
    running--;
    return NULL;
}

int launch_exchange(int on, unsigned *own, unsigned *peer, unsigned words) {
    pthread_t thread;
    int code = enter("launch", on);
    if (code) return code;
    Exchange *of = malloc(sizeof *of);
    *of = (Exchange){on, own, peer, words};
    running++;
    return pthread_create(&thread, NULL, exchange, of) ? 999 : 0;
}
