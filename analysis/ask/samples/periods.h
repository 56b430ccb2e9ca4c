/* periods.h - walks over the sampled periods of a process that the filters choose, with what is known of each. */
#ifndef TFA_PERIODS_H
#define TFA_PERIODS_H

#include "ask/scope.h"

/* A period of a thread, cut to the window. Its times are nanoseconds. */
struct sampled {
    size_t look;    /* index in process->looks */
    uint32_t stage; /* index in process->ranges of the innermost stage; NO_PLACE: none */
    int64_t wall, cpu, waiting;
    int64_t device_idle; /* the device had no work, and the thread launched the next; -1: unknown */
    int64_t weight;      /* the part that counts: all of the first thread's, and of others what is not idle waiting */
};

struct needs sampled_needs(const struct options *options);

/* Calls `visit` for each period. Returns the device time without work between the first and the last work, for shares of
 * device_idle; -1: there is no work, or some of it is left out. */
int64_t sampled_each(struct scope *scope, void (*visit)(void *context, const struct sampled *sampled), void *context);

/* True for a thread that was on a processor for half of a period, or in no system call: it worked, or wanted to. */
static inline bool sampled_works(const struct looks *looks, size_t look, int64_t wall, int64_t cpu)
{
    return cpu >= wall - cpu || !looks->call[look];
}

/* Returns what a thread waited in: a system call's name, `GIL`, `processor`, or NULL. */
const char *sampled_wait(const struct looks *looks, size_t look, char room[24]);

#endif
