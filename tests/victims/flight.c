/* flight.c - makes numbered calls in stages of changing length, and counts them in a file: flight FILE THREADS CALLS PAUSE [SLOW MS].
 *
 * Each thread makes CALLS calls of dummy_many, or goes on until it is killed if CALLS is 0. Its number and the number of the
 * call are arguments, and two others are random, so that records do not pack well. FILE has one count a thread, of 64
 * bits: the calls that have returned. A stage ends with a pause of PAUSE microseconds. A short-lived thread runs beside
 * every 1,000 calls of the first thread. In the stage with the call SLOW the first thread sleeps for MS milliseconds.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dummy.h"
#include "tfinject.h"

enum { MOST = 16 };
static uint64_t *done;
static int64_t calls;
static unsigned pause_us, slow_ms;
static int64_t slow = -1;

static void *helper(void *unused)
{
    dummy_add(1);
    return unused;
}

static void run_helper(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, helper, NULL) != 0) abort();
    pthread_join(thread, NULL);
}

static void *work(void *place)
{
    uint64_t *count = place, seed = 12345;
    int number = (int)(count - done);
    int64_t next = 10, length = 10;
    tfi_range_push("step");
    for (int64_t i = 0; !calls || i < calls; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        dummy_many(number, i, (char *)seed, NULL, (size_t)(seed ^ seed >> 31), 0);
        __atomic_store_n(count, (uint64_t)i + 1, __ATOMIC_RELEASE);
        if (!number && i % 1000 == 999) run_helper();
        if (!number && i == slow) usleep(slow_ms * 1000);
        if (i + 1 < next) continue;
        tfi_range_pop();
        if (pause_us) usleep(pause_us);
        tfi_range_push("step");
        length = length % 200 + 7;
        next += length;
    }
    tfi_range_pop();
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread[MOST];
    if (argc != 5 && argc != 7) return 2;
    int threads = atoi(argv[2]), fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    calls = atoll(argv[3]);
    pause_us = (unsigned)atoi(argv[4]);
    if (argc == 7) slow = atoll(argv[5]), slow_ms = (unsigned)atoi(argv[6]);
    if (threads < 1 || threads > MOST || fd < 0 || ftruncate(fd, MOST * sizeof *done) != 0) return 2;
    done = mmap(NULL, MOST * sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (done == MAP_FAILED) return 2;
    for (int i = 1; i < threads; i++)
        if (pthread_create(&thread[i], NULL, work, &done[i]) != 0) return 2;
    work(&done[0]);
    for (int i = 1; i < threads; i++) pthread_join(thread[i], NULL);
    return 0;
}
