/* patches.c - directs the calls of loaded objects to functions of ours, by changing their global offset tables.
 *
 * A library that exported malloc would stand before the one of every process that inherits LD_PRELOAD, also where nobody
 * asked for it. So nothing is exported: where it is asked for, each object's references to a function get the address of
 * ours instead, and ours call the function that this library is bound to. A reference is changed if it contains that
 * function, or if the loader has not bound it yet. One to another function of that name stays as it is.
 *
 * Objects that are loaded later are found when a symbol is looked up. Their references to each function are changed one
 * at a time while they may be called: a block may be allocated before and freed after the change, or the other way round.
 *
 * The loader lists an object before it binds it, and another thread may look a symbol up meanwhile. The loader makes the
 * references read-only after that, and would write into pages that we have made read-only already. So objects are looked
 * at only once all loading that has begun is done.
 */
#include "host/patches.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sys.h"

enum { KNOWN = 4096, PAGE = 4096 };

/* Objects that were looked at, by open addressing: a table of KNOWN places. They stay here when they are unloaded. NULL
 * until the first look, so that it takes no memory of programs that ask for no blocks of the host. */
static struct known {
    uintptr_t low; /* its lowest address; 0: free */
    uint64_t print;
    const uintptr_t *slot; /* a reference that was changed, and what it got; NULL: none was */
    uintptr_t value;
} * known;
static size_t nr_known;
static unsigned long long adds; /* objects that the loader had ever loaded at the last look */
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
    const struct tfi_patch *patches, *held; /* `held`: for objects that have one of the functions */
    size_t count;
    uintptr_t inside;         /* an address of the only object to be patched */
    unsigned long long bound; /* of all objects that were ever loaded, how many are bound */
    unsigned long long gone;  /* how many were unloaded */
};

/* Returns the place of an address; NULL if the table is full. */
static struct known *known_at(uintptr_t low)
{
    size_t at = (size_t)(low * 0x9e3779b97f4a7c15u >> 52) % KNOWN;
    while (known[at].low && known[at].low != low) at = (at + 1) % KNOWN;
    return known[at].low || nr_known < KNOWN / 2 ? &known[at] : NULL;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

/* Returns a number for the name and the layout of an object. */
static uint64_t print_of(const struct dl_phdr_info *info)
{
    uint64_t hash = mix(info->dlpi_addr, info->dlpi_phnum);
    for (const char *c = info->dlpi_name; c && *c; c++) hash = mix(hash, (uint8_t)*c);
    for (int i = 0; i < info->dlpi_phnum; i++)
        hash = mix(mix(hash, info->dlpi_phdr[i].p_vaddr), info->dlpi_phdr[i].p_memsz);
    return hash;
}

/* False also for an object that was unloaded and loaded again at the same place. */
static bool is_patched(const struct known *k, uint64_t print)
{
    return k->low && k->print == print && (!k->slot || __atomic_load_n(k->slot, __ATOMIC_RELAXED) == k->value);
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

static const struct tfi_patch *patch_of(const struct tfi_patch *patches, size_t count, const char *symbol)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(patches[i].symbol, symbol) == 0) return &patches[i];
    return NULL;
}

/* True for libc, and for a library with an allocator of its own. */
static bool has_function(const struct object *o, const struct look *look)
{
    for (size_t i = 0; i < look->count; i++)
        if ((uintptr_t)look->patches[i].from - o->low < o->high - o->low) return true;
    return false;
}

static bool change(const struct object *o, uintptr_t *slot, void *to)
{
    uintptr_t page = (uintptr_t)slot & ~(uintptr_t)(PAGE - 1);
    bool closed = (uintptr_t)slot >= o->read_only && (uintptr_t)slot < o->read_only_ends;
    if (closed && syscall(SYS_mprotect, page, (size_t)PAGE, PROT_READ | PROT_WRITE) != 0) return false;
    __atomic_store_n(slot, (uintptr_t)to, __ATOMIC_RELEASE);
    if (closed) syscall(SYS_mprotect, page, (size_t)PAGE, PROT_READ);
    return true;
}

