/* selection.h - the model of a query, with the processes and stages that the options choose.
 *
 * --rank and --pid choose processes. --stage chooses names of ranges. Each name is matched once, so a test of an event
 * compares only numbers.
 */
#ifndef TFA_SELECTION_H
#define TFA_SELECTION_H

#include "ask/filters.h"
#include "model/input.h"

/* A result that all processes of a selection share, made when the first one needs it. */
struct shared_once {
    pthread_mutex_t lock;
    void *data; /* NULL: not made yet */
    void (*free)(void *data);
};

struct selection {
    const struct options *options;
    const struct inputs *inputs;
    struct model *model;
    struct needs needs;             /* of all questions that the options ask */
    const struct process **process; /* the processes that --rank and --pid choose */
    size_t processes;
    struct scope **scope;            /* of each process, or NULL (ask/scope.h) */
    int64_t last;                    /* time of their last record; INT64_MIN: none has a time */
    uint32_t *stages;                /* by name of a range: 0 if --stage matches; NULL: --stage is not given */
    size_t stages_known;             /* names in `stages` */
    struct shared_once *open_stages; /* ask/io/open_times.h */
    struct shared_once *compat;      /* what the rules of another tool share */
};

/* Returns what the questions need together. */
struct needs needs_of(const struct options *options);
/* Chooses from a loaded model. The selection keeps pointers to all three arguments. */
void selection_init(struct selection *selection, const struct options *options, const struct inputs *inputs,
                    struct model *model);
/* Restricts the selection to one process, which need not be in the model. The start of the run is unknown to the
 * selection while other inputs are being read. The results for names of stages are kept for the next process. */
void selection_set(struct selection *selection, const struct process *process);
void selection_free(struct selection *selection);

/* wants_stage for the number of a range's name, NAME_RUN or NAME_OUTSIDE, without comparing texts. */
static inline bool selection_wants(const struct selection *selection, uint32_t name)
{
    return !selection->stages || selection->stages[name] == 0;
}

#endif
