/* kernel_names.c - keeps the names of kernels in a table that is read without a lock and only grows.
 *
 * Writers hold a lock. Programs register every kernel they contain when they are loaded (24,000 for torch), mostly
 * without ever using a device. Such an entry costs a place in the table and no copy of the name. Nothing here wakes
 * the process. A name is replaced when its handle is given out again. If memory or the limit is exhausted, further
 * kernels stay nameless.
 */
#include "cuda/kernel_names.h"

#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "base/tfi.h"

#define FIRST_PLACES 4096u
#define MAX_KERNELS (1u << 20)
#define ARENA (256u << 10)
#define MAX_BYTES (64u << 20)

struct table {
    uint32_t mask;
    struct tfi_kernel place[];
};

static struct table *table;
static uint32_t count;
static char *arena;
static size_t arena_left, total;
static struct tfi_lock lock;

static uint32_t first_place(const struct table *t, uint64_t handle)
{
    return (uint32_t)(handle * 0x9e3779b97f4a7c15u >> 32) & t->mask;
}

struct tfi_kernel *tfi_kernel_find(uint64_t handle)
{
    struct table *t = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
    if (!t || !handle) return NULL;
    for (uint32_t i = first_place(t, handle);; i = (i + 1) & t->mask) {
        uint64_t found = __atomic_load_n(&t->place[i].handle, __ATOMIC_ACQUIRE);
        if (found == handle) return &t->place[i];
        if (!found) return NULL;
    }
}

static struct tfi_kernel *free_place(struct table *t, uint64_t handle)
{
    uint32_t i = first_place(t, handle);
    while (t->place[i].handle) i = (i + 1) & t->mask;
    return &t->place[i];
}

/* Keeps the table at most half full. The old one stays mapped: a reader may be in it. */
static bool has_room(void)
{
    if (table && count + 1 < (table->mask + 1) / 2) return true;
    uint32_t places = table ? (table->mask + 1) * 2 : FIRST_PLACES;
    if (places > 2 * MAX_KERNELS) return false;
    struct table *larger = tfi_map(sizeof *larger + (size_t)places * sizeof larger->place[0]);
    if (!larger) return false;
    larger->mask = places - 1;
    for (uint32_t i = 0; table && i <= table->mask; i++)
        if (table->place[i].handle) *free_place(larger, table->place[i].handle) = table->place[i];
    __atomic_store_n(&table, larger, __ATOMIC_RELEASE);
    return true;
}

static const char *copy_of(const char *name)
{
    size_t bytes = strlen(name) + 1;
    if (bytes > arena_left) {
        if (bytes > ARENA || total + ARENA > MAX_BYTES) return NULL;
        arena = tfi_map(ARENA);
        arena_left = arena ? ARENA : 0;
        if (!arena) return NULL;
        total += ARENA;
    }
    char *copy = arena;
    memcpy(copy, name, bytes);
    arena += bytes;
    arena_left -= bytes;
    return copy;
}

static bool is_known(const struct tfi_kernel *kernel, const char *name, bool keep)
{
    if (!kernel) return false;
    return kernel->name == name || (keep && kernel->kept && strcmp(kernel->name, name) == 0);
}

static void store(uint64_t handle, const char *name, bool keep)
{
    struct tfi_kernel *kernel = tfi_kernel_find(handle);
    if (is_known(kernel, name, keep) || (!kernel && !has_room())) return;
    const char *kept = keep ? copy_of(name) : name;
    if (!kept) return;
    bool new = !kernel;
    if (new) kernel = free_place(table, handle);
    kernel->kept = keep;
    __atomic_store_n(&kernel->name, kept, __ATOMIC_RELAXED);
    __atomic_store_n(&kernel->string, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&kernel->handle, handle, __ATOMIC_RELEASE);
    count += new;
}

static void note(uint64_t handle, const char *name, bool keep)
{
    if (!handle || !name) return;
    int error = errno, cancel = tfi_cancel_off();
    if (tfi_lock_within(&lock, 50)) {
        store(handle, name, keep);
        tfi_unlock(&lock);
    }
    tfi_cancel_on(cancel);
    errno = error;
}

void tfi_kernel_register(uint64_t handle, const char *name)
{
    note(handle, name, false);
}

void tfi_kernel_learn(uint64_t handle, const char *name)
{
    note(handle, name, true);
}

void tfi_kernel_alias(uint64_t handle, uint64_t known)
{
    const struct tfi_kernel *kernel = tfi_kernel_find(known);
    if (kernel) note(handle, __atomic_load_n(&kernel->name, __ATOMIC_RELAXED), false);
}
