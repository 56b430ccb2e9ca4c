/* machine.h - the machine that a process ran on, and the process over time: its threads and memory. */
#ifndef TFA_MACHINE_H
#define TFA_MACHINE_H

#include "base/util.h"

/* With `machine`. */
struct process_sample {
    int64_t time;
    uint64_t resident, cgroup; /* bytes; cgroup 0: unknown */
    uint32_t threads;
};

/* The number of threads that a thread's operators ran on, from `time` on. */
struct thread_pool {
    int64_t time;
    uint32_t thread, threads; /* thread: serial */
};

struct machine {
    struct pairs *facts;           /* of the header, without the prefix "machine." */
    struct pairs *settings;        /* variables for thread counts and devices */
    struct process_sample *sample; /* sorted by time */
    size_t samples, sample_capacity;
    struct thread_pool *pool; /* sorted by time */
    size_t pools, pool_capacity;
};

/* Returns a fact that is a number; -1 if it is unknown. */
int64_t machine_number(const struct machine *machine, const char *key);

/* Sorts samples and pools by time. */
void machine_sort(struct machine *machine);
void machine_free(struct machine *machine);

#endif
