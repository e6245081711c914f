/* Preloaded beside a real libnccl: the CUDA runtime that is linked into it becomes the one in runtime.c.
 *
 * NVIDIA's wheels keep the symbol table, so every `cuda...` function in libnccl can be found. When libnccl has been
 * loaded, also by a library that needs it, each of them is overwritten, in memory, with a jump to the function of the same name here, or to one that does
 * nothing. Nothing on disk changes, and NCCL's own code stays as it is. x86-64 only. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JUMP = 14 }; /* jmp [rip+0], then the address */

static int nothing(void) { return 0; }

static void stop(const char *why, const char *path) {
    fprintf(stderr, "fake CUDA for NCCL: %s: %s\n", path, why);
    abort();
}

static void jump_to(char *place, void *target) {
    memcpy(place, "\xff\x25\0\0\0\0", 6);
    memcpy(place + 6, &target, 8);
}

static int redirect_all(const char *file, char *base, void *self) {
    const Elf64_Ehdr *header = (const void *)file;
    const Elf64_Shdr *sections = (const void *)(file + header->e_shoff);
    const char *section_names = file + sections[header->e_shstrndx].sh_offset;
    int redirected = 0;
    for (int s = 0; s < header->e_shnum; s++) {
        if (!strcmp(section_names + sections[s].sh_name, ".text")) {
            char *start = base + sections[s].sh_addr, *page = (char *)((uintptr_t)start & ~4095ul);
            if (mprotect(page, (size_t)(start - page) + sections[s].sh_size, PROT_READ | PROT_WRITE | PROT_EXEC)) return -1;
        }
    }
    for (int s = 0; s < header->e_shnum; s++) {
        if (sections[s].sh_type != SHT_SYMTAB) continue;
        const Elf64_Sym *symbols = (const void *)(file + sections[s].sh_offset);
        const char *names = file + sections[sections[s].sh_link].sh_offset;
        for (size_t i = 0; i < sections[s].sh_size / sizeof *symbols; i++) {
            const char *name = names + symbols[i].st_name;
            if (ELF64_ST_TYPE(symbols[i].st_info) != STT_FUNC || !symbols[i].st_value) continue;
            if (strncmp(name, "cuda", 4) || !isupper((unsigned char)name[4]) || symbols[i].st_size < JUMP) continue;
            void *ours = dlsym(self, name);
            jump_to(base + symbols[i].st_value, ours ? ours : (void *)nothing);
            redirected++;
        }
    }
    return redirected;
}

static void redirect(void *library) {
    Dl_info nccl, self;
    struct stat status;
    dladdr(dlsym(library, "ncclGetVersion"), &nccl);
    dladdr((void *)redirect, &self);
    int descriptor = open(nccl.dli_fname, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 || fstat(descriptor, &status)) stop("cannot be read", nccl.dli_fname);
    char *file = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    close(descriptor);
    if (file == MAP_FAILED) stop("cannot be mapped", nccl.dli_fname);
    int redirected = redirect_all(file, nccl.dli_fbase, dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD));
    munmap(file, (size_t)status.st_size);
    if (redirected < 100) stop("has no symbol table with the CUDA runtime in it", nccl.dli_fname);
}

static void redirect_once(void *library) {
    static void *redirected[16];
    static int count;
    for (int i = 0; i < count; i++)
        if (redirected[i] == library) return;
    if (count == 16) abort();
    redirected[count++] = library;
    redirect(library);
}

void *dlopen(const char *path, int mode) {
    static void *(*real)(const char *, int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
    void *library = real(path, mode);
    if (!library || !path || (mode & RTLD_NOLOAD)) return library;
    /* libtorch_cuda needs it, so it also comes in with another library */
    void *nccl = strstr(path, "libnccl.so") ? library : real("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
    if (nccl) redirect_once(nccl);
    return library;
}
