/* pool.c - keeps the records not appended to the trace yet, in one shared mapping of fixed size.
 *
 * Free chunks lie on two stacks (last in, first out: the pages are warm). The stacks are private memory, so looking
 * for a chunk touches no page of the mapping.
 * A page without a block behind it would raise SIGBUS in the program, so no page is touched before the kernel has given
 * it a block. Each region gets its pages in steps that double, because most processes use few of them: a file system in
 * memory takes milliseconds to clear all. Kernels before 5.14 cannot do this through the mapping, and get all blocks at
 * the start by fallocate(2), never its emulation. If the first pages cannot be had the pool lies elsewhere, and the
 * header says where; if later ones cannot, chunks are private memory, which SIGKILL loses.
 * A file that is cut shorter takes its pages from the mapping, and the next access kills the program. Its mode, 0400, keeps
 * everybody but root from that. Nothing keeps root from it: seals (F_SEAL_SHRINK) belong to files without a name, which end
 * with their process; a lease holds the other one up, but asks for a descriptor and a signal, and a file server has none;
 * an immutable file raises SIGBUS at the next page itself; and writing by system calls instead costs each record one.
 */
#include "record/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/files.h"
#include "base/fmt.h"
#include "base/leftovers.h"
#include "base/process.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "record/clock.h"
#include "record/log.h"
#include "record/schema.h"
#include "record/writer.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SCHEMA_OFFSET 4096u
#define INFO_OFFSET (20u << 10)
#define SLOTS_OFFSET (80u << 10)
#define STRINGS_OFFSET (SLOTS_OFFSET + TFI_NR_SLOTS * (uint32_t)sizeof(struct tfi_slot))
#define SMALL_OFFSET (STRINGS_OFFSET + (1u << 20))
#define LARGE_OFFSET (SMALL_OFFSET + TFI_NR_SMALL * TFI_SMALL_BYTES)
#define NR_LARGE ((TFI_POOL_BYTES - LARGE_OFFSET) / TFI_LARGE_BYTES)

struct tfi_live *tfi_live;
static struct tfi_dir elsewhere; /* directory of the file if it is not beside the trace */
static struct {
    struct tfi_dir *dir; /* NULL: the pool is private memory */
    uint64_t device, inode;
    char name[TFI_NAME_BYTES];
} place;
static struct tfi_lock lock;
static uint16_t small_free[TFI_NR_SMALL], large_free[NR_LARGE], slot_free[TFI_NR_SLOTS];
static unsigned nr_small, nr_large, nr_slots;

/* The regions, and the offset up to which each has its pages. */
struct grown {
    uint32_t start, end, ready;
};
static struct grown texts, slots, strings, small, large;
static uint64_t strings_used;
static bool is_full; /* the file system gave no further page: the pool keeps those it has */

/* A free chunk outside the mapping. */
struct spare {
    struct tfi_chunk chunk;
    struct spare *next;
};
static struct spare *spare;

static void *at(uint64_t offset)
{
    return (char *)tfi_live + offset;
}

/* True for file systems where the kernel alone does not keep a shared mapping, or fallocate guarantees nothing. */
static bool unsuitable(struct tfi_dir *dir)
{
    static const uint32_t types[] = {0x6969 /* NFS */,
                                     0x0bd00bd0 /* Lustre */,
                                     0x65735546 /* FUSE */,
                                     0x9123683e /* btrfs */,
                                     0x2fc12fc1 /* ZFS */,
                                     0xff534d42 /* CIFS */,
                                     0xfe534d42 /* SMB2 */,
                                     0x47504653 /* GPFS */,
                                     0x19830326 /* BeeGFS */,
                                     0x01021997 /* 9p */,
                                     0x00c36400 /* Ceph */};
    struct statfs fs;
    if (!tfi_dir_system(dir, &fs)) return true;
    for (size_t i = 0; i < TFI_COUNT(types); i++)
        if ((uint32_t)fs.f_type == types[i]) return true;
    return false;
}

