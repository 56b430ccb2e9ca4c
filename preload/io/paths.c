/* paths.c - keeps the table of paths: read without a lock, never shrunk.
 *
 * A path is put together from a directory and a name without a buffer, because the stack may be small. The table is
 * bounded. When it is full, further paths are unknown and counted.
 */
#include "io/paths.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "record/strings.h"
#include "record/thread.h"

enum { SLOTS = 1 << 17, MAX_PATHS = SLOTS / 2, ARENA = 1 << 20, MAX_ARENAS = 64, MAX_PATH = 4096 };

static struct tfi_path unknown = {.wanted = 1};
const struct tfi_path *const tfi_path_unknown = &unknown;

static struct tfi_path **table; /* SLOTS places */
static uint32_t count, arenas;
static char *arena;
static size_t arena_left;
static struct tfi_lock lock;
static const struct tfi_path *here; /* NULL: to be asked for */
static uint32_t moves;              /* calls of tfi_path_moved() */
static char room[MAX_PATH + 1];     /* under the lock */

/* The two parts of a path; a slash stands between them unless `parent` is empty. */
struct parts {
    const char *parent, *name;
    size_t parent_length, name_length;
    bool slash;
};

static size_t length_of(const struct parts *p)
{
    return p->parent_length + p->slash + p->name_length;
}

static uint32_t mix(uint32_t hash, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)bytes[i]) * 16777619u;
    return hash;
}

static uint32_t hash_of(const struct parts *p)
{
    uint32_t hash = mix(mix(mix(2166136261u, p->parent, p->parent_length), "/", p->slash), p->name, p->name_length);
    return hash ^ hash >> 15;
}

static bool is(const struct tfi_path *path, const struct parts *p)
{
    return memcmp(path->text, p->parent, p->parent_length) == 0 && (!p->slash || path->text[p->parent_length] == '/') &&
           memcmp(path->text + p->parent_length + p->slash, p->name, p->name_length) == 0;
}

/* Returns the place of the path, or the free place for it. */
static struct tfi_path **place_of(const struct parts *p, uint32_t hash)
{
    for (uint32_t i = hash % SLOTS;; i = (i + 1) % SLOTS) {
        const struct tfi_path *path = __atomic_load_n(&table[i], __ATOMIC_ACQUIRE);
        if (!path || (path->hash == hash && path->length == length_of(p) && is(path, p))) return &table[i];
    }
}

/* Adds a path under the lock. */
static const struct tfi_path *add_path(const struct parts *p, uint32_t hash)
{
    struct tfi_path **place = place_of(p, hash), *path = *place;
    size_t length = length_of(p), need = (sizeof *path + length + 1 + 7) & ~(size_t)7;
    if (path) return path;
    if (need > arena_left && arenas < MAX_ARENAS) {
        arena = tfi_map(ARENA);
        arena_left = arena ? ARENA : 0;
        arenas++;
    }
    if (need > arena_left || count >= MAX_PATHS) {
        tfi_count_drop(TFI_DROP_PATHS, 1);
        return tfi_path_unknown;
    }
    path = (struct tfi_path *)arena;
    arena += need;
    arena_left -= need;
    count++;
    path->hash = hash;
    path->length = (uint32_t)length;
    memcpy(path->text, p->parent, p->parent_length);
    if (p->slash) path->text[p->parent_length] = '/';
    memcpy(path->text + p->parent_length + p->slash, p->name, p->name_length);
    path->wanted = tfi_path_wanted(path->text, length);
    __atomic_store_n(place, path, __ATOMIC_RELEASE);
    return path;
}

static TFI_COLD const struct tfi_path *add_locked(const struct parts *p, uint32_t hash)
{
    int cancel = tfi_cancel_off();
    const struct tfi_path *path = tfi_path_unknown;
    if (tfi_lock(&lock)) {
        path = add_path(p, hash);
        tfi_unlock(&lock);
    }
    tfi_cancel_on(cancel);
    return path;
}

