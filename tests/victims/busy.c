/* busy.c - four threads that call dummy functions as fast as they can and count each call after it has returned.
 *
 * busy COUNTERS: the file COUNTERS holds the counts in one page that survives SIGKILL. For thread i, word 2i is its
 * kernel thread id and word 2i+1 the number of calls that have returned. The arguments of a thread's call n are made
 * from n. Some threads do more work between calls than others, so that chunks fill at different rates.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dummy.h"

#define THREADS 4

static volatile uint64_t *counters;

static void *work(void *argument)
{
    size_t thread = (size_t)(uintptr_t)argument;
    uint64_t out;
    counters[2 * thread] = (uint64_t)syscall(SYS_gettid);
    for (uint64_t n = 1;; n++) {
        switch (n % 3) {
        case 0: dummy_add((long)n); break;
        case 1: dummy_store(&out, n); break;
        default: dummy_many((int)thread, (int64_t)n, NULL, NULL, n * 2, (uint8_t)n);
        }
        __atomic_store_n(&counters[2 * thread + 1], n, __ATOMIC_RELEASE);
        for (volatile unsigned spin = 0; spin < 50 + 150 * (unsigned)thread;) spin++;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    int fd = argc == 2 ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
    if (fd < 0 || ftruncate(fd, 4096) != 0) return 1;
    counters = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (counters == MAP_FAILED) return 1;
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&thread, NULL, work, (void *)(uintptr_t)i) != 0) return 1;
    for (;;) pause();
}
