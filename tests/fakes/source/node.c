#define _GNU_SOURCE
#include "node.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static Node the_node;
static char folder[4096];
static int call_log = -1;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void beside(const char *name, char *path, size_t size) { snprintf(path, size, "%s/%s", folder, name); }

static void copy(char *to, size_t size, const char *from) {
    size_t length = strlen(from) + 1;
    if (length > size) abort();
    memcpy(to, from, length);
}

static void read_gpu(Gpu *gpu, const char *key, const char *value) {
    if (!strcmp(key, "uuid")) copy(gpu->uuid, sizeof gpu->uuid, value);
    else if (!strcmp(key, "name")) copy(gpu->name, sizeof gpu->name, value);
    else if (!strcmp(key, "pci")) copy(gpu->pci, sizeof gpu->pci, value);
    else if (!strcmp(key, "memory_total")) gpu->memory_total = strtoull(value, NULL, 10);
    else if (!strcmp(key, "memory_used")) gpu->memory_used = strtoull(value, NULL, 10);
    else if (!strcmp(key, "compute_mode")) gpu->compute_mode = atoi(value);
    else if (!strcmp(key, "persistence")) gpu->persistence = atoi(value);
    else if (!strcmp(key, "virtualization")) gpu->virtualization = atoi(value);
    else if (!strcmp(key, "speed")) gpu->speed = atoi(value);
    else if (!strcmp(key, "ecc")) gpu->ecc = atoi(value);
    else if (!strcmp(key, "remap_pending")) gpu->remap_pending = atoi(value);
    else if (!strcmp(key, "remap_failure")) gpu->remap_failure = atoi(value);
    else if (!strcmp(key, "fabric_state")) gpu->fabric_state = atoi(value);
    else if (!strcmp(key, "fabric_status")) gpu->fabric_status = atoi(value);
    else if (!strcmp(key, "mig")) gpu->mig = atoi(value);
    else if (!strcmp(key, "mig_uuid") && gpu->mig_count < MAX_MIG)
        copy(gpu->mig_uuid[gpu->mig_count++], sizeof gpu->mig_uuid[0], value);
    else if (!strcmp(key, "process") && gpu->process_count < MAX_PROCESSES) {
        Process *process = &gpu->processes[gpu->process_count++];
        sscanf(value, "%u %llu %15s", &process->pid, &process->bytes, process->use);
    } else {
        fprintf(stderr, "fake node: no GPU has a \"%s\"\n", key);
        abort();
    }
}

static void read_line(const char *line) {
    char key[64], value[256];
    int first, second, gpu;
    Rule *rule = &the_node.rules[the_node.rule_count];
    if (sscanf(line, "driver_version %31s", the_node.driver_version) == 1) return;
    if (sscanf(line, "cuda_version %d", &the_node.cuda_version) == 1) return;
    if (sscanf(line, "gpus %d", &the_node.gpu_count) == 1) return;
    if (sscanf(line, "nvlinks %d", &the_node.nvlinks) == 1) return;
    if (sscanf(line, "gpu %d %63s %255[^\n]", &gpu, key, value) == 3) {
        read_gpu(&the_node.gpus[gpu], key, value);
        return;
    }
    if (sscanf(line, "p2p %d %d %d", &first, &second, &gpu) == 3) {
        the_node.p2p[first][second] = gpu;
        return;
    }
    if (sscanf(line, "rule %63s %63s %d %lf", key, rule->call, &rule->gpu, &rule->amount) == 4) {
        rule->kind = !strcmp(key, "fail") ? RULE_FAIL : !strcmp(key, "hang") ? RULE_HANG : RULE_SLEEP;
        the_node.rule_count++;
        return;
    }
    fprintf(stderr, "fake node: cannot read \"%s\"\n", line);
    abort();
}

static void read_node(void) {
    Dl_info self;
    char path[4200], line[512];
    /* dli_fname is the path the loader used, so a library linked into several folders reads each folder's own node */
    dladdr((void *)read_node, &self);
    copy(folder, sizeof folder, self.dli_fname);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0; else copy(folder, sizeof folder, ".");
    beside("node.txt", path, sizeof path);
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "fake node: no %s\n", path);
        abort();
    }
    while (fgets(line, sizeof line, file)) read_line(line);
    fclose(file);
    beside("calls.log", path, sizeof path);
    call_log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

const Node *node(void) {
    pthread_once(&once, read_node);
    return &the_node;
}

int enter(const char *call, int gpu) {
    const Node *described = node();
    char line[128];
    int code = 0;
    int length = snprintf(line, sizeof line, "%s %d %d\n", call, gpu, (int)getpid());
    if (call_log >= 0 && write(call_log, line, (size_t)length) != length) abort();
    for (int i = 0; i < described->rule_count; i++) {
        const Rule *rule = &described->rules[i];
        if (strcmp(rule->call, call) || (rule->gpu != ANY_GPU && rule->gpu != gpu)) continue;
        if (rule->kind == RULE_HANG) for (;;) pause();
        if (rule->kind == RULE_SLEEP) {
            struct timespec time = {(time_t)rule->amount, (long)((rule->amount - (time_t)rule->amount) * 1e9)};
            nanosleep(&time, NULL);
        } else {
            code = (int)rule->amount;
        }
    }
    return code;
}

void uuid_bytes(const char *text, unsigned char bytes[16]) {
    const char *digit = text + 4;
    for (int i = 0; i < 16; i++) {
        unsigned value = 0;
        while (*digit == '-') digit++;
        sscanf(digit, "%2x", &value);
        bytes[i] = (unsigned char)value;
        digit += 2;
    }
}
