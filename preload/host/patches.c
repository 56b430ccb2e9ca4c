/* patches.c - directs the calls of loaded objects to functions of ours, by changing their global offset tables.
 *
 * A library that exported malloc would stand before the one of every process that inherits LD_PRELOAD, also where nobody
 * asked for it. So nothing is exported: where it is asked for, each object's references to a function get the address of
 * ours instead, and ours call the function that this library is bound to. A reference is changed if it contains that
 * function, or if the loader has not bound it yet. One to another function of that name stays as it is.
 *
 * Objects that are loaded later are found when a symbol is looked up. Their references to each function are changed one
 * at a time while they may be called: a block may be allocated before and freed after the change, or the other way round.
 */
#include "host/patches.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sys.h"

enum { KNOWN = 4096, PAGE = 4096 };

static uint64_t known[KNOWN]; /* open addressing: base addresses of objects that were looked at; 0: free */
static size_t nr_known;
static unsigned long long adds, subs; /* objects that the loader had loaded and unloaded at the last look */
static struct tfi_lock lock;

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
    const struct tfi_patch *patches;
    size_t count;
    uintptr_t inside; /* an address of the only object to be patched */
};

/* Remembers an object; false if it is known. When the table is full, no further object is patched. */
static bool remember(uint64_t key)
{
    size_t at = (size_t)(key * 0x9e3779b97f4a7c15u >> 52) % KNOWN;
    if (nr_known > KNOWN / 2) return false;
    for (; known[at]; at = (at + 1) % KNOWN)
        if (known[at] == key) return false;
    known[at] = key;
    nr_known++;
    return true;
}

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

static const struct tfi_patch *patch_of(const struct look *look, const char *symbol)
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

/* `is_plt`: a reference that is not bound yet contains an address of its own object. */
static void patch_reference(const struct object *o, const struct look *look, const ElfW(Rela) * r, bool is_plt)
{
    unsigned type = ELF64_R_TYPE(r->r_info);
    if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) return;
    const ElfW(Sym) *symbol = &o->symbols[ELF64_R_SYM(r->r_info)];
    const struct tfi_patch *patch = patch_of(look, o->strings + symbol->st_name);
    if (!patch) return;
    uintptr_t *slot = (uintptr_t *)(o->info->dlpi_addr + r->r_offset), value = *slot;
    bool unbound = is_plt && symbol->st_shndx == SHN_UNDEF && value >= o->low && value < o->high;
    if (!patch->from || value == (uintptr_t)patch->from || unbound) change(o, slot, patch->to);
}

static bool is_left_alone(const struct object *o)
{
    const char *name = o->info->dlpi_name, *last = name ? strrchr(name, '/') : NULL;
    uintptr_t here = (uintptr_t)tfi_patch_objects;
    if (here >= o->low && here < o->high) return true;
    return strncmp(last ? last + 1 : name ? name : "", "ld-linux", 8) == 0;
}

static void patch_references(const struct object *o, const struct look *look)
{
    for (unsigned t = 0; t < 2; t++)
        for (size_t i = 0; o->table[t] && i < o->bytes[t] / sizeof *o->table[t]; i++)
            patch_reference(o, look, &o->table[t][i], t == 0);
}

static int patch_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct object o = {.info = info};
    (void)size;
    if (read_object(&o) && remember(o.low) && !is_left_alone(&o)) patch_references(&o, data);
    return 0;
}

/* Ends the iteration at the object that contains look->inside. */
static int patch_if_inside(struct dl_phdr_info *info, size_t size, void *data)
{
    const struct look *look = data;
    struct object o = {.info = info};
    (void)size;
    if (!read_object(&o) || look->inside < o.low || look->inside >= o.high) return 0;
    patch_references(&o, look);
    return 1;
}

/* Ends the iteration; 1 if objects were loaded since the last look. */
static int look_for_news(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    bool *news = data;
    *news = info->dlpi_adds != adds || info->dlpi_subs != subs;
    if (info->dlpi_subs != subs) {
        memset(known, 0, sizeof known); /* another object may lie where one was */
        nr_known = 0;
    }
    adds = info->dlpi_adds;
    subs = info->dlpi_subs;
    return 1;
}

void tfi_patch_objects(const struct tfi_patch *patches, size_t count)
{
    struct look look = {.patches = patches, .count = count};
    bool news = false;
    if (!tfi_lock(&lock)) return;
    dl_iterate_phdr(look_for_news, &news);
    if (news) dl_iterate_phdr(patch_object, &look);
    tfi_unlock(&lock);
}

void tfi_patch_object(uintptr_t inside, const struct tfi_patch *patches, size_t count)
{
    struct look look = {patches, count, inside};
    dl_iterate_phdr(patch_if_inside, &look);
}
