/* load.h - what the files share that turn the records of our traces into the model: load_tfr.c and load_device.c.
 *
 * A function takes a group, all records of one kind in a chunk, and asks for the columns it needs before it keeps anything.
 */
#ifndef TFA_LOAD_H
#define TFA_LOAD_H

#include "model.h"

struct load {
    struct trace *trace;
    struct names *names;
    struct process *process;
    struct reader reader;
    unsigned want;
    const struct piece *piece;
    struct group *group;
    uint64_t *zeros; /* as many as the largest group had records */
    size_t zero_capacity;
    uint64_t drops[TFI_MAX_DROPS];
    struct map name_of_tid;       /* strings */
    struct map thread_of_pthread; /* serials by the low half of pthread_self(): of threads that share one, the last */
    uint64_t last_clock;          /* ticks */
    uint64_t unknown;             /* records of kinds that not even the file describes */
    uint64_t budget;              /* records a file of this size can hold */
};

/* A column of the group at hand; zeros if the file has none. */
const uint64_t *load_column(struct load *load, unsigned own);
/* Records of the group that can be used: none once a column of it was found to make no sense. */
uint32_t load_rows(const struct load *load);
uint32_t load_name(struct load *load, uint64_t string);
uint32_t load_func(struct load *load, uint64_t string);

/* ---- load_device.c ---- */
void load_correlations(struct load *load);
void load_kernels(struct load *load);
void load_copies(struct load *load);
void load_sets(struct load *load);
void load_syncs(struct load *load);
void load_graph_launches(struct load *load);
/* All is read: threads of calls are known now. */
void load_devices_end(struct load *load, struct notes *notes);

#endif
