/* objects.c - keeps a list of the loaded objects that is read without the loader's lock.
 *
 * dl_iterate_phdr() and dlsym() take locks of the loader. A hook may run in a signal handler that interrupts dlopen, or
 * in the child of a fork whose parent had a thread there: it would wait for ever, or find the loader half changed. So
 * the loader is asked only where its lock is taken anyway: in the constructor, and in the hook of dlsym, which programs
 * call after each dlopen.
 *
 * One thread at a time writes to the list. A reader copies an entry and then looks whether it is still the same: its
 * start is stored last, and cleared first. glibc finds an object without a lock from 2.35 on (_dl_find_object), which
 * tells whether an entry still stands. Entries of objects that were loaded with the program are the first ones.
 */
#include "base/objects.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/sys.h"
#include "base/tfi.h"

enum { MAX_OBJECTS = 2048 };

struct object {
    uintptr_t start; /* 0: free; stored last */
    uintptr_t end;
    const ElfW(Dyn) * dynamic;
    struct dl_phdr_info info;
    uint32_t seen; /* turn in which it was last in the loader's list */
};

static struct object *objects;
static uint32_t nr_objects, nr_first, own; /* own: the index of this library, nr_first if it was loaded later */
static uint32_t turn;
static unsigned long long adds, subs;
static bool wanted;
static uint32_t looking; /* 1: a thread looks. A child that is forked meanwhile keeps the 1 and never looks */

/* The struct dl_find_object of glibc's dlfcn.h, which has it from 2.35 on. */
struct found_object {
    unsigned long long flags;
    void *start, *end;
    struct link_map *map;
    void *eh_frame;
    unsigned long long reserved[7];
};
static int (*find_object)(void *address, struct found_object *found);

/* ---- looking ---- */

static struct object described(const struct dl_phdr_info *info)
{
    struct object o = {.start = UINTPTR_MAX, .info = *info, .seen = turn};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_DYNAMIC) o.dynamic = (const ElfW(Dyn) *)at;
        if (p->p_type != PT_LOAD) continue;
        if (at < o.start) o.start = at;
        if (at + p->p_memsz > o.end) o.end = at + p->p_memsz;
    }
    return o;
}

static int note(struct dl_phdr_info *info, size_t size, void *data)
{
    struct object now = described(info), *free_place = NULL;
    (void)size;
    (void)data;
    for (uint32_t i = 0; i < nr_objects; i++) {
        struct object *o = &objects[i];
        if (!o->start) free_place = free_place ? free_place : o;
        else if (o->start == now.start && o->dynamic == now.dynamic) return o->seen = turn, 0;
    }
    struct object *place = free_place ? free_place : nr_objects < MAX_OBJECTS ? &objects[nr_objects] : NULL;
    if (!place || now.start == UINTPTR_MAX) return 0;
    if (now.start <= (uintptr_t)note && (uintptr_t)note < now.end) own = (uint32_t)(place - objects);
    uintptr_t start = now.start;
    now.start = 0;
    *place = now;
    __atomic_store_n(&place->start, start, __ATOMIC_RELEASE);
    if (place == &objects[nr_objects]) __atomic_store_n(&nr_objects, nr_objects + 1, __ATOMIC_RELEASE);
    return 0;
}

static int count(struct dl_phdr_info *info, size_t size, void *changed)
{
    (void)size;
    *(bool *)changed = info->dlpi_adds != adds || info->dlpi_subs != subs;
    adds = info->dlpi_adds;
    subs = info->dlpi_subs;
    return 1;
}

static void look_at_objects(void)
{
    bool changed = false, first = !objects;
    if (first && !(objects = tfi_map(MAX_OBJECTS * sizeof *objects))) return;
    dl_iterate_phdr(count, &changed);
    if (!changed) return;
    __atomic_store_n(&turn, turn + 1, __ATOMIC_RELEASE);
    own = first ? MAX_OBJECTS : own;
    dl_iterate_phdr(note, NULL);
    for (uint32_t i = 0; i < nr_objects; i++)
        if (objects[i].seen != turn) __atomic_store_n(&objects[i].start, 0, __ATOMIC_RELEASE);
    if (first) __atomic_store_n(&nr_first, nr_objects, __ATOMIC_RELEASE);
}

void tfi_objects_look(void)
{
    if (__atomic_exchange_n(&looking, 1, __ATOMIC_ACQUIRE)) return;
    look_at_objects();
    __atomic_store_n(&looking, 0, __ATOMIC_RELEASE);
}

void tfi_objects_wanted(void)
{
    __atomic_store_n(&wanted, true, __ATOMIC_RELAXED);
}

void tfi_objects_look_again(void)
{
    if (__atomic_load_n(&wanted, __ATOMIC_RELAXED)) tfi_objects_look();
}

void tfi_objects_constructor(void)
{
    tfi_objects_look();
    *(void **)&find_object = dlvsym(RTLD_DEFAULT, "_dl_find_object", "GLIBC_2.35");
    if (!find_object) dlerror(); /* clears the error: the program would take it for one of its own */
}

/* ---- reading ---- */

uint32_t tfi_objects_turn(void)
{
    return __atomic_load_n(&turn, __ATOMIC_ACQUIRE);
}

struct link_map *tfi_object_of(const void *address, bool *known)
{
    struct found_object found;
    *known = find_object != NULL;
    return find_object && find_object((void *)(uintptr_t)address, &found) == 0 ? found.map : NULL;
}

