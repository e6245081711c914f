/* What NCCL alone asks of NVML about a described node, beside ../source/nvml.c. */
#include "../source/node.h"
#include <stdio.h>
#include <string.h>

enum { OK = 0 };
typedef const void *Device;

int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device);
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, Device *device);
int nvmlDeviceGetNvLinkState(Device device, unsigned link, int *active);

int nvmlInit(void) { return nvmlInit_v2(); }
int nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }
int nvmlDeviceGetHandleByIndex(unsigned index, Device *device) { return nvmlDeviceGetHandleByIndex_v2(index, device); }
int nvmlDeviceGetHandleByPciBusId(const char *pci, Device *device) { return nvmlDeviceGetHandleByPciBusId_v2(pci, device); }

typedef struct {
    unsigned field, link;
    long long time, latency;
    int type, code;
    union { unsigned number; double room; } value;
} FieldValue;

/* asked for one thing, from H100 on: whether a link is up */
int nvmlDeviceGetFieldValues(Device device, int count, FieldValue *values) {
    for (int i = 0; i < count; i++) {
        int active = 0;
        values[i].code = nvmlDeviceGetNvLinkState(device, values[i].link, &active);
        values[i].value.number = (unsigned)active;
    }
    return OK;
}

int nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor) {
    const Gpu *gpu = device;
    int capability = strstr(gpu->name, "H100") ? 90 : strstr(gpu->name, "RTX 40") ? 89 : 80;
    *major = capability / 10;
    *minor = capability % 10;
    return OK;
}

typedef struct {
    unsigned version, domain, bus, device, device_id, subsystem_id, base_class, sub_class;
    char bus_id[32];
} PciInfoExt;

int nvmlDeviceGetPciInfoExt(Device device, PciInfoExt *info) {
    const Gpu *gpu = device;
    sscanf(gpu->pci, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    info->device_id = 0x233010de;
    info->subsystem_id = 0;
    info->base_class = 3; /* a 3D controller */
    info->sub_class = 2;
    snprintf(info->bus_id, sizeof info->bus_id, "%s", gpu->pci);
    return OK;
}

/* called by 2.28 and later without a look whether they were found */
int nvmlDeviceGetPcieLinkMaxSpeed(Device device, unsigned *megabits) { (void)device; *megabits = 16000; return OK; }
int nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned *generation) { (void)device; *generation = 4; return OK; }
int nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned *width) { (void)device; *width = 16; return OK; }
