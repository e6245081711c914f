/* The CUDA runtime and the driver's memory calls of a described node, in host memory: what NCCL's host code needs.
 *
 * "Device memory" is memory of this process; physical allocations that processes share (cuMem*) are memory files. A
 * function that NCCL calls and that is not here does nothing and reports success (see redirect.c). Device queries and
 * everything that enters the description's rules are in ../source. */
#define _GNU_SOURCE
#include "../source/node.h"
#include "kernel.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_READY = 600, INVALID_DEVICE = 101, NOT_SUPPORTED = 801 };
enum { GRANULARITY = 2 << 20, MAX_FD = 65536 };

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int cuDeviceGetPCIBusId(char *text, int length, int device);
int cuDeviceGetName(char *text, int length, int device);
int cuGetErrorName(int code, const char **name);

static __thread int current; /* the calling thread's device */

#define ENTER(gpu)                                          \
    do {                                                    \
        int code = enter(__func__, (gpu));                  \
        if (code) return code;                              \
    } while (0)

/* The index that NVML gives the device which CUDA counts as `ordinal`. */
static int node_index(int ordinal) {
    char pci[32];
    if (cuDeviceGetPCIBusId(pci, sizeof pci, ordinal)) return -1;
    for (int i = 0; i < node()->gpu_count; i++)
        if (!strcmp(node()->gpus[i].pci + 4, pci)) return i;
    return -1;
}

static int compute_capability(int ordinal) {
    static const struct { const char *name; int capability; } known[] = {
        {"H100", 90}, {"H200", 90}, {"A100", 80}, {"RTX 40", 89}, {"L4", 89}, {"V100", 70},
    };
    char name[96] = "";
    cuDeviceGetName(name, sizeof name, ordinal);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(name, known[i].name)) return known[i].capability;
    return 80;
}

static int fresh_handle(void **handle) {
    *handle = calloc(1, 64);
    return *handle ? OK : OUT_OF_MEMORY;
}

static int fresh_memory(void **address, size_t size) {
    *address = mmap(NULL, (size + 65535) & ~65535ul, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return *address == MAP_FAILED ? OUT_OF_MEMORY : OK;
}

/* --- runtime: devices --- */
int cudaGetDevice(int *device) { *device = current; return OK; }
int cudaSetDevice(int device) {
    int count = 0;
    cuInit(0);
    cuDeviceGetCount(&count);
    if (device < 0 || device >= count) return INVALID_DEVICE;
    current = device;
    return OK;
}
int cudaGetDeviceCount(int *count) { cuInit(0); return cuDeviceGetCount(count); }
int cudaDriverGetVersion(int *version) { *version = node()->cuda_version; return OK; }
int cudaRuntimeGetVersion(int *version) { *version = node()->cuda_version; return OK; }
int cudaDeviceGetPCIBusId(char *text, int length, int device) { return cuDeviceGetPCIBusId(text, length, device); }
int cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    ENTER(device);
    *can = node()->p2p[node_index(device)][node_index(peer)] == 0;
    return OK;
}
int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) { /* numbers of cudaDeviceAttr */
    case 8: *value = 49152; break;                              /* shared memory per block */
    case 10: *value = 32; break;                                /* warp size */
    case 16: *value = 108; break;                               /* multiprocessors */
    case 75: *value = compute_capability(device) / 10; break;
    case 76: *value = compute_capability(device) % 10; break;
    case 97: *value = 166912; break;                            /* opt-in shared memory per block */
    default: *value = 0;
    }
    return OK;
}
int cudaGetDeviceProperties_v2(char *properties, int device) {
    ENTER(device);
    memset(properties, 0, 1008); /* sizeof(cudaDeviceProp) of CUDA 13; of CUDA 12 it is 1032, the last bytes unused */
    cuDeviceGetName(properties, 96, device);
    *(size_t *)(properties + 288) = node()->gpus[0].memory_total;
    return OK;
}
int cudaGetDeviceProperties(char *properties, int device) { return cudaGetDeviceProperties_v2(properties, device); }