/* Returns the reference if it was changed. `is_plt`: one that is not bound yet contains an address of its own object. */
static uintptr_t *patch_reference(const struct object *o, const struct tfi_patch *patches, size_t count,
                                  const ElfW(Rela) * r, bool is_plt)
{
    unsigned type = ELF64_R_TYPE(r->r_info);
    if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) return NULL;
    const ElfW(Sym) *symbol = &o->symbols[ELF64_R_SYM(r->r_info)];
    const struct tfi_patch *patch = patch_of(patches, count, o->strings + symbol->st_name);
    if (!patch) return NULL;
    uintptr_t *slot = (uintptr_t *)(o->info->dlpi_addr + r->r_offset), value = *slot;
    bool unbound = is_plt && symbol->st_shndx == SHN_UNDEF && value >= o->low && value < o->high;
    bool is_theirs = !patch->from || value == (uintptr_t)patch->from || unbound;
    return is_theirs && change(o, slot, patch->to) ? slot : NULL;
}

static bool is_left_alone(const struct object *o)
{
    const char *name = o->info->dlpi_name, *last = name ? strrchr(name, '/') : NULL;
    uintptr_t here = (uintptr_t)tfi_patch_objects;
    if (here >= o->low && here < o->high) return true;
    return strncmp(last ? last + 1 : name ? name : "", "ld-linux", 8) == 0;
}

/* Returns the last reference that was changed; NULL if none was. */
static const uintptr_t *patch_references(const struct object *o, const struct look *look)
{
    const struct tfi_patch *patches = look->held && has_function(o, look) ? look->held : look->patches;
    const uintptr_t *last = NULL;
    for (unsigned t = 0; t < 2; t++)
        for (size_t i = 0; o->table[t] && i < o->bytes[t] / sizeof *o->table[t]; i++) {
            const uintptr_t *slot = patch_reference(o, patches, look->count, &o->table[t][i], t == 0);
            if (slot) last = slot;
        }
    return last;
}

/* Ends the iteration if more was loaded than is known to be bound: the loader adds nothing to its list meanwhile. When the
 * table is full, no further object is patched. */
static int patch_object(struct dl_phdr_info *info, size_t size, void *data)
{
    const struct look *look = data;
    struct object o = {.info = info};
    (void)size;
    if (info->dlpi_adds != look->bound) return 1;
    if (!read_object(&o)) return 0;
    struct known *k = known_at(o.low);
    uint64_t print = print_of(info);
    if (!k || is_patched(k, print)) return 0;
    if (!k->low) nr_known++;
    *k = (struct known){.low = o.low, .print = print};
    if (!is_left_alone(&o)) k->slot = patch_references(&o, look);
    if (k->slot) k->value = *k->slot;
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

static int count_loaded(struct dl_phdr_info *info, size_t size, void *data)
{
    struct look *look = data;
    (void)size;
    look->bound = info->dlpi_adds;
    look->gone = info->dlpi_subs;
    return 1;
}

/* Waits until every dlopen that has begun in another thread has bound its objects: dladdr takes the loader's lock, as the
 * dlsym does that called us. Called without a lock of ours, because a constructor may run under the loader's. */
static void wait_for_loader(void)
{
    Dl_info info;
    dladdr(NULL, &info);
}

/* Patches the objects that are not patched yet; false if more were loaded meanwhile than `look->bound`. A full table
 * begins again if it is full of unloaded objects. */
static bool patch_news(struct look *look)
{
    if (!tfi_lock(&lock)) return true;
    if (!tfi_map_once(&known, KNOWN * sizeof *known)) { /* nothing is patched */
        tfi_unlock(&lock);
        return true;
    }
    if (nr_known == KNOWN / 2 && look->bound - look->gone < KNOWN / 2) {
        memset(known, 0, KNOWN * sizeof *known);
        nr_known = 0;
    }
    bool is_done = dl_iterate_phdr(patch_object, look) == 0;
    if (is_done) __atomic_store_n(&adds, look->bound, __ATOMIC_RELAXED);
    tfi_unlock(&lock);
    return is_done;
}

void tfi_patch_objects(const struct tfi_patch *patches, const struct tfi_patch *held, size_t count)
{
    enum { TRIES = 10 }; /* the next look-up tries again */
    struct look look = {.patches = patches, .held = held, .count = count};
    for (unsigned i = 0; i < TRIES; i++) {
        dl_iterate_phdr(count_loaded, &look);
        if (look.bound == __atomic_load_n(&adds, __ATOMIC_RELAXED)) return;
        wait_for_loader();
        if (patch_news(&look)) return;
    }
}

void tfi_patch_object(uintptr_t inside, const struct tfi_patch *patches, size_t count)
{
    struct look look = {.patches = patches, .count = count, .inside = inside};
    dl_iterate_phdr(patch_if_inside, &look);
}
