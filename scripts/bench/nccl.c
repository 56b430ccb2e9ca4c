/* nccl.c - calls ncclAllReduce in a loop and prints what a call costs its thread; for scripts/bench/cuda.
 *
 *     nccl COUNT PAUSE
 *
 * COUNT calls, with PAUSE microseconds of sleep after each thousand. Prints nanoseconds of CPU time per call; sleeps
 * cost none.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <nccl.h>

#define BURST 1000

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 3) return fprintf(stderr, "usage: nccl COUNT PAUSE\n"), 2;
    long count = atol(argv[1]) / BURST * BURST;
    struct timespec rest = {.tv_nsec = atol(argv[2]) * 1000};
    ncclUniqueId id;
    ncclComm_t comm;
    double used = 0;
    if (ncclGetUniqueId(&id) != ncclSuccess || ncclCommInitRank(&comm, 8, id, 0) != ncclSuccess) return 1;
    for (long done = 0; done < count; done += BURST) {
        double start = now();
        for (int i = 0; i < BURST; i++)
            if (ncclAllReduce(NULL, NULL, 1000 + (size_t)i, ncclFloat, ncclSum, comm, NULL) != ncclSuccess) return 1;
        used += now() - start;
        nanosleep(&rest, NULL);
    }
    printf("%.2f\n", used / (double)count);
    return 0;
}
