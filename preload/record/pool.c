/* pool.c - keeps the records not appended to the trace yet, in one shared mapping of fixed size.
 *
 * Free chunks lie on two stacks (last in, first out: the pages are warm). The stacks are private memory, so looking
 * for a chunk touches no page of the mapping.
 * The mapping is allocated with fallocate(2), never its emulation: a page without a block behind it would raise SIGBUS
 * in the program. If fallocate fails the pool lies elsewhere, and the header says where.
 */
#include "record/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/files.h"
#include "base/fmt.h"
#include "base/process.h"
#include "base/sys.h"
#include "record/clock.h"
#include "record/log.h"
#include "record/writer.h"

#define INFO_OFFSET 4096u
#define SCHEMA_OFFSET (64u << 10)
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
    if (fstatfs(tfi_dir_fd(dir), &fs) != 0) return true;
    for (size_t i = 0; i < TFI_COUNT(types); i++)
        if ((uint32_t)fs.f_type == types[i]) return true;
    return false;
}

static void *map_file(struct tfi_dir *dir, const char *name)
{
    struct stat st;
    if (!tfi_file_has_room(TFI_POOL_BYTES)) return NULL; /* fallocate beyond RLIMIT_FSIZE would kill the process */
    int fd = tfi_dir_create(dir, name, O_RDWR);
    if (fd < 0) return NULL;
    void *p = MAP_FAILED;
    if (tfi_fstat(fd, &st) == 0 && syscall(SYS_fallocate, fd, 0, 0L, (long)TFI_POOL_BYTES) == 0)
        p = (void *)syscall(SYS_mmap, NULL, (size_t)TFI_POOL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L);
    int error = errno;
    syscall(SYS_close, fd);
    if (p == MAP_FAILED) tfi_dir_remove(dir, name);
    errno = error;
    if (p == MAP_FAILED) return NULL;
    /* The kernel would read ahead, and zero thousands of pages that are never used: 4 ms of a process's start. */
    syscall(SYS_madvise, p, (size_t)TFI_POOL_BYTES, MADV_RANDOM);
    place.dir = dir;
    place.device = st.st_dev;
    place.inode = st.st_ino;
    tfi_fmt(place.name, sizeof place.name, "%s", name);
    return p;
}

static bool shm_has_room(void)
{
    struct statfs fs;
    return statfs("/dev/shm", &fs) == 0 && (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize >= (256u << 20);
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
    return shm_has_room() && tfi_dir_make(&elsewhere, "/dev/shm") ? map_file(&elsewhere, name) : NULL;
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
    place.dir = NULL;
    tfi_dir_close(&elsewhere);
    tfi_live = map_somewhere(dir, name, live_dir);
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

static struct tfi_region store(uint32_t offset, uint32_t room, const struct tfi_text *text)
{
    uint64_t bytes = text->used < room ? text->used : room;
    memcpy(at(offset), text->data, bytes);
    return (struct tfi_region){offset, bytes};
}

void tfi_pool_publish(const struct tfi_text *info, const struct tfi_text *schema)
{
    struct tfi_live *live = tfi_live;
    live->major = TFI_MAJOR;
    live->minor = TFI_MINOR;
    live->head_bytes = sizeof *live;
    live->bytes = TFI_POOL_BYTES;
    live->info = store(INFO_OFFSET, SCHEMA_OFFSET - INFO_OFFSET, info);
    live->schema = store(SCHEMA_OFFSET, SLOTS_OFFSET - SCHEMA_OFFSET, schema);
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

bool tfi_pool_is_file(void)
{
    return place.dir != NULL;
}

void tfi_pool_remove(void)
{
    struct stat st;
    if (!place.dir) return;
    bool ours = tfi_dir_look(place.dir, place.name, &st) && st.st_dev == place.device && st.st_ino == place.inode;
    if (!(ours && tfi_dir_remove(place.dir, place.name)) && !tfi_writer_is_gone())
        tfi_log(TFI_LOG_WARN, "%s/%s cannot be removed (%s); the trace is complete without this file", place.dir->path,
                place.name, tfi_error_name(errno));
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

struct tfi_chunk *tfi_pool_take(bool large)
{
    struct tfi_chunk *chunk = NULL;
    if (!tfi_lock(&lock)) return NULL;
    if (!large && nr_small) {
        chunk = at(SMALL_OFFSET + (uint64_t)small_free[--nr_small] * TFI_SMALL_BYTES);
        chunk->bytes = TFI_SMALL_BYTES;
    } else if (nr_large) {
        chunk = at(LARGE_OFFSET + (uint64_t)large_free[--nr_large] * TFI_LARGE_BYTES);
        chunk->bytes = TFI_LARGE_BYTES;
    } else if (nr_small) {
        chunk = at(SMALL_OFFSET + (uint64_t)small_free[--nr_small] * TFI_SMALL_BYTES);
        chunk->bytes = TFI_SMALL_BYTES;
    }
    if (!chunk) chunk = pop_spare();
    tfi_unlock(&lock);
    return chunk;
}

void tfi_pool_give(struct tfi_chunk *chunk)
{
    uint64_t offset = (uint64_t)((uintptr_t)chunk - (uintptr_t)tfi_live);
    __atomic_store_n(&chunk->committed, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&chunk->state, TFI_CHUNK_FREE, __ATOMIC_RELEASE);
    if (!tfi_lock(&lock)) return; /* the chunk is lost to the pool */
    if (offset >= TFI_POOL_BYTES) {
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
    if (nr_slots) slot = (struct tfi_slot *)at(SLOTS_OFFSET) + slot_free[--nr_slots];
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
