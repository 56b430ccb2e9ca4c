/* host_memory.c - host_memory SEED CALLS THREADS: allocates at random by every function of the heap and of mappings.
 *
 * At the end it prints what libc and the kernel say is in use, and the blocks that are: `heap BYTES`, `maps BYTES`, and a
 * line `block ADDRESS BYTES`, `mapped ADDRESS BYTES` (a block that libc has mapped) or `map ADDRESS BYTES` for each. libc
 * maps no blocks below the size from which blocks count here, so that its counter of mapped ones has large ones only. Mappings are of one memfd, which makes
 * them recognisable in /proc/self/maps.
 */
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern int tfi_range_push(const char *) __attribute__((weak));
extern int tfi_range_pop(void) __attribute__((weak));

enum { PAGE = 4096, MOST = 64, LARGE = 64 << 10, PARTS = 40 };

struct block {
    void *at;
    size_t bytes;
};
struct worker {
    unsigned seed;
    struct block block[MOST];
    char *map[MOST];
    size_t pages[MOST];
};
static unsigned calls;
static int file;

static unsigned chance(struct worker *w, unsigned below)
{
    return (unsigned)rand_r(&w->seed) % below;
}

static void *give(struct worker *w, size_t bytes)
{
    void *block = NULL;
    switch (chance(w, 6)) {
    case 0: return calloc(bytes / 8, 8);
    case 1: return posix_memalign(&block, 16, bytes) == 0 ? block : NULL; /* more would add to libc's count */
    case 2: return aligned_alloc(16, bytes);
    case 3: return reallocarray(NULL, bytes / 16, 16);
    default: return malloc(bytes);
    }
}

static void use_heap(struct worker *w)
{
    struct block *b = &w->block[chance(w, MOST)];
    bool is_large = chance(w, 4) != 0;
    size_t bytes = 16 * (is_large ? LARGE / 16 + chance(w, 20000) : 1 + chance(w, 1000));
    if (!b->at) {
        *b = (struct block){give(w, bytes), bytes};
    } else if (chance(w, 3) == 0 && is_large == (b->bytes >= LARGE)) { /* a chunk of libc's own mapping stays one */
        *b = (struct block){realloc(b->at, bytes), bytes};
    } else {
        free(b->at);
        b->at = NULL;
    }
}

/* Maps, moves or unmaps; a mapping may lose its end, its middle or all of itself. */
static void use_maps(struct worker *w)
{
    unsigned i = chance(w, MOST), pages = 16 + chance(w, 200);
    if (!w->map[i]) {
        w->map[i] = mmap(NULL, pages * PAGE, PROT_READ, MAP_SHARED, file, 0);
        w->pages[i] = pages;
    } else if (chance(w, 3) == 0) {
        w->map[i] = mremap(w->map[i], w->pages[i] * PAGE, pages * PAGE, MREMAP_MAYMOVE);
        w->pages[i] = pages;
    } else if (chance(w, 2) && w->pages[i] > 2 * PARTS) {
        munmap(w->map[i] + (w->pages[i] - PARTS) * PAGE, PARTS * PAGE);
        w->pages[i] -= PARTS;
    } else {
        munmap(w->map[i] + 3 * PAGE, (w->pages[i] - 3) * PAGE - 17);
        munmap(w->map[i], 3 * PAGE);
        w->map[i] = NULL;
    }
}

static void *work(void *data)
{
    struct worker *w = data;
    if (tfi_range_push) tfi_range_push("work");
    for (unsigned i = 0; i < calls; i++)
        if (chance(w, 3)) use_heap(w);
        else use_maps(w);
    if (tfi_range_pop) tfi_range_pop();
    return NULL;
}

static size_t bytes_mapped(void)
{
    char line[512];
    size_t sum = 0;
    unsigned long start, end;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f))
        if (strstr(line, "memfd:host_memory") && sscanf(line, "%lx-%lx", &start, &end) == 2) sum += end - start;
    if (f) fclose(f);
    return sum;
}

/* libc marks chunks that it has mapped in the word before the block. */
static bool is_mapped(const void *block)
{
    return ((const size_t *)block)[-1] & 2;
}

static void tell(const struct worker *w)
{
    for (unsigned i = 0; i < MOST; i++) {
        if (w->block[i].at)
            printf("%s %lu %zu\n", is_mapped(w->block[i].at) ? "mapped" : "block", (unsigned long)w->block[i].at,
                   w->block[i].bytes);
        if (w->map[i]) printf("map %lu %zu\n", (unsigned long)w->map[i], w->pages[i] * PAGE);
    }
}

int main(int argc, char **argv)
{
    unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1, threads = argc > 3 ? (unsigned)atoi(argv[3]) : 1;
    static struct worker workers[16];
    static pthread_t thread[16];
    calls = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;
    mallopt(M_MMAP_THRESHOLD, LARGE);
    file = memfd_create("host_memory", 0);
    if (file < 0 || ftruncate(file, 1 << 24) != 0 || threads > 16) return 2;
    size_t before = mallinfo2().hblkhd;
    for (unsigned i = 0; i < threads; i++) {
        workers[i].seed = seed + i;
        if (pthread_create(&thread[i], NULL, work, &workers[i]) != 0) return 2;
    }
    for (unsigned i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    printf("heap %zu\nmaps %zu\n", mallinfo2().hblkhd - before, bytes_mapped());
    for (unsigned i = 0; i < threads; i++) tell(&workers[i]);
    return 0;
}