/* True unless libc says that another object, or none, lies there now. */
static bool stands(const struct object *o)
{
    bool known;
    const struct link_map *map = tfi_object_of((const void *)(o->dynamic ? (uintptr_t)o->dynamic : o->start), &known);
    return !known || !o->dynamic || (map && map->l_ld == o->dynamic);
}

int tfi_objects_each(int (*take)(struct dl_phdr_info *info, size_t size, void *data), void *data)
{
    uint32_t used = __atomic_load_n(&nr_objects, __ATOMIC_ACQUIRE),
             first = __atomic_load_n(&nr_first, __ATOMIC_ACQUIRE);
    int result = 0;
    for (uint32_t i = 0; i < used && !result; i++) {
        uintptr_t start = __atomic_load_n(&objects[i].start, __ATOMIC_ACQUIRE);
        struct object copy = objects[i];
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (!start || __atomic_load_n(&objects[i].start, __ATOMIC_RELAXED) != start) continue;
        if (i >= first && !stands(&copy)) continue;
        result = take(&copy.info, sizeof copy.info, data);
    }
    return result;
}

/* ---- symbols ---- */

struct symbols {
    const ElfW(Sym) * table;
    const char *names;
    const uint32_t *gnu, *classic;
    const uint16_t *versions;
    uintptr_t base;
};

/* Address of a table: glibc has made these absolute; those of the kernel's own object stay relative. */
static const void *table_at(const struct object *o, uintptr_t value)
{
    return (const void *)(value < o->info.dlpi_addr ? o->info.dlpi_addr + value : value);
}

static struct symbols symbols_of(const struct object *o)
{
    struct symbols s = {.base = o->info.dlpi_addr};
    for (const ElfW(Dyn) *d = o->dynamic; d && d->d_tag != DT_NULL; d++) {
        const void *at = table_at(o, d->d_un.d_ptr);
        if (d->d_tag == DT_SYMTAB) s.table = at;
        else if (d->d_tag == DT_STRTAB) s.names = at;
        else if (d->d_tag == DT_GNU_HASH) s.gnu = at;
        else if (d->d_tag == DT_HASH) s.classic = at;
        else if (d->d_tag == DT_VERSYM) s.versions = at;
    }
    return s;
}

/* Takes the symbol if it is a definition of the function. Of several versions the default one wins, as in dlsym();
 * where there is only an old one, which the linker no longer takes, that is what a program of its time was bound to. */
static void consider(const struct symbols *s, uint32_t i, const char *name, const ElfW(Sym) * *found, bool *is_default)
{
    const ElfW(Sym) *symbol = &s->table[i];
    unsigned type = ELF64_ST_TYPE(symbol->st_info), bind = ELF64_ST_BIND(symbol->st_info);
    bool hidden = s->versions && s->versions[i] & 0x8000;
    if (symbol->st_shndx == SHN_UNDEF || !symbol->st_value || bind == STB_LOCAL) return;
    if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE) return;
    if (*is_default || (*found && hidden) || strcmp(s->names + symbol->st_name, name) != 0) return;
    *found = symbol;
    *is_default = !hidden;
}

static uint32_t gnu_hash(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++) hash = hash * 33 + (uint8_t)*name;
    return hash;
}

static void search_gnu(const struct symbols *s, const char *name, uint32_t hash, const ElfW(Sym) * *found)
{
    uint32_t nr_buckets = s->gnu[0], first = s->gnu[1], nr_words = s->gnu[2], shift = s->gnu[3];
    const uint64_t *bloom = (const uint64_t *)(s->gnu + 4);
    const uint32_t *buckets = (const uint32_t *)(bloom + nr_words), *chain = buckets + nr_buckets;
    uint64_t word = bloom[hash / 64 % nr_words];
    bool is_default = false;
    if (!(word >> hash % 64 & word >> (hash >> shift) % 64 & 1)) return;
    uint32_t i = buckets[hash % nr_buckets];
    if (i < first) return;
    for (;; i++) {
        if ((chain[i - first] | 1) == (hash | 1)) consider(s, i, name, found, &is_default);
        if (chain[i - first] & 1) return;
    }
}

static const ElfW(Sym) * search(const struct symbols *s, const char *name, uint32_t hash)
{
    const ElfW(Sym) *found = NULL;
    bool is_default = false;
    if (!s->table || !s->names) return NULL;
    if (s->gnu) search_gnu(s, name, hash, &found);
    else
        for (uint32_t i = 1; s->classic && i < s->classic[1]; i++) consider(s, i, name, &found, &is_default);
    return found;
}

void *tfi_kernel_function(const char *name)
{
    uintptr_t start = getauxval(AT_SYSINFO_EHDR);
    for (uint32_t i = 0; start && i < nr_first; i++) {
        if (objects[i].start != start) continue;
        struct symbols s = symbols_of(&objects[i]);
        const ElfW(Sym) *symbol = search(&s, name, gnu_hash(name));
        return symbol ? (void *)(s.base + symbol->st_value) : NULL;
    }
    return NULL;
}

void *tfi_next_function(const char *name)
{
    if (!__atomic_load_n(&nr_first, __ATOMIC_ACQUIRE)) tfi_objects_look();
    uint32_t hash = gnu_hash(name), first = __atomic_load_n(&nr_first, __ATOMIC_ACQUIRE);
    for (uint32_t i = own < first ? own + 1 : 0; i < first; i++) {
        struct symbols s = symbols_of(&objects[i]);
        const ElfW(Sym) *symbol = search(&s, name, hash);
        if (!symbol) continue;
        void *at = (void *)(s.base + symbol->st_value);
        return ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC ? ((void *(*)(void))at)() : at;
    }
    return NULL;
}
