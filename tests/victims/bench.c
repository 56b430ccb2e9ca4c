/* bench.c - loops for scripts/bench/records: bench asleep|call|range|mark, bench rate THREADS COUNT, bench varied COUNT.
 *
 * The first four print the CPU time of one call in nanoseconds of the calling thread, the least of many passes. `rate`
 * prints records per second of wall time over all threads. `varied` makes a stream like a pipeline's: different
 * functions, arguments that change in different ways, stages and marks, at a pace that the background thread can
 * follow.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dummy.h"
#include "tfinject.h"

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void one_call(void)
{
    dummy_add(1);
}

static void one_range(void)
{
    tfi_range_push("denoise");
    tfi_range_pop();
}

static void one_mark(void)
{
    tfi_mark("step");
}

static int least(void (*one)(void))
{
    double best = 1e18;
    for (int pass = 0; pass < 40; pass++) {
        double start = now(CLOCK_THREAD_CPUTIME_ID);
        for (int i = 0; i < 20000; i++) one();
        double each = (now(CLOCK_THREAD_CPUTIME_ID) - start) / 20000;
        if (each < best) best = each;
        struct timespec pause = {.tv_nsec = 2000000}; /* time for the background thread to catch up */
        nanosleep(&pause, NULL);
    }
    printf("%.2f\n", best);
    return 0;
}

static long count;
static pthread_barrier_t barrier;

static void *work(void *unused)
{
    pthread_barrier_wait(&barrier);
    for (long i = 0; i < count; i++) dummy_add(i);
    return unused;
}

static int rate(int threads)
{
    pthread_t thread[64];
    if (threads > 64) return 1;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], NULL, work, NULL);
    double start = now(CLOCK_MONOTONIC);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    printf("%.0f\n", (double)count * threads / (now(CLOCK_MONOTONIC) - start) * 1e9);
    return 0;
}

static int varied(void)
{
    uint64_t seed = 12345, out, address = 0x7f0000000000;
    for (long i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned pick = (unsigned)(seed >> 60);
        if (i % 500 == 0) tfi_range_push(i % 1000 ? "denoise_step" : "text_encode");
        if (pick < 6)
            dummy_many((int)(i % 4), (int64_t)(seed >> 50), (char *)address, NULL, 4096u << (seed >> 40 & 7), 0);
        else if (pick < 10) dummy_store(&out, i * 64u);
        else if (pick < 15) dummy_add((long)(seed >> 44));
        else tfi_mark("allocator");
        if (pick == 3) address += 2u << 20;
        if (i % 500 == 499) tfi_range_pop();
        for (volatile unsigned spin = 0; spin < (seed >> 53);) spin++;
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "asleep")) return least(one_call);
    tfi_range_push("bench"); /* wakes the process, so that the loop does not */
    tfi_range_pop();
    if (!strcmp(mode, "call")) return least(one_call);
    if (!strcmp(mode, "range")) return least(one_range);
    if (!strcmp(mode, "mark")) return least(one_mark);
    count = argc > 2 ? atol(argv[argc - 1]) : 0;
    if (!strcmp(mode, "rate") && argc == 4) return rate(atoi(argv[2]));
    if (!strcmp(mode, "varied") && argc == 3) return varied();
    fprintf(stderr, "usage: bench asleep|call|range|mark, bench rate THREADS COUNT, bench varied COUNT\n");
    return 2;
}
