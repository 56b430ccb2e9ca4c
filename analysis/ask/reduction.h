/* reduction.h - how a question turns each process into a summary, so that no answer needs the events of all processes.
 *
 * If every question of a session has a reduction that stands alone, a process is summarised on the thread that read it
 * and freed again. A run of any number of ranks then needs memory for its summaries and for the processes that are read
 * at one time. The question unites the summaries in any order.
 */
#ifndef TFA_REDUCTION_H
#define TFA_REDUCTION_H

#include "ask/scope.h"

struct reduction {
    /* True if the summary of a process does not depend on other processes, not even on the time of the run's first
     * record. Otherwise all processes are loaded before the first is summarised. */
    bool (*stands_alone)(const struct options *options);
    /* Returns the summary of a process. Several threads call it, each for another process. */
    void *(*take)(struct scope *scope);
    void (*free)(void *summary);
    /* Returns the summary of a process from a file of summaries (.tfs). It is empty if `from` gets bad. NULL: the
     * question needs events. */
    void *(*restore)(struct names *names, int64_t rank, struct unpacking *from);
};

#endif