static void forget_pages(void)
{
    texts = (struct grown){INFO_OFFSET, SLOTS_OFFSET, INFO_OFFSET};
    slots = (struct grown){SLOTS_OFFSET, STRINGS_OFFSET, SLOTS_OFFSET};
    strings = (struct grown){STRINGS_OFFSET, SMALL_OFFSET, STRINGS_OFFSET};
    small = (struct grown){SMALL_OFFSET, LARGE_OFFSET, SMALL_OFFSET};
    large = (struct grown){LARGE_OFFSET, TFI_POOL_BYTES, LARGE_OFFSET};
    is_full = false;
}

/* Says that all of the mapping may be touched. */
static void know_all_pages(void)
{
    struct grown *const all[] = {&texts, &slots, &strings, &small, &large};
    for (size_t i = 0; i < TFI_COUNT(all); i++) all[i]->ready = all[i]->end;
}

/* Has the kernel give pages to a part of the mapping at `p`; false with errno set. */
static bool populate(char *p, uint32_t from, uint32_t to)
{
    if (syscall(SYS_madvise, p + from, (size_t)(to - from), MADV_POPULATE_WRITE) == 0) return true;
    if (errno == EFAULT) errno = ENOSPC; /* the kernel's name for what would have been SIGBUS */
    return false;
}

/* Makes the region ready up to `end`, at least; false if the file system has no room. Only one thread at a time may do
 * this to a region. */
static bool make_ready(struct grown *region, uint32_t end)
{
    enum { PAGE = 4096, LONGEST_STEP = 1 << 20 };
    if (TFI_LIKELY(end <= region->ready)) return true;
    if (__atomic_load_n(&is_full, __ATOMIC_RELAXED)) return false;
    int error = errno;
    uint32_t step = region->ready - region->start, to = (end + PAGE - 1) & ~(PAGE - 1u);
    if (step > LONGEST_STEP) step = LONGEST_STEP;
    if (to < region->ready + step) to = region->ready + step;
    if (to > region->end) to = region->end;
    bool done = populate((char *)tfi_live, region->ready, to);
    if (done) region->ready = to;
    else if (!__atomic_exchange_n(&is_full, true, __ATOMIC_RELAXED))
        tfi_log(TFI_LOG_WARN, "%s/%s cannot grow (%s); SIGKILL would lose the last records of this process",
                place.dir->path, place.name, tfi_error_name(errno));
    errno = error;
    return done;
}

static bool has_room(const struct statfs *fs, uint64_t bytes)
{
    return (uint64_t)fs->f_bavail * (uint64_t)fs->f_bsize >= bytes;
}

/* Maps the file and gets the pages of its head, or all of them from a kernel that cannot give single ones. */
static char *map_pages(int fd)
{
    enum { LITTLE_INFO = 4096 };
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0 || syscall(SYS_ftruncate, fd, (long)TFI_POOL_BYTES) != 0) return NULL;
    if (!has_room(&fs, TFI_POOL_BYTES)) { /* the trace itself needs what there is */
        errno = ENOSPC;
        return NULL;
    }
    char *p = (char *)syscall(SYS_mmap, NULL, (size_t)TFI_POOL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L);
    if (p == MAP_FAILED) return NULL;
    /* The kernel would read ahead, and zero thousands of pages that are never used: 4 ms of a process's start. */
    syscall(SYS_madvise, p, (size_t)TFI_POOL_BYTES, MADV_RANDOM);
    forget_pages();
    if (populate(p, 0, INFO_OFFSET + LITTLE_INFO)) {
        texts.ready = INFO_OFFSET + LITTLE_INFO;
        return p;
    }
    if (errno == EINVAL && syscall(SYS_fallocate, fd, 0, 0L, (long)TFI_POOL_BYTES) == 0) {
        know_all_pages();
        return p;
    }
    int error = errno;
    tfi_unmap(p, TFI_POOL_BYTES);
    errno = error;
    return NULL;
}

