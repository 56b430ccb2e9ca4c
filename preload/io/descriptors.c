/* descriptors.c - keeps the tables of descriptors and mappings; both are read without a lock.
 *
 * The table of descriptors has pages of 1,024, made when a descriptor of theirs is first used. A child of fork has a copy
 * of both tables; a child that shares the memory never comes here (io.c).
 * A descriptor that was closed and opened again by system calls that no hook sees keeps its old name until a call fails
 * with EBADF or a hook closes it.
 */
#include "io/descriptors.h"

#include "base/fmt.h"
#include "base/process.h"
#include "base/sys.h"
#include "base/tfi.h"

enum { PAGE_BITS = TFI_FD_PAGE_BITS, PAGE = 1 << PAGE_BITS, PAGES = TFI_FD_PAGES, MAPPINGS = 4096 };

struct tfi_fd **tfi_fd_pages;
static unsigned nr_pages; /* up to the highest that was made */

static struct tfi_fd *entry_of(int fd, bool make)
{
    struct tfi_fd **all, *page;
    if (fd < 0 || fd >> PAGE_BITS >= PAGES) return NULL;
    all = make ? tfi_map_once(&tfi_fd_pages, PAGES * sizeof *all) : __atomic_load_n(&tfi_fd_pages, __ATOMIC_ACQUIRE);
    if (!all) return NULL;
    struct tfi_fd **place = &all[fd >> PAGE_BITS];
    page = make ? tfi_map_once(place, PAGE * sizeof *page) : __atomic_load_n(place, __ATOMIC_ACQUIRE);
    unsigned used = __atomic_load_n(&nr_pages, __ATOMIC_RELAXED), need = ((unsigned)fd >> PAGE_BITS) + 1;
    while (make && page && used < need &&
           !__atomic_compare_exchange_n(&nr_pages, &used, need, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
    return page ? &page[fd % PAGE] : NULL;
}

static TFI_COLD const struct tfi_path *look_up(int fd)
{
    char link[32];
    tfi_fmt(link, sizeof link, "/proc/self/fd/%d", fd);
    return tfi_path_of_link(link);
}

const struct tfi_path *tfi_fd_file(int fd, bool *looked_up)
{
    struct tfi_fd *e = entry_of(fd, false);
    const struct tfi_path *file = e ? __atomic_load_n(&e->file, __ATOMIC_ACQUIRE) : NULL;
    if (TFI_LIKELY(file != NULL)) return file;
    if (fd < 0) return NULL;
    file = look_up(fd);
    *looked_up = file != tfi_path_unknown;
    if (*looked_up) tfi_fd_set(fd, file, TFI_POSITION_SHARED);
    return file;
}

int64_t tfi_fd_position(int fd)
{
    struct tfi_fd *e = entry_of(fd, false);
    return e ? __atomic_load_n(&e->position, __ATOMIC_RELAXED) : TFI_POSITION_UNKNOWN;
}

void tfi_fd_set(int fd, const struct tfi_path *file, int64_t position)
{
    struct tfi_fd *e = entry_of(fd, true);
    if (!e) return;
    __atomic_store_n(&e->position, position, __ATOMIC_RELAXED);
    __atomic_store_n(&e->file, file, __ATOMIC_RELEASE);
}

void tfi_fd_forget(int fd)
{
    struct tfi_fd *e = entry_of(fd, false);
    if (e) __atomic_store_n(&e->file, NULL, __ATOMIC_RELEASE);
}

void tfi_fd_forget_range(unsigned first, unsigned last)
{
    struct tfi_fd **all = __atomic_load_n(&tfi_fd_pages, __ATOMIC_ACQUIRE);
    if (!nr_pages) return;
    if (last >= nr_pages << PAGE_BITS) last = (nr_pages << PAGE_BITS) - 1;
    for (unsigned fd = first; all && fd <= last; fd++)
        if (__atomic_load_n(&all[fd >> PAGE_BITS], __ATOMIC_ACQUIRE)) tfi_fd_forget((int)fd);
        else fd |= PAGE - 1;
}

void tfi_fd_copied(int fd, int copy)
{
    struct tfi_fd *e = entry_of(fd, false);
    const struct tfi_path *file = e ? __atomic_load_n(&e->file, __ATOMIC_ACQUIRE) : NULL;
    if (!file) return tfi_fd_forget(copy);
    if (copy == fd) return;
    __atomic_store_n(&e->position, TFI_POSITION_SHARED, __ATOMIC_RELAXED);
    tfi_fd_set(copy, file, TFI_POSITION_SHARED);
}

void tfi_fd_advance(int fd, int64_t step)
{
    struct tfi_fd *e = entry_of(fd, false);
    if (e && __atomic_load_n(&e->position, __ATOMIC_RELAXED) >= 0)
        __atomic_add_fetch(&e->position, step, __ATOMIC_RELAXED);
}

void tfi_fd_seek(int fd, int64_t position)
{
    struct tfi_fd *e = entry_of(fd, false);
    if (e && __atomic_load_n(&e->position, __ATOMIC_RELAXED) != TFI_POSITION_SHARED)
        __atomic_store_n(&e->position, position, __ATOMIC_RELAXED);
}

void tfi_fd_forked(void)
{
    struct tfi_fd **all = __atomic_load_n(&tfi_fd_pages, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; all && i < nr_pages; i++) {
        struct tfi_fd *page = __atomic_load_n(&all[i], __ATOMIC_ACQUIRE);
        for (unsigned k = 0; page && k < PAGE; k++)
            __atomic_store_n(&page[k].position, TFI_POSITION_SHARED, __ATOMIC_RELAXED);
    }
}

/* ---- mappings ---- */

static struct mapping {
    uintptr_t start, end; /* start is 0 in a free place; stored last */
    const struct tfi_path *file;
} * mappings;                /* NULL until the first mapping */
static unsigned nr_mappings; /* places ever used */
static unsigned nr_live;     /* places in use */

/* Allocators unmap and advise memory of no file all the time, and few parts of the address space have mapped files. A
 * part is 2 MiB; those 8 GiB apart share a mark. A mark stays. */
enum { PART_BITS = 21, PARTS = 4096 };
static uint8_t marks[PARTS];

static uintptr_t parts_of(const void *address, size_t bytes)
{
    uintptr_t from = (uintptr_t)address, parts = ((from + bytes - !!bytes) >> PART_BITS) - (from >> PART_BITS) + 1;
    return parts < PARTS ? parts : PARTS;
}

static void mark(const void *address, size_t bytes)
{
    uintptr_t first = (uintptr_t)address >> PART_BITS, parts = parts_of(address, bytes);
    for (uintptr_t i = 0; i < parts; i++) __atomic_store_n(&marks[(first + i) % PARTS], 1, __ATOMIC_RELAXED);
}

static bool may_have_files(const void *address, size_t bytes)
{
    uintptr_t first = (uintptr_t)address >> PART_BITS, parts = parts_of(address, bytes);
    for (uintptr_t i = 0; i < parts; i++)
        if (__atomic_load_n(&marks[(first + i) % PARTS], __ATOMIC_RELAXED)) return true;
    return false;
}

const struct tfi_path *tfi_mapped_file(const void *address)
{
    unsigned used = may_have_files(address, 1) ? __atomic_load_n(&nr_mappings, __ATOMIC_ACQUIRE) : 0;
    for (unsigned i = 0; i < used; i++) {
        uintptr_t start = __atomic_load_n(&mappings[i].start, __ATOMIC_ACQUIRE);
        if (start && (uintptr_t)address >= start && (uintptr_t)address < mappings[i].end) return mappings[i].file;
    }
    return NULL;
}

void tfi_mapped(const void *address, size_t bytes, const struct tfi_path *file)
{
    if (!tfi_map_once(&mappings, MAPPINGS * sizeof *mappings)) return tfi_count_drop(TFI_DROP_MAPPINGS, 1);
    for (unsigned i = 0; i < MAPPINGS && __atomic_load_n(&nr_live, __ATOMIC_RELAXED) < MAPPINGS; i++) {
        uintptr_t none = 0;
        if (__atomic_load_n(&mappings[i].start, __ATOMIC_RELAXED)) continue;
        if (!__atomic_compare_exchange_n(&mappings[i].start, &none, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        __atomic_add_fetch(&nr_live, 1, __ATOMIC_RELAXED);
        mark(address, bytes);
        mappings[i].end = (uintptr_t)address + bytes;
        mappings[i].file = file;
        __atomic_store_n(&mappings[i].start, (uintptr_t)address, __ATOMIC_RELEASE);
        unsigned used = __atomic_load_n(&nr_mappings, __ATOMIC_RELAXED);
        while (used <= i &&
               !__atomic_compare_exchange_n(&nr_mappings, &used, i + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        }
        return;
    }
    tfi_count_drop(TFI_DROP_MAPPINGS, 1);
}

void tfi_unmapped(const void *address, size_t bytes)
{
    unsigned used = may_have_files(address, bytes) ? __atomic_load_n(&nr_mappings, __ATOMIC_ACQUIRE) : 0;
    uintptr_t from = (uintptr_t)address;
    for (unsigned i = 0; i < used; i++) {
        uintptr_t start = __atomic_load_n(&mappings[i].start, __ATOMIC_ACQUIRE);
        if (start <= 1 || start < from || mappings[i].end - from > ((bytes + 4095) & ~(size_t)4095)) continue;
        if (__atomic_compare_exchange_n(&mappings[i].start, &start, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            __atomic_sub_fetch(&nr_live, 1, __ATOMIC_RELAXED);
    }
}
