/* unmatched.h - names of ENABLE_PROFILER_NAMES and TFI_STAGES that no process of a run has as a stage. */
#ifndef TFA_UNMATCHED_H
#define TFA_UNMATCHED_H

#include "session.h"

struct unmatched {
    struct session *session;
    struct map known; /* the different stages of all processes */
    uint32_t *stage;  /* the same, in the order of the processes and their files */
    size_t stages, capacity;
    struct names asked;  /* the different names that were asked for */
    struct map judgment; /* by those: what compare_all found */
    uint64_t steps;      /* of comparing that are left */
    bool gave_up;        /* they did not suffice */
};

void unmatched_init(struct unmatched *unmatched, struct session *session);
/* Writes the list `unmatched_names` of one process: {variable, name, nearest} of each name that it was given and that
 * matches no stage of any of the session's processes; nearest is null where no stage is near. */
void emit_unmatched(struct unmatched *unmatched, const struct process *process);
/* Says so, and spoils the answer, if there were too many names to compare. */
void unmatched_end(struct unmatched *unmatched);

#endif