/* ---- files that processes leave to each other ----
 * Before ext4 gives a new file an inode it looks at each one that was deleted within the last minutes. Where each of many short
 * processes deletes its file, every new file becomes dear, the programs' own too (0.2 ms were seen). So a process leaves its
 * file, empty, to the next one of its run. It is free when nobody maps it, not even the child of a fork: the lock of its
 * open file says so. The process that ends the run removes what is left. */

#define SPARES 4u

static const char *spare_name(unsigned i)
{
    static const char names[SPARES][8] = {".spare0", ".spare1", ".spare2", ".spare3"};
    return names[i];
}

/* True for a file of ours with such a name, but for one of the program's own. */
static bool is_spare(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_uid == geteuid() && st->st_nlink == 1 && (st->st_mode & 0777) == 0400 &&
           st->st_size == TFI_POOL_BYTES;
}

/* Opens such a file for writing, which has got `name`. `held` has its lock, which passes to the new descriptor; a child that
 * was forked meanwhile has `held` too. */
static int adopt(struct tfi_dir *dir, const char *name, int held, const struct stat *left)
{
    struct stat st;
    syscall(SYS_fchmod, held, 0600);
    int fd = tfi_dir_open_own(dir, name, O_RDWR, &st);
    if (fd < 0) return -1;
    bool same = st.st_dev == left->st_dev && st.st_ino == left->st_ino;
    if (same && (!st.st_blocks || syscall(SYS_ftruncate, fd, 0L) == 0) && syscall(SYS_flock, held, LOCK_UN) == 0 &&
        tfi_leftover_hold(fd))
        return fd;
    syscall(SYS_close, fd);
    return -1;
}

/* Takes one of these files; -1 if there is none that is free. */
static int take_left(struct tfi_dir *dir, const char *name)
{
    struct stat st;
    int fd = -1;
    for (unsigned i = 0; i < SPARES && fd < 0; i++) {
        int held = tfi_dir_open_own(dir, spare_name(i), O_RDONLY, &st);
        if (held < 0 && errno == ENOENT) break;
        if (held < 0) continue;
        bool free = is_spare(&st) && syscall(SYS_flock, held, LOCK_EX | LOCK_NB) == 0;
        if (free && tfi_dir_rename(dir, spare_name(i), name) && (fd = adopt(dir, name, held, &st)) < 0)
            tfi_dir_remove(dir, name);
        syscall(SYS_close, held);
    }
    return fd;
}

/* Leaves the file of this process; false if enough are there. Threads that go on touch its pages again, and each then needs
 * a block, so an almost full disk gets no such file. */
static bool leave(void)
{
    struct statfs fs;
    if (!tfi_dir_system(place.dir, &fs) || !has_room(&fs, TFI_POOL_BYTES)) return false;
    memset(tfi_live->magic, 0, sizeof tfi_live->magic);
    if (syscall(SYS_madvise, tfi_live, (size_t)TFI_POOL_BYTES, MADV_REMOVE) != 0) return false;
    for (unsigned i = 0; i < SPARES; i++) {
        if (tfi_dir_rename(place.dir, place.name, spare_name(i))) return true;
        if (errno != EEXIST) break;
    }
    return false;
}

void tfi_pool_remove_left(struct tfi_dir *dir)
{
    struct stat st;
    for (unsigned i = 0; i < SPARES; i++)
        if (tfi_dir_look(dir, spare_name(i), &st) && is_spare(&st)) tfi_dir_remove(dir, spare_name(i));
}

static void *map_file(struct tfi_dir *dir, const char *name)
{
    struct stat st;
    if (!tfi_file_has_room(TFI_POOL_BYTES)) return NULL; /* a larger file than RLIMIT_FSIZE would kill the process */
    int fd = dir == &elsewhere ? -1 : take_left(dir, name);
    if (fd < 0) fd = tfi_dir_create(dir, name, O_RDWR);
    if (fd < 0) return NULL;
    tfi_leftover_hold(fd);
    syscall(SYS_fchmod, fd, 0400); /* a file that somebody cuts shorter kills whoever uses the mapping */
    void *p = tfi_fstat(fd, &st) == 0 ? map_pages(fd) : NULL;
    int error = errno;
    syscall(SYS_close, fd);
    if (!p) tfi_dir_remove(dir, name);
    errno = error;
    if (!p) return NULL;
    place.dir = dir;
    place.device = st.st_dev;
    place.inode = st.st_ino;
    tfi_fmt(place.name, sizeof place.name, "%s", name);
    tfi_dir_has_mapped(dir, p, TFI_POOL_BYTES);
    return p;
}

