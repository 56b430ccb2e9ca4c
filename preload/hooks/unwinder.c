/* unwinder.c - loads libunwind, and keeps it off the program's descriptors and out of our records.
 *
 * libunwind writes a byte from an address into a pipe to learn whether the address can be read. It keeps the pipe's
 * numbers for ever. A program may have closed all descriptors and opened its own under these numbers: libunwind then
 * reads from them, writes to them, and closes both. So it gets the number of no descriptor instead of a pipe, and we
 * ask the kernel whether the address can be read.
 *
 * It asks the loader for the objects, whose lock a hooked path must not take: it gets those of base/objects.c.
 * Its mappings are system calls here, so they pass none of our wrappers. The wrappers would take them for calls of a
 * signal handler inside the recorder, and count them as lost.
 */
#include "hooks/unwinder.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/objects.h"
#include "base/raw_dlsym.h"
#include "base/sys.h"
#include "base/tfi.h"

#define PIPE INT_MAX /* both ends; the kernel gives nobody this number */

static int unwinder_pipe2(int ends[2], int flags)
{
    (void)flags;
    ends[0] = ends[1] = PIPE;
    return 0;
}

static int unwinder_pipe(int ends[2])
{
    return unwinder_pipe2(ends, 0);
}

static int unwinder_close(int fd)
{
    return fd == PIPE ? 0 : (int)syscall(SYS_close, fd);
}

/* The pipe is open and empty. */
static ssize_t unwinder_read(int fd, void *to, size_t bytes)
{
    if (fd != PIPE) return syscall(SYS_read, fd, to, bytes);
    errno = EAGAIN;
    return -1;
}

/* The kernel reads the set of signals before it refuses the operation, which does not exist. Containers that forbid
 * process_vm_readv allow this call. */
static bool is_readable(uintptr_t address)
{
    const long operation = -1;
    syscall(SYS_rt_sigprocmask, operation, address & ~(uintptr_t)7, NULL, 8);
    return errno == EINVAL;
}

/* libunwind writes one byte. */
static ssize_t unwinder_write(int fd, const void *from, size_t bytes)
{
    if (fd != PIPE) return syscall(SYS_write, fd, from, bytes);
    if (bytes == 1 && is_readable((uintptr_t)from)) return 1;
    errno = EFAULT;
    return -1;
}

static long unwinder_syscall(long number, ...)
{
    enum { MOST = 6 };
    long at[MOST];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < MOST; i++) at[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_write) return unwinder_write((int)at[0], (const void *)at[1], (size_t)at[2]);
    return syscall(number, at[0], at[1], at[2], at[3], at[4], at[5]);
}

static void *unwinder_mmap(void *start, size_t bytes, int rights, int flags, int fd, off_t at)
{
    return (void *)syscall(SYS_mmap, start, bytes, rights, flags, fd, at);
}

static int unwinder_munmap(void *start, size_t bytes)
{
    return (int)syscall(SYS_munmap, start, bytes);
}

/* Its thread-local variables, which are 0 at first. The loader would allocate them at a thread's first stack, under its
 * lock. */
static __thread char variables[16] __attribute__((aligned(8), tls_model("initial-exec")));

struct variable {
    unsigned long module, offset;
};

static void *unwinder_variable(const struct variable *variable)
{
    return variables + variable->offset;
}

/* Memory for what it learns of objects without a table for unwinding: pages of its own, with their size in front. */
static void *unwinder_malloc(size_t bytes)
{
    size_t all = bytes + 16;
    size_t *memory = all > bytes ? tfi_map(all) : NULL;
    if (!memory) return NULL;
    *memory = all;
    return memory + 2;
}

static void unwinder_free(void *memory)
{
    size_t *start = memory;
    if (memory) tfi_unmap(start - 2, start[-2]);
}

/* ---- its global offset table ---- */

enum { PAGE = 4096 };

/* A function of ours that takes the place of a symbol's. */
struct patch {
    const char *symbol;
    void *to;
};

struct object {
    const struct dl_phdr_info *info;
    uintptr_t low, high;                 /* its memory */
    uintptr_t read_only, read_only_ends; /* made so by the loader after it has bound the object */
    const ElfW(Sym) * symbols;
    const char *strings;
    const ElfW(Rela) * table[2];
    size_t bytes[2];
};

struct look {
    const struct patch *patches;
    size_t count;
    uintptr_t inside; /* an address of the object to be patched */
    bool *done;
};

/* Most loaders relocate these addresses in place, some do not. */
static const void *place(const struct object *o, uintptr_t address)
{
    return (const void *)(address < o->low ? o->info->dlpi_addr + address : address);
}

