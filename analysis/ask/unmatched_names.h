/* unmatched_names.h - names of ENABLE_PROFILER_NAMES and TFI_STAGES that no process of a run has as a stage. */
#ifndef TFA_UNMATCHED_NAMES_H
#define TFA_UNMATCHED_NAMES_H

#include "ask/selection.h"

struct unmatched_name {
    const char *variable;
    uint32_t name;    /* number in `asked` */
    uint32_t nearest; /* nearest stage, a name of the model; NAME_NONE: none is near */
};

struct unmatched {
    const struct selection *chosen;
    struct map known; /* distinct stages of all processes */
    uint32_t *stage;  /* the same stages, in the order of the processes and their files */
    size_t stages, capacity;
    struct names asked;          /* distinct names the user asked for */
    struct map judgment;         /* result of compare_all by name */
    uint64_t steps;              /* comparison steps left */
    bool gave_up;                /* the steps ran out: not all names were compared with all stages */
    struct unmatched_name *name; /* results of unmatched_find */
    size_t names, name_capacity;
};

void unmatched_init(struct unmatched *unmatched, const struct selection *chosen);
void unmatched_free(struct unmatched *unmatched);
/* Finds the names one process was given that match no stage of any of the selection's processes. */
void unmatched_find(struct unmatched *unmatched, const struct process *process);

#endif