static bool shm_has_room(void)
{
    struct statfs fs;
    return statfs("/dev/shm", &fs) == 0 && has_room(&fs, 256u << 20);
}

static void *map_beside(struct tfi_dir *dir, const char *trace)
{
    char name[TFI_NAME_BYTES];
    tfi_fmt(name, sizeof name, "%s.live", trace);
    bool suits = !unsuitable(dir);
    void *p = suits ? map_file(dir, name) : NULL;
    if (p) return p;
    if (!suits) errno = EOPNOTSUPP;
    tfi_fmt(name, sizeof name, "tfinject.%u.%s.live", (unsigned)geteuid(), trace);
    if (!shm_has_room() || !tfi_dir_make(&elsewhere, "/dev/shm")) return NULL;
    tfi_leftovers_remove(&elsewhere);
    return map_file(&elsewhere, name);
}

static void *map_in_live_dir(const char *trace, const char *live_dir)
{
    char name[TFI_NAME_BYTES];
    tfi_fmt(name, sizeof name, "%s.live", trace);
    return tfi_dir_make(&elsewhere, live_dir) ? map_file(&elsewhere, name) : NULL;
}

/* Tries the places in order. Warns only if a later place was used; if there is no memory at all, the caller warns. */
static void *map_somewhere(struct tfi_dir *dir, const char *trace, const char *live_dir)
{
    int asked = 0, error = 0;
    void *p = NULL;
    if (live_dir && !(p = map_in_live_dir(trace, live_dir))) asked = errno;
    if (!p && !(p = map_beside(dir, trace))) error = errno;
    if (!p && !(p = tfi_map(TFI_POOL_BYTES))) return NULL;
    if (!place.dir) know_all_pages();
    if (asked)
        tfi_log(TFI_LOG_WARN,
                "TFI_LIVE_DIR=%s cannot be used (%s); the open part of the trace is kept beside the trace", live_dir,
                tfi_error_name(asked));
    if (error)
        tfi_log(TFI_LOG_WARN, "%s.live cannot be created (%s); SIGKILL would lose the last records of this process",
                trace, tfi_error_name(error));
    return p;
}

static void fill(uint16_t *stack, unsigned count)
{
    for (unsigned i = 0; i < count; i++) stack[i] = (uint16_t)(count - 1 - i);
}

bool tfi_pool_open(struct tfi_dir *dir, const char *name, const char *live_dir)
{
    lock = (struct tfi_lock){0};
    spare = NULL;
    strings_used = 0;
    place.dir = NULL;
    forget_pages();
    tfi_dir_close(&elsewhere);
    tfi_live = map_somewhere(dir, name, live_dir);
    tfi_dir_rest(&elsewhere);
    if (!tfi_live) return false;
    tfi_drops = tfi_live->drops;
    nr_small = TFI_NR_SMALL;
    nr_large = NR_LARGE;
    nr_slots = TFI_NR_SLOTS;
    fill(small_free, nr_small);
    fill(large_free, nr_large);
    fill(slot_free, nr_slots);
    return true;
}

void tfi_pool_place(struct tfi_text *text)
{
    if (place.dir) {
        tfi_text_bytes(text, place.dir->path, strlen(place.dir->path));
        tfi_text_bytes(text, "/", 1);
        tfi_text_bytes(text, place.name, strlen(place.name) + 1);
    } else {
        tfi_text_bytes(text, "memory", sizeof "memory");
    }
}

static struct tfi_region store(uint32_t offset, uint32_t room, const char *text, size_t length)
{
    uint32_t bytes = length < room ? (uint32_t)length : room;
    if (!make_ready(&texts, offset + bytes)) bytes = 0;
    memcpy(at(offset), text, bytes);
    return (struct tfi_region){offset, bytes};
}

