/* What a CUDA build of torch asks of the CUDA runtime beside runtime.c, preloaded before it in place of libcudart.
 *
 * torch's own kernels do nothing. A copy from the host into a buffer of the size that a trial rank reduces is an
 * application's buffer: only torch comes through here, since NCCL's runtime is redirected into runtime.c itself. */
#include "../source/node.h"
#include "kernel.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_READY = 600, HOST_TO_DEVICE = 1, REDUCED = 4 * sizeof(float) };

int cudaGetDevice(int *device);
int cudaMemcpy(void *to, const void *from, size_t size, int kind);
int cuDeviceGetName(char *text, int length, int device);
int cuDeviceGetUuid(unsigned char bytes[16], int device);

int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
    (void)stream;
    while (!kernel_done()) usleep(1000);
    if (kind == HOST_TO_DEVICE && size == REDUCED) register_buffer(to, size);
    return cudaMemcpy(to, from, size, kind);
}
int cudaStreamSynchronize(void *stream) { (void)stream; while (!kernel_done()) usleep(1000); return OK; }
int cudaDeviceSynchronize(void) { return cudaStreamSynchronize(NULL); }
int cudaEventSynchronize(void *event) { return cudaStreamSynchronize(event); }
int cudaEventQuery(void *event) { (void)event; return kernel_done() ? OK : NOT_READY; }
int cudaStreamQuery(void *stream) { return cudaEventQuery(stream); }
int cudaLaunchKernel(void) { return OK; }
int cudaGetDeviceProperties(char *properties, int device) {
    memset(properties, 0, 1008); /* sizeof(cudaDeviceProp) of CUDA 13, and its offsets */
    cuDeviceGetName(properties, 256, device);
    cuDeviceGetUuid((unsigned char *)properties + 256, device);
    *(size_t *)(properties + 288) = node()->gpus[0].memory_total;
    *(int *)(properties + 308) = 32; /* threads of a warp */
    *(int *)(properties + 360) = 9;  /* compute capability */
    *(int *)(properties + 384) = 108; /* multiprocessors */
    return OK;
}
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return OK; }
int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    (void)flags, (void)priority;
    *stream = calloc(1, 64);
    return OK;
}
int cudaMemGetInfo(size_t *free, size_t *total) {
    *total = node()->gpus[0].memory_total;
    *free = *total - node()->gpus[0].memory_used;
    return OK;
}
int cudaStreamGetCaptureInfo(void *stream, int *status) { (void)stream; *status = 0; return OK; }
int cudaPointerGetAttributes(int *attributes, const void *address) {
    (void)address;
    memset(attributes, 0, 32);
    return OK;
}
const char *cudaGetErrorName(int code) { (void)code; return "cudaError"; }

#define NOTHING(name) int name(void) { return OK; }
NOTHING(cudaGetLastError)
NOTHING(cudaPeekAtLastError)
NOTHING(cudaDeviceEnablePeerAccess)
NOTHING(cudaEventDestroy)
NOTHING(cudaEventRecord)
NOTHING(cudaEventRecordWithFlags)
NOTHING(cudaFree)
NOTHING(cudaFreeHost)
NOTHING(cudaFuncSetAttribute)
NOTHING(cudaHostUnregister)
NOTHING(cudaStreamDestroy)
NOTHING(cudaStreamWaitEvent)
NOTHING(cudaThreadExchangeStreamCaptureMode)