/* --- runtime: memory --- */
/* every allocation is a memory file, so that another process can map it as it would map memory of the GPU */
static struct { void *address; int file; size_t size; } allocations[1024];
static pthread_mutex_t allocating = PTHREAD_MUTEX_INITIALIZER;

static int shared_memory(void **address, size_t size) {
    size = (size + 65535) & ~65535ul;
    int file = memfd_create("gpu memory", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)size)) return OUT_OF_MEMORY;
    *address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (*address == MAP_FAILED) return OUT_OF_MEMORY;
    pthread_mutex_lock(&allocating);
    int place = 0;
    while (place < 1023 && allocations[place].address) place++;
    allocations[place].address = *address;
    allocations[place].file = file;
    allocations[place].size = size;
    pthread_mutex_unlock(&allocating);
    return OK;
}
int cudaMalloc(void **address, size_t size) { ENTER(current); return shared_memory(address, size); }
int cudaMallocAsync(void **address, size_t size, void *stream) { (void)stream; return cudaMalloc(address, size); }
int cudaMallocFromPoolAsync(void **address, size_t size, void *pool, void *stream) {
    (void)pool, (void)stream;
    return cudaMalloc(address, size);
}
int cudaHostAlloc(void **address, size_t size, unsigned flags) { (void)flags; return fresh_memory(address, size); }
int cudaHostRegister(void *address, size_t size, unsigned flags) { (void)address, (void)size, (void)flags; ENTER(current); return OK; }
int cudaHostGetDevicePointer(void **device, void *host, unsigned flags) { (void)flags; *device = host; return OK; }
int cudaMemcpy(void *to, const void *from, size_t size, int kind) { (void)kind; memcpy(to, from, size); return OK; }
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) { (void)stream; return cudaMemcpy(to, from, size, kind); }
int cudaMemset(void *to, int value, size_t size) {
    /* pages that were never touched are zero, and giving them back is what a GPU's speed is to a memset of the host */
    bool whole_pages = !((uintptr_t)to & 4095) && !(size & 4095);
    if (value || !whole_pages || madvise(to, size, MADV_REMOVE)) memset(to, value, size);
    return OK;
}
int cudaMemsetAsync(void *to, int value, size_t size, void *stream) { (void)stream; return cudaMemset(to, value, size); }

typedef struct { int process, file; size_t size; char rest[48]; } IpcHandle; /* 64 bytes, as cudaIpcMemHandle_t */

static int get_handle(IpcHandle *handle, const void *address) {
    for (int i = 0; i < 1024 && allocations[i].address; i++)
        if (allocations[i].address == address) {
            *handle = (IpcHandle){getpid(), allocations[i].file, allocations[i].size, ""};
            return OK;
        }
    return INVALID_VALUE;
}
static int open_handle(void **address, IpcHandle handle) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.process, handle.file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return INVALID_VALUE;
    *address = mmap(NULL, handle.size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    register_peer_memory();
    return *address == MAP_FAILED ? OUT_OF_MEMORY : OK;
}
int cudaIpcGetMemHandle(IpcHandle *handle, void *address) { ENTER(current); return get_handle(handle, address); }
int cudaIpcOpenMemHandle(void **address, IpcHandle handle, unsigned flags) { (void)flags; ENTER(current); return open_handle(address, handle); }