void tfi_pool_publish(const struct tfi_text *info)
{
    struct tfi_live *live = tfi_live;
    live->major = TFI_MAJOR;
    live->minor = TFI_MINOR;
    live->head_bytes = sizeof *live;
    live->bytes = TFI_POOL_BYTES;
    live->schema = store(SCHEMA_OFFSET, INFO_OFFSET - SCHEMA_OFFSET, tfi_schema, tfi_schema_bytes);
    live->info = store(INFO_OFFSET, SLOTS_OFFSET - INFO_OFFSET, info->data, info->used);
    live->slots = (struct tfi_region){SLOTS_OFFSET, TFI_NR_SLOTS * sizeof(struct tfi_slot)};
    live->strings = (struct tfi_region){STRINGS_OFFSET, SMALL_OFFSET - STRINGS_OFFSET};
    live->small = (struct tfi_region){SMALL_OFFSET, (uint64_t)TFI_NR_SMALL * TFI_SMALL_BYTES};
    live->large = (struct tfi_region){LARGE_OFFSET, (uint64_t)NR_LARGE * TFI_LARGE_BYTES};
    live->slot_bytes = sizeof(struct tfi_slot);
    live->small_bytes = TFI_SMALL_BYTES;
    live->large_bytes = TFI_LARGE_BYTES;
    live->ticks = tfi_ticks();
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(live->magic, TFI_LIVE_MAGIC, sizeof live->magic);
}

static bool is_in_mapping(const struct tfi_chunk *chunk)
{
    return (uintptr_t)chunk - (uintptr_t)tfi_live < TFI_POOL_BYTES;
}

bool tfi_pool_lasts(const struct tfi_chunk *chunk)
{
    return place.dir != NULL && is_in_mapping(chunk);
}

/* A process that gave up the rights of its user may no longer remove its file. It leaves one without blocks and without
 * a head, which readers pass over beside a complete trace; programs that change their user are no reason for a message. */
static void empty_file(enum tfi_log_level level)
{
    const char *why = tfi_error_name(errno);
    memset(tfi_live->magic, 0, sizeof tfi_live->magic);
    syscall(SYS_madvise, tfi_live, (size_t)TFI_POOL_BYTES, MADV_REMOVE);
    tfi_log(level, "%s/%s cannot be removed (%s); the trace is complete without this file", place.dir->path, place.name,
            why);
}

void tfi_pool_remove(bool run_goes_on)
{
    struct stat st;
    if (!place.dir) return;
    bool ours = tfi_dir_look(place.dir, place.name, &st) && st.st_dev == place.device && st.st_ino == place.inode;
    bool changed = ours && st.st_uid != geteuid();
    bool left = ours && !changed && run_goes_on && place.dir != &elsewhere && leave();
    if (!left && !(ours && tfi_dir_remove(place.dir, place.name)) && !tfi_writer_is_gone())
        empty_file(changed ? TFI_LOG_INFO : TFI_LOG_WARN);
    place.dir = NULL;
    tfi_dir_close(&elsewhere);
}

uint64_t tfi_next_serial(void)
{
    return __atomic_add_fetch(&tfi_live->serial, 1, __ATOMIC_SEQ_CST);
}

/* Takes a private chunk, for threads beyond the number of chunks in the mapping. Its records are appended like others,
 * but SIGKILL loses them. */
static struct tfi_chunk *pop_spare(void)
{
    struct spare *found = spare;
    if (!found) {
        char *slab = tfi_map(16 * TFI_SMALL_BYTES);
        for (int i = 0; slab && i < 16; i++) {
            found = (struct spare *)(slab + i * TFI_SMALL_BYTES);
            found->next = spare;
            spare = found;
        }
    }
    if (!found) return NULL;
    spare = found->next;
    found->chunk.bytes = TFI_SMALL_BYTES;
    return &found->chunk;
}

