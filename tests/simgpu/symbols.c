/* symbols.c - the library's own symbol table: finds names without dlsym, and removes those that SIMGPU_LACK lists.
 *
 * dlsym may be a profiler's wrapper, and the vendor's libraries do not use it for their own functions either. A name is
 * removed before main: its entry in this library's table becomes undefined in memory. Bindings that the loader has made
 * by then stay. So a removal works for dlsym and cuGetProcAddress, but a lazily bound call of the name ends the
 * program.
 */
#include "symbols.h"

#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* link.h declares _DYNAMIC, which refers to this library's own section. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));

/* Most loaders relocate these addresses in place, some do not. */
static const void *dynamic(Elf64_Sxword tag)
{
    uintptr_t base = (uintptr_t)__ehdr_start;
    for (const Elf64_Dyn *d = _DYNAMIC; d->d_tag != DT_NULL; d++)
        if (d->d_tag == tag) return (const void *)(d->d_un.d_ptr < base ? base + d->d_un.d_ptr : d->d_un.d_ptr);
    return NULL;
}

static Elf64_Sym *find(const char *name)
{
    const uint32_t *table = dynamic(DT_GNU_HASH);
    const Elf64_Sym *symbols = dynamic(DT_SYMTAB);
    const char *strings = dynamic(DT_STRTAB);
    if (!table || !symbols || !strings) return NULL;
    uint32_t nr_buckets = table[0], first = table[1], hash = 5381;
    const uint32_t *buckets = table + 4 + table[2] * (sizeof(Elf64_Addr) / 4), *chain = buckets + nr_buckets;
    for (const char *c = name; *c; c++) hash = hash * 33 + (unsigned char)*c;
    uint32_t i = buckets[hash % nr_buckets];
    if (i < first) return NULL;
    for (;; i++) {
        if ((chain[i - first] | 1) == (hash | 1) && strcmp(strings + symbols[i].st_name, name) == 0)
            return (Elf64_Sym *)&symbols[i];
        if (chain[i - first] & 1) return NULL;
    }
}

void *sim_symbol(const char *name)
{
    const Elf64_Sym *s = find(name);
    return s && s->st_shndx != SHN_UNDEF ? (void *)((uintptr_t)__ehdr_start + s->st_value) : NULL;
}

static void hide(const char *name)
{
    Elf64_Sym *s = find(name);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)s & ~(page - 1);
    if (!s || mprotect((void *)from, (uintptr_t)(s + 1) - from, PROT_READ | PROT_WRITE) != 0) return;
    s->st_shndx = SHN_UNDEF;
    s->st_value = 0;
}

__attribute__((constructor)) static void hide_lacking(void)
{
    const char *list = getenv("SIMGPU_LACK");
    char *copy = list && *list ? strdup(list) : NULL, *next;
    if (!copy) return;
    for (char *name = strtok_r(copy, ", ", &next); name; name = strtok_r(NULL, ", ", &next)) hide(name);
    free(copy);
}
