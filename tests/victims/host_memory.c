/* host_memory.c - host_memory SEED CALLS THREADS JOURNAL [kill]: allocates at random by every function of malloc's family but pvalloc,
 * which jemalloc lacks.
 *
 * Each thread writes the large blocks that it gets (their bytes) and gives back (their negative bytes) to its part of the
 * file JOURNAL, which is there after a SIGKILL too. The threads have small stacks, and their first event is a block. Errno
 * must stay as it is in calls that succeed. A call that fails changes nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern int tfi_range_push(const char *) __attribute__((weak));
extern int tfi_range_pop(void) __attribute__((weak));

enum { MOST = 32, LARGE = 64 << 10, ENTRIES = 1 << 14 };

struct entry {
    uint64_t address;
    int64_t bytes;
};
struct worker {
    unsigned seed;
    size_t nr_entries;
    struct entry *entry;
    char *block[MOST];
    size_t bytes[MOST];
};
static unsigned calls;
static volatile size_t impossible = PTRDIFF_MAX;

static unsigned chance(struct worker *w, unsigned below)
{
    return (unsigned)rand_r(&w->seed) % below;
}

static void note(struct worker *w, const void *block, int64_t bytes)
{
    if ((bytes < LARGE && bytes > -LARGE) || w->nr_entries == ENTRIES) return;
    w->entry[w->nr_entries++] = (struct entry){(uintptr_t)block, bytes};
}

static void *give(struct worker *w, size_t bytes)
{
    void *block = NULL;
    switch (chance(w, 8)) {
    case 0: return calloc(bytes / 8, 8);
    case 1: return posix_memalign(&block, 16u << chance(w, 10), bytes) == 0 ? block : NULL;
    case 2: return aligned_alloc(64, bytes);
    case 3: return reallocarray(NULL, bytes / 16, 16);
    case 4: return memalign(256, bytes);
    case 5: return valloc(bytes);
    case 6: return realloc(NULL, bytes);
    default: return malloc(bytes);
    }
}

/* A refused realloc leaves the block; it is forgotten meanwhile. */
static int refused(struct worker *w, unsigned i)
{
    void *got[] = {malloc(impossible), calloc(impossible, 2), reallocarray(w->block[i], impossible, 4)};
    if (got[0] || got[1] || got[2]) return 0;
    note(w, w->block[i], -(int64_t)w->bytes[i]);
    void *moved = realloc(w->block[i], impossible);
    if (moved) {
        w->block[i] = moved;
        return 0;
    }
    note(w, w->block[i], (int64_t)w->bytes[i]);
    errno = 77;
    return 1;
}

static int use(struct worker *w)
{
    unsigned i = chance(w, MOST);
    size_t bytes = 64 * (chance(w, 3) ? LARGE / 64 + chance(w, 5000) : 1 + chance(w, 200));
    if (!w->block[i]) {
        w->block[i] = give(w, bytes);
    } else if (chance(w, 50) == 0) {
        return refused(w, i);
    } else if (chance(w, 2)) {
        note(w, w->block[i], -(int64_t)w->bytes[i]);
        w->block[i] = realloc(w->block[i], bytes);
    } else {
        note(w, w->block[i], -(int64_t)w->bytes[i]);
        free(w->block[i]);
        w->block[i] = NULL;
        return 1;
    }
    w->bytes[i] = bytes;
    note(w, w->block[i], (int64_t)bytes);
    memset(w->block[i], 1, bytes);
    return w->block[i] != NULL;
}

static void *work(void *data)
{
    struct worker *w = data;
    errno = 77;
    for (unsigned i = 0; i < calls; i++)
        if (!use(w) || errno != 77) abort();
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1, threads = argc > 3 ? (unsigned)atoi(argv[3]) : 1;
    static struct worker workers[16];
    static pthread_t thread[16];
    pthread_attr_t small;
    int file = argc > 4 ? open(argv[4], O_RDWR | O_CREAT | O_TRUNC, 0600) : -1;
    size_t part = ENTRIES * sizeof(struct entry);
    calls = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;
    if (threads > 16 || ftruncate(file, (off_t)(threads * part)) != 0) return 2;
    char *journal = mmap(NULL, threads * part, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (journal == MAP_FAILED) return 2;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN);
    if (tfi_range_push) tfi_range_push("work");
    for (unsigned i = 0; i < threads; i++) {
        workers[i].seed = seed + i;
        workers[i].entry = (struct entry *)(journal + i * part);
        if (pthread_create(&thread[i], &small, work, &workers[i]) != 0) return 2;
    }
    for (unsigned i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    if (argc > 5) kill(getpid(), SIGKILL);
    if (tfi_range_pop) tfi_range_pop();
    return 0;
}