/* Takes the chunk on top of a stack of free ones; NULL if there is none, or no page for it. Chunks that were used before
 * lie above those that never were. */
static struct tfi_chunk *pop(const uint16_t *stack, unsigned *count, struct grown *region, uint32_t bytes)
{
    if (!*count) return NULL;
    uint32_t offset = region->start + stack[*count - 1] * bytes;
    if (!make_ready(region, offset + bytes)) return NULL;
    --*count;
    struct tfi_chunk *chunk = at(offset);
    chunk->bytes = bytes;
    return chunk;
}

struct tfi_chunk *tfi_pool_take(bool big)
{
    struct tfi_chunk *chunk = NULL;
    if (!tfi_lock(&lock)) return NULL;
    if (!big) chunk = pop(small_free, &nr_small, &small, TFI_SMALL_BYTES);
    if (!chunk) chunk = pop(large_free, &nr_large, &large, TFI_LARGE_BYTES);
    if (!chunk) chunk = pop(small_free, &nr_small, &small, TFI_SMALL_BYTES);
    if (!chunk) chunk = pop_spare();
    tfi_unlock(&lock);
    return chunk;
}

uint32_t tfi_pool_bytes(const struct tfi_chunk *chunk)
{
    uint64_t offset = (uint64_t)((uintptr_t)chunk - (uintptr_t)tfi_live);
    return is_in_mapping(chunk) && offset >= LARGE_OFFSET ? TFI_LARGE_BYTES : TFI_SMALL_BYTES;
}

char *tfi_pool_strings(void)
{
    return at(STRINGS_OFFSET);
}

uint64_t tfi_pool_strings_used(void)
{
    return __atomic_load_n(&strings_used, __ATOMIC_ACQUIRE);
}

void tfi_pool_use_strings(uint64_t bytes)
{
    __atomic_store_n(&strings_used, bytes, __ATOMIC_RELEASE);
    __atomic_store_n(&tfi_live->strings_used, bytes, __ATOMIC_RELEASE);
}

bool tfi_pool_has_strings(uint64_t bytes)
{
    return bytes <= SMALL_OFFSET - STRINGS_OFFSET && make_ready(&strings, STRINGS_OFFSET + (uint32_t)bytes);
}

void tfi_pool_give(struct tfi_chunk *chunk)
{
    uint64_t offset = (uint64_t)((uintptr_t)chunk - (uintptr_t)tfi_live);
    __atomic_store_n(&chunk->committed, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&chunk->state, TFI_CHUNK_FREE, __ATOMIC_RELEASE);
    if (!tfi_lock(&lock)) return; /* the chunk is lost to the pool */
    if (!is_in_mapping(chunk)) {
        ((struct spare *)chunk)->next = spare;
        spare = (struct spare *)chunk;
    } else if (offset < LARGE_OFFSET) small_free[nr_small++] = (uint16_t)((offset - SMALL_OFFSET) / TFI_SMALL_BYTES);
    else large_free[nr_large++] = (uint16_t)((offset - LARGE_OFFSET) / TFI_LARGE_BYTES);
    tfi_unlock(&lock);
}

struct tfi_slot *tfi_slot_take(void)
{
    struct tfi_slot *slot = NULL;
    if (!tfi_lock(&lock)) return NULL;
    if (nr_slots) slot = (struct tfi_slot *)at(SLOTS_OFFSET) + slot_free[nr_slots - 1];
    if (slot && !make_ready(&slots, (uint32_t)((char *)(slot + 1) - (char *)tfi_live))) slot = NULL;
    if (slot) nr_slots--;
    tfi_unlock(&lock);
    return slot;
}

void tfi_slot_free(struct tfi_slot *slot)
{
    size_t index = (size_t)(slot - (struct tfi_slot *)at(SLOTS_OFFSET));
    if (index >= TFI_NR_SLOTS) return; /* a private slot */
    __atomic_store_n(&slot->state, 0, __ATOMIC_RELEASE);
    if (!tfi_lock(&lock)) return;
    slot_free[nr_slots++] = (uint16_t)index;
    tfi_unlock(&lock);
}