static const struct tfi_path *intern(const struct parts *p)
{
    if (!table || length_of(p) == 0 || length_of(p) >= MAX_PATH) return tfi_path_unknown;
    uint32_t hash = hash_of(p);
    const struct tfi_path *path = __atomic_load_n(place_of(p, hash), __ATOMIC_ACQUIRE);
    return TFI_LIKELY(path != NULL) ? path : add_locked(p, hash);
}

const struct tfi_path *tfi_path_of(const struct tfi_path *parent, const char *name)
{
    struct parts p = {"", name, 0, 0, false};
    if (name[0] != '/') {
        if (!parent || !parent->length) return tfi_path_unknown;
        while (p.name[0] == '.' && p.name[1] == '/') p.name += 2;
        p.parent = parent->text;
        p.parent_length = parent->length;
        if (strcmp(p.name, ".") == 0 || !*p.name) p.name = "";
        else p.slash = parent->text[parent->length - 1] != '/';
    }
    p.name_length = strnlen(p.name, MAX_PATH); /* the kernel reads no further either: there may be no end */
    while (p.name_length > 1 && p.name[p.name_length - 1] == '/') p.name_length--;
    return intern(&p);
}

/* Interns the text that a system call has written to `room`; the caller holds the lock. */
static const struct tfi_path *from_room(ssize_t length)
{
    if (length <= 0 || length > MAX_PATH) return tfi_path_unknown;
    struct parts p = {"", room, 0, (size_t)length, false};
    return add_path(&p, hash_of(&p));
}

const struct tfi_path *tfi_path_of_link(const char *link)
{
    int error = errno, cancel = tfi_cancel_off();
    const struct tfi_path *path = tfi_path_unknown;
    if (table && tfi_lock(&lock)) {
        path = from_room(tfi_readlink(link, room, MAX_PATH));
        tfi_unlock(&lock);
    }
    tfi_cancel_on(cancel);
    errno = error;
    return path;
}

const struct tfi_path *tfi_path_here(void)
{
    const struct tfi_path *path = __atomic_load_n(&here, __ATOMIC_ACQUIRE);
    if (TFI_LIKELY(path != NULL)) return path;
    int error = errno, cancel = tfi_cancel_off();
    uint32_t before = __atomic_load_n(&moves, __ATOMIC_ACQUIRE);
    path = tfi_path_unknown;
    if (table && tfi_lock(&lock)) {
        ssize_t length = syscall(SYS_getcwd, room, MAX_PATH); /* with the final zero */
        path = room[0] == '/' ? from_room(length - 1) : tfi_path_unknown;
        tfi_unlock(&lock);
    }
    if (path != tfi_path_unknown) __atomic_store_n(&here, path, __ATOMIC_RELEASE);
    if (before != __atomic_load_n(&moves, __ATOMIC_ACQUIRE)) __atomic_store_n(&here, NULL, __ATOMIC_RELEASE);
    tfi_cancel_on(cancel);
    errno = error;
    return path;
}

void tfi_path_moved(void)
{
    __atomic_add_fetch(&moves, 1, __ATOMIC_ACQ_REL);
    __atomic_store_n(&here, NULL, __ATOMIC_RELEASE);
}

uint32_t tfi_path_string(const struct tfi_thread *t, const struct tfi_path *file)
{
    struct tfi_path *path = (struct tfi_path *)file;
    if (!path->length) return 0;
    if (TFI_LIKELY(__atomic_load_n(&path->gen, __ATOMIC_ACQUIRE) == t->gen)) return path->string;
    uint32_t string = tfi_string(path->text, path->length);
    path->string = string;
    __atomic_store_n(&path->gen, t->gen, __ATOMIC_RELEASE);
    return string;
}

bool tfi_paths_init(void)
{
    unknown.wanted = tfi_path_unknown_wanted();
    table = tfi_map(SLOTS * sizeof *table);
    return table != NULL;
}
