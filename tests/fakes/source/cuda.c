/* libcuda.so.1 of a described node, as far as a program can ask without a context. Signatures as in cuda.h.
 *
 * CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER are obeyed as CUDA documents and measurably does: enumeration stops at the
 * first entry that is no device, and a device named twice leaves none. */
#include "node.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101 };

typedef struct {
    const Gpu *gpu;
    const char *mig; /* NULL for a whole GPU */
} Visible;

static Visible visible[MAX_GPUS];
static int visible_count;
static bool initialised;

#define ENTER(gpu)                                          \
    do {                                                    \
        int code = enter(__func__, (gpu));                  \
        if (code) return code;                              \
    } while (0)

static int everything(Visible all[MAX_GPUS]) {
    const Node *described = node();
    const char *order = getenv("CUDA_DEVICE_ORDER");
    int count = 0;
    for (int i = 0; i < described->gpu_count; i++) {
        const Gpu *gpu = &described->gpus[i];
        bool lost = false;
        for (int r = 0; r < described->rule_count; r++)
            lost |= described->rules[r].kind == RULE_FAIL && described->rules[r].gpu == i && described->rules[r].amount == 15;
        if (!lost) all[count++] = (Visible){gpu, gpu->mig > 0 && gpu->mig_count ? gpu->mig_uuid[0] : NULL};
    }
    if (!order || strcmp(order, "PCI_BUS_ID")) /* fastest first; the sort keeps equal ones in PCI order */
        for (int i = 1; i < count; i++)
            for (int j = i; j > 0 && all[j].gpu->speed > all[j - 1].gpu->speed; j--) {
                Visible swapped = all[j];
                all[j] = all[j - 1];
                all[j - 1] = swapped;
            }
    /* with MIG on, a process gets one instance and nothing else */
    for (int i = 0; i < count; i++)
        if (all[i].mig) {
            all[0] = all[i];
            return 1;
        }
    return count;
}

static bool same(Visible one, Visible other) { return one.gpu == other.gpu && one.mig == other.mig; }

/* The device an entry names, false if none. */
static bool named(const char *entry, const Visible all[], int count, Visible *found) {
    int matches = 0;
    char *end;
    if (!strncmp(entry, "MIG-", 4)) {
        for (int i = 0; i < node()->gpu_count; i++)
            for (int m = 0; m < node()->gpus[i].mig_count; m++)
                if (!strcmp(entry, node()->gpus[i].mig_uuid[m])) {
                    *found = (Visible){&node()->gpus[i], node()->gpus[i].mig_uuid[m]};
                    return true;
                }
        return false;
    }
    if (!strncmp(entry, "GPU-", 4)) {
        for (int i = 0; i < count; i++)
            if (!strncmp(entry, all[i].gpu->uuid, strlen(entry))) {
                *found = all[i];
                matches++;
            }
        return matches == 1;
    }
    long index = strtol(entry, &end, 10);
    if (end == entry || index < 0 || index >= count) return false;
    *found = all[index];
    return true;
}

static void enumerate(void) {
    Visible all[MAX_GPUS];
    int count = everything(all);
    const char *mask = getenv("CUDA_VISIBLE_DEVICES");
    if (!mask) {
        memcpy(visible, all, sizeof visible);
        visible_count = count;
        return;
    }
    char entries[4096], *rest = entries, *entry;
    snprintf(entries, sizeof entries, "%s", mask);
    while ((entry = strsep(&rest, ",")) && visible_count < MAX_GPUS) {
        Visible found;
        if (!named(entry, all, count, &found)) return;
        for (int i = 0; i < visible_count; i++)
            if (same(found, visible[i])) {
                visible_count = 0;
                return;
            }
        visible[visible_count++] = found;
    }
}

int cuInit(unsigned flags) {
    (void)flags;
    ENTER(ANY_GPU);
    if (!initialised) enumerate();
    initialised = true;
    return visible_count ? OK : NO_DEVICE;
}

int cuDriverGetVersion(int *version) { ENTER(ANY_GPU); *version = node()->cuda_version; return OK; }

int cuGetErrorName(int code, const char **name) {
    static const struct { int code; const char *name; } names[] = {
        {0, "CUDA_SUCCESS"}, {3, "CUDA_ERROR_NOT_INITIALIZED"}, {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
        {100, "CUDA_ERROR_NO_DEVICE"}, {101, "CUDA_ERROR_INVALID_DEVICE"}, {801, "CUDA_ERROR_NOT_SUPPORTED"},
        {802, "CUDA_ERROR_SYSTEM_NOT_READY"}, {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
        {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"}, {999, "CUDA_ERROR_UNKNOWN"},
    };
    enter(__func__, ANY_GPU);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) {
            *name = names[i].name;
            return OK;
        }
    return INVALID_VALUE;
}

int cuDeviceGetCount(int *count) {
    ENTER(ANY_GPU);
    if (!initialised) return NOT_INITIALIZED;
    *count = visible_count;
    return OK;
}

int cuDeviceGet(int *device, int ordinal) {
    ENTER(ordinal);
    if (ordinal < 0 || ordinal >= visible_count) return INVALID_DEVICE;
    *device = ordinal;
    return OK;
}

int cuDeviceGetName(char *text, int length, int device) {
    ENTER(device);
    snprintf(text, (size_t)length, "%s", visible[device].gpu->name);
    return OK;
}

int cuDeviceGetPCIBusId(char *text, int length, int device) {
    ENTER(device);
    snprintf(text, (size_t)length, "%s", visible[device].gpu->pci + 4); /* CUDA's domain has four digits */
    return OK;
}

int cuDeviceGetUuid(unsigned char bytes[16], int device) { ENTER(device); uuid_bytes(visible[device].gpu->uuid, bytes); return OK; }

int cuDeviceGetUuid_v2(unsigned char bytes[16], int device) {
    ENTER(device);
    uuid_bytes(visible[device].mig ? visible[device].mig : visible[device].gpu->uuid, bytes);
    return OK;
}

int cuDeviceCanAccessPeer(int *can, int device, int peer) {
    ENTER(device);
    const Gpu *gpus = node()->gpus;
    *can = node()->p2p[visible[device].gpu - gpus][visible[peer].gpu - gpus] == 0;
    return OK;
}

/* What no probe may call on a GPU that somebody uses: here only so that a call shows in the log. */
int cuCtxCreate_v2(void **context, unsigned flags, int device) { (void)flags; ENTER(device); *context = visible; return OK; }
int cuDevicePrimaryCtxRetain(void **context, int device) { ENTER(device); *context = visible; return OK; }
int cuMemAlloc_v2(unsigned long long *address, size_t bytes) { (void)bytes; ENTER(ANY_GPU); *address = 0; return OK; }