/* --- runtime: streams, events, kernels --- */
int cudaStreamCreateWithFlags(void **stream, unsigned flags) { (void)flags; return fresh_handle(stream); }
int cudaEventCreateWithFlags(void **event, unsigned flags) { (void)flags; return fresh_handle(event); }
int cudaEventCreate(void **event) { return fresh_handle(event); }
int cudaMemPoolCreate(void **pool, void *properties) { (void)properties; return fresh_handle(pool); }
int cudaFuncGetAttributes(void *attributes, const void *function) { (void)function; memset(attributes, 0, 72); return OK; }
int cudaStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id) { (void)stream; if (status) *status = 0; if (id) *id = 0; return OK; }
int cudaStreamGetCaptureInfo_v3(void *stream, int *status, unsigned long long *id) { return cudaStreamGetCaptureInfo_v2(stream, status, id); }
int cudaStreamIsCapturing(void *stream, int *status) { (void)stream; *status = 0; return OK; }
int cudaStreamGetId(void *stream, unsigned long long *id) { (void)stream; *id = 1; return OK; }
int cudaGetFuncBySymbol(void **function, const void *symbol) { *function = (void *)(uintptr_t)symbol; return OK; }
int cudaLaunchKernel(void) { return launch_kernel(current); }
int cudaLaunchKernelExC(void) { return launch_kernel(current); }
static char the_exchange; /* the one function that an application loads from a module of its own */
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned in_x, unsigned in_y, unsigned in_z,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    (void)x, (void)y, (void)z, (void)in_x, (void)in_y, (void)in_z, (void)shared, (void)stream, (void)extra;
    if (function != &the_exchange) return launch_kernel(current);
    ENTER(current);
    return launch_exchange(current, *(unsigned **)arguments[0], *(unsigned **)arguments[1], *(unsigned *)arguments[2]);
}
int cuLaunchKernelEx(void) { return launch_kernel(current); }

const char *cudaGetErrorString(int code) {
    const char *name = "unknown error";
    switch (code) {
    case OK: return "no error";
    case INVALID_VALUE: return "invalid argument";
    case OUT_OF_MEMORY: return "out of memory";
    case INVALID_DEVICE: return "invalid device ordinal";
    case NOT_SUPPORTED: return "operation not supported";
    }
    cuGetErrorName(code, &name);
    return name;
}

/* --- driver: what an application and NCCL ask it for --- */
int cuGetErrorString(int code, const char **text) { *text = cudaGetErrorString(code); return OK; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 102 || attribute == 103; /* virtual memory management, and descriptors for it */
    return OK;
}
static char contexts[MAX_GPUS];
int cuDevicePrimaryCtxRetain(void **context, int device) { ENTER(device); *context = &contexts[device]; return OK; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { (void)device; *flags = 0; *active = 1; return OK; }
int cuCtxCreate(void **context, unsigned flags, int device) { (void)flags; *context = &contexts[device]; return OK; }
int cuCtxGetCurrent(void **context) { *context = &contexts[current]; return OK; }
int cuCtxSetCurrent(void *context) { current = (int)((char *)context - contexts); return OK; }
int cuCtxDestroy(void *context) { (void)context; return OK; }
int cuCtxGetDevice(int *device) { *device = current; return OK; }
int cuPointerGetAttribute(void *value, int attribute, uintptr_t address) { (void)value, (void)attribute, (void)address; return INVALID_VALUE; }
int cuMemGetAddressRange(void **base, size_t *size, uintptr_t address) { (void)base, (void)size, (void)address; return INVALID_VALUE; }
int cuMemGetInfo_v2(size_t *free, size_t *total) {
    ENTER(current);
    const Gpu *gpu = &node()->gpus[node_index(current)];
    *free = gpu->memory_total - gpu->memory_used;
    *total = gpu->memory_total;
    return OK;
}
/* only an application allocates this way, NCCL never does: its buffer is what the collective works on */
int cuMemAlloc_v2(void **address, size_t size) {
    ENTER(current);
    int code = shared_memory(address, size);
    if (!code) register_buffer(*address, size);
    return code;
}
int cuMemFree_v2(void *address) { (void)address; return OK; }
int cuIpcGetMemHandle(IpcHandle *handle, void *address) { ENTER(current); return get_handle(handle, address); }
int cuIpcOpenMemHandle_v2(void **address, IpcHandle handle, unsigned flags) { (void)flags; ENTER(current); return open_handle(address, handle); }
int cuIpcCloseMemHandle(void *address) { (void)address; ENTER(current); return OK; }
int cuModuleLoadData(void **module, const void *image) { (void)image; ENTER(current); return fresh_handle(module); }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)module;
    ENTER(current);
    if (strcmp(name, "exchange")) return INVALID_VALUE;
    *function = &the_exchange;
    return OK;
}
int cuMemcpyHtoD_v2(void *to, const void *from, size_t size) { ENTER(current); memcpy(to, from, size); return OK; }
int cuMemcpyDtoH_v2(void *to, const void *from, size_t size) { ENTER(current); memcpy(to, from, size); return OK; }
int cuStreamCreate(void **stream, unsigned flags) { (void)flags; ENTER(current); return fresh_handle(stream); }
int cuStreamSynchronize(void *stream) { (void)stream; ENTER(current); while (!kernel_done()) usleep(1000); return OK; }
int cuStreamQuery(void *stream) { (void)stream; return kernel_done() ? OK : NOT_READY; }