static void read_dynamic(struct object *o, const ElfW(Dyn) * d)
{
    for (; d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_SYMTAB) o->symbols = place(o, d->d_un.d_ptr);
        else if (d->d_tag == DT_STRTAB) o->strings = place(o, d->d_un.d_ptr);
        else if (d->d_tag == DT_JMPREL) o->table[0] = place(o, d->d_un.d_ptr);
        else if (d->d_tag == DT_PLTRELSZ) o->bytes[0] = d->d_un.d_val;
        else if (d->d_tag == DT_RELA) o->table[1] = place(o, d->d_un.d_ptr);
        else if (d->d_tag == DT_RELASZ) o->bytes[1] = d->d_un.d_val;
}

static bool read_object(struct object *o)
{
    const ElfW(Phdr) *dynamic = NULL;
    o->low = UINTPTR_MAX;
    for (int i = 0; i < o->info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &o->info->dlpi_phdr[i];
        uintptr_t start = o->info->dlpi_addr + p->p_vaddr, end = start + p->p_memsz;
        if (p->p_type == PT_DYNAMIC) dynamic = p;
        if (p->p_type == PT_GNU_RELRO) {
            o->read_only = start & ~(uintptr_t)(PAGE - 1);
            o->read_only_ends = end & ~(uintptr_t)(PAGE - 1);
        }
        if (p->p_type != PT_LOAD) continue;
        if (start < o->low) o->low = start;
        if (end > o->high) o->high = end;
    }
    if (!dynamic) return false;
    read_dynamic(o, (const ElfW(Dyn) *)(o->info->dlpi_addr + dynamic->p_vaddr));
    return o->symbols && o->strings;
}

/* True if its thread-local variables are as unwinder_variable() has them. */
static bool variables_fit(const struct dl_phdr_info *info)
{
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS)
            return !info->dlpi_phdr[i].p_filesz && info->dlpi_phdr[i].p_memsz <= sizeof variables;
    return true;
}

static const struct patch *patch_of(const struct look *look, const char *symbol)
{
    for (size_t i = 0; i < look->count; i++)
        if (strcmp(look->patches[i].symbol, symbol) == 0) return &look->patches[i];
    return NULL;
}

static void change(const struct object *o, uintptr_t *slot, void *to)
{
    uintptr_t page = (uintptr_t)slot & ~(uintptr_t)(PAGE - 1);
    bool closed = (uintptr_t)slot >= o->read_only && (uintptr_t)slot < o->read_only_ends;
    if (closed && syscall(SYS_mprotect, page, (size_t)PAGE, PROT_READ | PROT_WRITE) != 0) return;
    __atomic_store_n(slot, (uintptr_t)to, __ATOMIC_RELEASE);
    if (closed) syscall(SYS_mprotect, page, (size_t)PAGE, PROT_READ);
}

static void patch_reference(const struct object *o, const struct look *look, const ElfW(Rela) * r)
{
    unsigned type = ELF64_R_TYPE(r->r_info);
    if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) return;
    const struct patch *patch = patch_of(look, o->strings + o->symbols[ELF64_R_SYM(r->r_info)].st_name);
    if (patch) change(o, (uintptr_t *)(o->info->dlpi_addr + r->r_offset), patch->to);
}

/* Ends the iteration at the object that contains look->inside. */
static int patch_if_inside(struct dl_phdr_info *info, size_t size, void *data)
{
    const struct look *look = data;
    struct object o = {.info = info};
    (void)size;
    if (!read_object(&o) || look->inside < o.low || look->inside >= o.high) return 0;
    if (!variables_fit(info)) return 1;
    *look->done = true;
    for (unsigned t = 0; t < 2; t++)
        for (size_t i = 0; o.table[t] && i < o.bytes[t] / sizeof *o.table[t]; i++)
            patch_reference(&o, look, &o.table[t][i]);
    return 1;
}

tfi_unwinder *tfi_unwinder_load(void)
{
    static const struct patch patches[] = {
        {"pipe2", (void *)unwinder_pipe2},
        {"pipe", (void *)unwinder_pipe},
        {"close", (void *)unwinder_close},
        {"read", (void *)unwinder_read},
        {"write", (void *)unwinder_write},
        {"syscall", (void *)unwinder_syscall},
        {"mmap", (void *)unwinder_mmap},
        {"munmap", (void *)unwinder_munmap},
        {"dl_iterate_phdr", (void *)tfi_objects_each},
        {"malloc", (void *)unwinder_malloc},
        {"free", (void *)unwinder_free},
        {"__tls_get_addr", (void *)unwinder_variable},
    };
    void *library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    tfi_unwinder *unwind = library ? (tfi_unwinder *)tfi_dlsym(library, "unw_backtrace") : NULL;
    bool done = false;
    struct look look = {.patches = patches, .count = TFI_COUNT(patches), .inside = (uintptr_t)unwind, .done = &done};
    if (unwind) dl_iterate_phdr(patch_if_inside, &look);
    return done ? unwind : NULL;
}
