/* native_names.c - indexes the dynamic symbols of each mapped object when a stack first meets the object.
 *
 * dladdr() and dl_iterate_phdr() would do, but take locks of the loader, which a hooked path must not do: so the objects
 * come from base/objects.c. Symbols are read where the loader has mapped them, and only in objects that have code on the present stack.
 */
#include "python/native_names.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fmt.h"
#include "base/objects.h"
#include "base/sys.h"
#include "base/tfi.h"

#define MAX_OBJECTS 2048u
#define PATH_BYTES 256u

struct found {
    struct tfi_native_object object;
    uintptr_t base;
    const ElfW(Dyn) * dynamic;
    const ElfW(Sym) * symbols;
    const char *strings;
    uint32_t *order; /* functions by address; NULL until needed */
    uint32_t nr_order, max_order;
    uint32_t seen; /* turn in which the object was last in the list */
    char path[PATH_BYTES];
};

static struct found *objects;
static uint32_t nr_objects, turn;

/* ---- objects ---- */

static void drop_index(struct found *f)
{
    if (f->order) tfi_unmap(f->order, f->max_order * sizeof *f->order);
    f->order = NULL;
    f->nr_order = f->max_order = 0;
}

static void own_path(struct found *f, const char *path)
{
    ssize_t length =
        *path ? (ssize_t)tfi_fmt(f->path, sizeof f->path, "%s", path)
              : tfi_readlink("/proc/self/exe", f->path, sizeof f->path - 1); /* the program's name is empty */
    f->path[length < 0 ? 0 : length] = 0;
    f->object.path = f->path;
}

static int note_object(struct dl_phdr_info *info, size_t size, void *unused)
{
    uintptr_t start = UINTPTR_MAX, end = 0;
    const ElfW(Dyn) *dynamic = NULL;
    (void)size;
    (void)unused;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn) *)at;
        if (p->p_type != PT_LOAD) continue;
        if (at < start) start = at;
        if (at + p->p_memsz > end) end = at + p->p_memsz;
    }
    struct found *f = objects;
    while (f < objects + nr_objects && (f->object.start != start || f->dynamic != dynamic)) f++;
    if (f == objects + nr_objects) {
        if (nr_objects == MAX_OBJECTS) return 1;
        nr_objects++;
        *f = (struct found){.object = {start, end, NULL}, .base = info->dlpi_addr, .dynamic = dynamic};
        own_path(f, info->dlpi_name ? info->dlpi_name : "");
    }
    f->seen = turn;
    return 0;
}

/* Adds the objects that were loaded since the last time and removes those that are gone. */
static bool refresh(void)
{
    uint32_t now = tfi_objects_turn();
    if (!objects && !(objects = tfi_map(MAX_OBJECTS * sizeof *objects))) return false;
    if (turn == now) return true;
    turn = now;
    tfi_objects_each(note_object, NULL);
    for (uint32_t i = nr_objects; i-- > 0;) {
        if (objects[i].seen == turn) continue;
        drop_index(&objects[i]);
        objects[i] = objects[--nr_objects];
        objects[i].object.path = objects[i].path;
    }
    return true;
}

/* ---- functions of an object ---- */

/* Number of symbols, which the table itself does not tell. */
static uint32_t count_symbols(const uint32_t *gnu, const uint32_t *classic)
{
    if (classic) return classic[1];
    if (!gnu) return 0;
    uint32_t nr_buckets = gnu[0], first = gnu[1], last = 0;
    const uint32_t *buckets = gnu + 4 + (size_t)gnu[2] * 2, *chains = buckets + nr_buckets;
    for (uint32_t i = 0; i < nr_buckets; i++)
        if (buckets[i] > last) last = buckets[i];
    if (last < first) return 0;
    while (!(chains[last - first] & 1)) last++;
    return last + 1;
}

static bool is_function(const ElfW(Sym) * symbol)
{
    unsigned type = ELF64_ST_TYPE(symbol->st_info);
    return symbol->st_shndx != SHN_UNDEF && symbol->st_value && (type == STT_FUNC || type == STT_GNU_IFUNC);
}

static void sort(struct found *f)
{
    const ElfW(Sym) *s = f->symbols;
    for (uint32_t gap = f->nr_order / 2; gap > 0; gap = gap == 2 ? 1 : (uint32_t)((uint64_t)gap * 5 / 11))
        for (uint32_t i = gap; i < f->nr_order; i++) {
            uint32_t one = f->order[i], j = i;
            for (; j >= gap && s[f->order[j - gap]].st_value > s[one].st_value; j -= gap)
                f->order[j] = f->order[j - gap];
            f->order[j] = one;
        }
}

/* Address of a table: glibc has made these absolute; those of the kernel's own object stay relative. */
static const void *table_at(const struct found *f, uintptr_t value)
{
    return (const void *)(value < f->base ? f->base + value : value);
}

static void make_index(struct found *f)
{
    const uint32_t *gnu = NULL, *classic = NULL;
    for (const ElfW(Dyn) *d = f->dynamic; d && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB) f->symbols = table_at(f, d->d_un.d_ptr);
        if (d->d_tag == DT_STRTAB) f->strings = table_at(f, d->d_un.d_ptr);
        if (d->d_tag == DT_GNU_HASH) gnu = table_at(f, d->d_un.d_ptr);
        if (d->d_tag == DT_HASH) classic = table_at(f, d->d_un.d_ptr);
    }
    uint32_t count = f->symbols && f->strings ? count_symbols(gnu, classic) : 0;
    f->max_order = count + 1;
    f->order = tfi_map(f->max_order * sizeof *f->order);
    for (uint32_t i = 0; f->order && i < count; i++)
        if (is_function(&f->symbols[i])) f->order[f->nr_order++] = i;
    if (f->order) sort(f);
}

/* Finds the last function that begins at or before an address; NULL if it does not reach it. */
static const ElfW(Sym) * function_at(const struct found *f, uintptr_t address)
{
    uint32_t low = 0, high = f->nr_order;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (f->symbols[f->order[middle]].st_value <= address - f->base) low = middle + 1;
        else high = middle;
    }
    const ElfW(Sym) *s = low ? &f->symbols[f->order[low - 1]] : NULL;
    return s && address - f->base < s->st_value + (s->st_size ? s->st_size : 1) ? s : NULL;
}

bool tfi_native_find(uintptr_t address, struct tfi_native_name *name)
{
    if (!refresh()) return false;
    for (struct found *f = objects; f < objects + nr_objects; f++) {
        if (address < f->object.start || address >= f->object.end) continue;
        if (!f->order) make_index(f);
        const ElfW(Sym) *s = function_at(f, address);
        *name = (struct tfi_native_name){.object = &f->object};
        if (!s) return true;
        name->function = f->strings + s->st_name;
        name->start = f->base + s->st_value;
        name->end = name->start + s->st_size;
        return true;
    }
    return false;
}

void tfi_native_restart(void)
{
    for (uint32_t i = 0; i < nr_objects; i++) drop_index(&objects[i]);
    nr_objects = turn = 0;
}