/* --- driver: physical memory as memory files; a handle is the file's descriptor --- */
int cuMemGetAllocationGranularity(size_t *size, void *properties, int option) { (void)properties, (void)option; *size = GRANULARITY; return OK; }
static ino_t own_memory[4096];
static int own_count;

static ino_t inode(int file) {
    struct stat status;
    return fstat(file, &status) ? 0 : status.st_ino;
}

static bool is_a_peers(int file) {
    char link[64], name[64] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    if (readlink(link, name, sizeof name - 1) < 0 || !strstr(name, "gpu memory")) return false;
    for (int i = 0; i < own_count; i++)
        if (own_memory[i] == inode(file)) return false;
    return true;
}

int cuMemCreate(unsigned long long *handle, size_t size, const int *properties, unsigned long long flags) {
    (void)flags;
    ENTER(current);
    bool on_gpu = properties[2] == 1; /* CUmemAllocationProp.location.type: 1 is a device, others are of the host */
    int file = memfd_create(on_gpu ? "gpu memory" : "host memory", 0);
    if (file < 0 || ftruncate(file, (off_t)size)) return OUT_OF_MEMORY;
    pthread_mutex_lock(&allocating);
    if (own_count < 4096) own_memory[own_count++] = inode(file);
    pthread_mutex_unlock(&allocating);
    *handle = (unsigned long long)file;
    return OK;
}
int cuMemAddressReserve(uintptr_t *address, size_t size, size_t alignment, uintptr_t wanted, unsigned long long flags) {
    (void)alignment, (void)wanted, (void)flags;
    void *room = mmap(NULL, size + GRANULARITY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return OUT_OF_MEMORY;
    *address = ((uintptr_t)room + GRANULARITY - 1) & ~(uintptr_t)(GRANULARITY - 1);
    return OK;
}
int cuMemMap(uintptr_t address, size_t size, size_t offset, unsigned long long handle, unsigned long long flags) {
    (void)flags;
    ENTER(current);
    void *mapped = mmap((void *)address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, (int)handle, (off_t)offset);
    return mapped == MAP_FAILED ? INVALID_VALUE : OK;
}
int cuMemSetAccess(uintptr_t address, size_t size, void *access, size_t count) {
    (void)address, (void)size, (void)access, (void)count;
    ENTER(current);
    return OK;
}
int cuMemUnmap(uintptr_t address, size_t size) { (void)address, (void)size; return OK; }
int cuMemAddressFree(uintptr_t address, size_t size) { (void)address, (void)size; return OK; }
int cuMemRelease(unsigned long long handle) { (void)handle; return OK; }
int cuMemExportToShareableHandle(int *file, unsigned long long handle, int type, unsigned long long flags) {
    (void)type, (void)flags;
    ENTER(current);
    *file = dup((int)handle);
    return *file < 0 ? INVALID_VALUE : OK;
}
int cuMemImportFromShareableHandle(unsigned long long *handle, void *file, int type) {
    (void)type;
    ENTER(current);
    int copy = dup((int)(intptr_t)file);
    *handle = (unsigned long long)copy;
    if (copy >= 0 && is_a_peers(copy)) register_peer_memory();
    return copy < 0 ? INVALID_VALUE : OK;
}

/* --- how NCCL finds the driver's functions --- */
static int not_supported(void) { return NOT_SUPPORTED; }
int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *result) {
    static void *self;
    (void)flags;
    if (!self) {
        Dl_info info;
        dladdr((void *)not_supported, &info);
        self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    }
    void *found = dlsym(self, name);
    *function = found ? found : (void *)not_supported;
    if (result) *result = OK;
    return OK;
}
int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags, int *result) {
    (void)version;
    return cudaGetDriverEntryPoint(name, function, flags, result);
}
