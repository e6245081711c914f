/* A described GPU node, as the fake NVML and the fake CUDA driver share it.
 *
 * The description is the file `node.txt` beside the library that was loaded: one `key value` per line, written from the
 * node's TOML file by tests/fakes/node.py. Every call goes through `enter`, which appends it to `calls.log` and obeys
 * what the description says about that call: a number of seconds to sleep, a hang, or a code to return. */
#pragma once
#include <stddef.h>

enum { MAX_GPUS = 32, MAX_PROCESSES = 8, MAX_RULES = 64, MAX_MIG = 8, ANY_GPU = -1 };

typedef struct {
    unsigned pid;
    unsigned long long bytes;
    char use[16]; /* compute, graphics or mps */
} Process;

typedef struct {
    char uuid[64]; /* GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx */
    char name[96];
    char pci[32]; /* 00000000:19:00.0 */
    unsigned long long memory_total, memory_used; /* bytes */
    int compute_mode, persistence, virtualization, speed;
    int ecc;                          /* volatile uncorrected errors, -1: not supported */
    int remap_pending, remap_failure; /* -1: not supported */
    int fabric_state, fabric_status;  /* state -1: not supported */
    int mig;                          /* -1: not supported */
    int mig_count;
    char mig_uuid[MAX_MIG][64];
    int process_count;
    Process processes[MAX_PROCESSES];
} Gpu;

typedef enum { RULE_FAIL, RULE_HANG, RULE_SLEEP } RuleKind;

typedef struct {
    RuleKind kind;
    char call[64];
    int gpu; /* ANY_GPU: whatever the GPU */
    double amount;
} Rule;

typedef struct {
    char driver_version[32];
    int cuda_version; /* 12040 is CUDA 12.4 */
    int gpu_count;
    Gpu gpus[MAX_GPUS];
    int p2p[MAX_GPUS][MAX_GPUS]; /* an nvmlGpuP2PStatus per ordered pair */
    int nvlinks;                 /* links of each GPU, all of them to an NVSwitch that this machine does not show */
    int rule_count;
    Rule rules[MAX_RULES];
} Node;

/* The node, read once per process. */
const Node *node(void);

/* Log the call, obey sleeps and hangs, and return the code it must fail with, or 0. */
int enter(const char *call, int gpu);

/* The 16 bytes that a textual UUID (GPU-... or MIG-...) stands for. */
void uuid_bytes(const char *text, unsigned char bytes[16]);
