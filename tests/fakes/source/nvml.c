/* libnvidia-ml.so.1 of a described node: what ddp-doctor and NCCL ask of it. Signatures as in nvml.h. */
#include "node.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7
};

/* A handle is the address of the GPU, or of one of its MIG UUIDs. */
typedef const void *Device;

static int index_of(Device device) {
    return (int)(((const char *)device - (const char *)node()->gpus) / (ptrdiff_t)sizeof(Gpu));
}
static const Gpu *gpu_of(Device device) { return &node()->gpus[index_of(device)]; }

#define ENTER(device)                                       \
    do {                                                    \
        int code = enter(__func__, (device));               \
        if (code) return code;                              \
    } while (0)

int nvmlInitWithFlags(unsigned flags) { (void)flags; ENTER(ANY_GPU); return OK; }
int nvmlInit_v2(void) { ENTER(ANY_GPU); return OK; }
int nvmlShutdown(void) { ENTER(ANY_GPU); return OK; }

const char *nvmlErrorString(int code) {
    enter(__func__, ANY_GPU);
    switch (code) {
    case OK: return "Success";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    ENTER(ANY_GPU);
    snprintf(text, length, "%s", node()->driver_version);
    return OK;
}
int nvmlSystemGetCudaDriverVersion(int *version) { ENTER(ANY_GPU); *version = node()->cuda_version; return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { ENTER(ANY_GPU); *version = node()->cuda_version; return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { ENTER(ANY_GPU); *count = (unsigned)node()->gpu_count; return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    ENTER((int)index);
    if ((int)index >= node()->gpu_count) return INVALID_ARGUMENT;
    *device = &node()->gpus[index];
    return OK;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, Device *device) {
    ENTER(ANY_GPU);
    for (int i = 0; i < node()->gpu_count; i++) {
        const char *own = node()->gpus[i].pci;
        /* a domain of four digits and one of eight name the same bus */
        if (!strcasecmp(strchr(own, ':'), strchr(pci, ':'))) {
            *device = &node()->gpus[i];
            return OK;
        }
    }
    return NOT_FOUND;
}

int nvmlDeviceGetIndex(Device device, unsigned *index) {
    ENTER(index_of(device));
    *index = (unsigned)index_of(device);
    return OK;
}

int nvmlDeviceGetUUID(Device device, char *text, unsigned length) {
    ENTER(index_of(device));
    const Gpu *gpu = gpu_of(device);
    snprintf(text, length, "%s", device == (Device)gpu ? gpu->uuid : (const char *)device);
    return OK;
}

int nvmlDeviceGetName(Device device, char *text, unsigned length) {
    ENTER(index_of(device));
    snprintf(text, length, "%s", gpu_of(device)->name);
    return OK;
}

typedef struct {
    char short_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} PciInfo;

int nvmlDeviceGetPciInfo_v3(Device device, PciInfo *info) {
    ENTER(index_of(device));
    memset(info, 0, sizeof *info);
    sscanf(gpu_of(device)->pci, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    snprintf(info->short_bus_id, sizeof info->short_bus_id, "%04X:%02X:%02X.0", info->domain & 0xffff, info->bus & 0xff,
             info->device & 0xff);
    snprintf(info->bus_id, sizeof info->bus_id, "%s", gpu_of(device)->pci);
    info->device_id = 0x233010de;
    return OK;
}

typedef struct { unsigned long long total, free, used; } Memory;

int nvmlDeviceGetMemoryInfo(Device device, Memory *memory) {
    ENTER(index_of(device));
    const Gpu *gpu = gpu_of(device);
    *memory = (Memory){gpu->memory_total, gpu->memory_total - gpu->memory_used, gpu->memory_used};
    return OK;
}

int nvmlDeviceGetComputeMode(Device device, int *mode) { ENTER(index_of(device)); *mode = gpu_of(device)->compute_mode; return OK; }
int nvmlDeviceGetPersistenceMode(Device device, int *mode) { ENTER(index_of(device)); *mode = gpu_of(device)->persistence; return OK; }
int nvmlDeviceGetVirtualizationMode(Device device, int *mode) { ENTER(index_of(device)); *mode = gpu_of(device)->virtualization; return OK; }

int nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending) {
    ENTER(index_of(device));
    if (gpu_of(device)->mig < 0) return NOT_SUPPORTED;
    *current = *pending = (unsigned)gpu_of(device)->mig;
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *count) { ENTER(index_of(device)); *count = MAX_MIG; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *instance) {
    ENTER(index_of(device));
    if ((int)index >= gpu_of(device)->mig_count) return NOT_FOUND;
    *instance = gpu_of(device)->mig_uuid[index];
    return OK;
}

int nvmlDeviceGetTotalEccErrors(Device device, int type, int counter, unsigned long long *count) {
    (void)type, (void)counter;
    ENTER(index_of(device));
    if (gpu_of(device)->ecc < 0) return NOT_SUPPORTED;
    *count = (unsigned long long)gpu_of(device)->ecc;
    return OK;
}

int nvmlDeviceGetRemappedRows(Device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    ENTER(index_of(device));
    if (gpu_of(device)->remap_failure < 0) return NOT_SUPPORTED;
    *corrected = *uncorrected = 0;
    *pending = (unsigned)gpu_of(device)->remap_pending;
    *failed = (unsigned)gpu_of(device)->remap_failure;
    return OK;
}

typedef struct {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique, state, health;
} FabricInfo;

int nvmlDeviceGetGpuFabricInfoV(Device device, FabricInfo *info) {
    ENTER(index_of(device));
    if (gpu_of(device)->fabric_state < 0) return NOT_SUPPORTED;
    info->state = (unsigned)gpu_of(device)->fabric_state;
    info->status = gpu_of(device)->fabric_status;
    return OK;
}

typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } ProcessInfo;

static int list_processes(Device device, const char *use, unsigned *count, ProcessInfo *processes) {
    const Gpu *gpu = gpu_of(device);
    unsigned found = 0, room = *count;
    for (int i = 0; i < gpu->process_count; i++) {
        if (strcmp(gpu->processes[i].use, use)) continue;
        if (found < room && processes)
            processes[found] = (ProcessInfo){gpu->processes[i].pid, gpu->processes[i].bytes, ~0u, ~0u};
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, ProcessInfo *processes) {
    ENTER(index_of(device));
    return list_processes(device, "compute", count, processes);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned *count, ProcessInfo *processes) {
    ENTER(index_of(device));
    return list_processes(device, "graphics", count, processes);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(Device device, unsigned *count, ProcessInfo *processes) {
    ENTER(index_of(device));
    return list_processes(device, "mps", count, processes);
}

int nvmlDeviceGetP2PStatus(Device first, Device second, int kind, int *status) {
    ENTER(index_of(first));
    /* 0 and 1 are reading and writing, 2 is NVLink: where there is none, "topology not supported" */
    *status = kind > 1 && !node()->nvlinks ? 3 : node()->p2p[index_of(first)][index_of(second)];
    return OK;
}

/* every pair is a host bridge apart: PCIe alone connects them */
int nvmlDeviceGetTopologyCommonAncestor(Device first, Device second, int *level) {
    (void)second;
    ENTER(index_of(first));
    *level = 30;
    return OK;
}

int nvmlDeviceGetNvLinkState(Device device, unsigned link, int *active) {
    ENTER(index_of(device));
    if (!node()->nvlinks) return NOT_SUPPORTED;
    if ((int)link >= node()->nvlinks) return INVALID_ARGUMENT;
    *active = 1;
    return OK;
}

int nvmlDeviceGetNvLinkCapability(Device device, unsigned link, int kind, unsigned *value) {
    (void)kind;
    ENTER(index_of(device));
    if ((int)link >= node()->nvlinks) return NOT_SUPPORTED;
    *value = 1;
    return OK;
}

/* the driver's answer where the other end is a switch that belongs to another machine */
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, PciInfo *info) {
    ENTER(index_of(device));
    if ((int)link >= node()->nvlinks) return NOT_SUPPORTED;
    memset(info, 0, sizeof *info);
    info->domain = info->bus = info->device = ~0u;
    snprintf(info->short_bus_id, sizeof info->short_bus_id, "FFFFFFF:FFFF:FF");
    snprintf(info->bus_id, sizeof info->bus_id, "FFFFFFF:FFFF:FF");
    return OK;
}
int nvmlDeviceGetNvLinkRemotePciInfo(Device device, unsigned link, PciInfo *info) { return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, info); }
