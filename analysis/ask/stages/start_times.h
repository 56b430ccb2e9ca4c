/* start_times.h - the time that a process took to start, apart from its work.
 *
 * It is the union of the interpreter's start, imports (lazy ones too), loading of models, compilation, and of what the
 * first call of a stage took longer than the others: a stage with three calls or more whose first one took more than
 * twice the median of the others.
 */
#ifndef TFA_STAGES_STARTUP_H
#define TFA_STAGES_STARTUP_H

#include "ask/selection.h"
#include "base/sets/intervals.h"

/* The first call of a stage. */
struct first_call {
    uint32_t name;
    int64_t start, time, median; /* median: of the other calls */
    uint64_t others;
};

struct first_calls {
    struct first_call *call;
    size_t count;
};

/* Returns the first calls that took so long, by start. The caller frees `call`. */
struct first_calls first_calls_find(const struct process *process);

/* True if the trace has what its process did to start. */
static inline bool has_startup(const struct process *process)
{
    return process->startup.pieces != 0;
}

/* Returns the moment the start began; the process's first record if it has no pieces of the start. */
int64_t startup_begin(const struct process *process);

/* Adds all of it to a set, which is then merged. */
void startup_times(const struct process *process, struct intervals *set);

/* The time of a rank, from the start of its first process to the last record of any: the start, the work (stages outside the
 * start), and what neither explains. They add up. */
struct startup_share {
    bool known; /* some process of the rank says how it started */
    int64_t run, start_up, work, unexplained;
};
struct startup_share startup_share_of(const struct selection *chosen, int64_t rank, struct interval window);

#endif
