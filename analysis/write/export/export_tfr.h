/* export_tfr.h - writes .tfr traces, or the parts of them that belong to a stage, as Chrome traces. */
#ifndef TFA_EXPORT_TFR_H
#define TFA_EXPORT_TFR_H

#include "ask/scope.h"
#include "write/out.h"
#include "write/event.h"

/* An export needs these. They include all that an export of a Kineto trace needs. */
extern const struct needs export_tfr_needs;

/* Contents that an export leaves out, in Kineto's terms. Device calls belong to both CPU and GPU and are left out
 * only with both. Ranges and marks are always written. */
enum {
    WITHOUT_CPU = 1, /* operators, and calls that are not device calls */
    WITHOUT_GPU = 2,
    WITHOUT_MEMORY = 4,
    WITHOUT_STACKS = 8,
    WITHOUT_SHAPES = 16, /* also values, types, strides and flops, as flops follow from shapes */
};

static inline bool without_calls(uint32_t without)
{
    return without & WITHOUT_CPU && without & WITHOUT_GPU;
}

/* The state that the exports of a process share, whatever stages they write. All zero before the first one. */
struct tfr_shared {
    bool is_made;
    struct scope scope;
    bool *crosses;        /* by range: must not be drawn as a box */
    uint32_t *launcher;   /* by span: the operator that made this launch, an index into spans, or NO_PLACE */
    struct map details;   /* by id of a range: the text of what the pipeline said of it */
    struct map record_of; /* by span of a call that waits for an event: the call that recorded it */
    struct map record_id; /* by such a call without an id: its own, added to free_id */
    struct map awaited;   /* the calls of record_of */
    uint64_t free_id;
};
void tfr_shared_free(struct tfr_shared *shared, size_t count);

struct tfr_export {
    const struct process **process;
    size_t processes; /* at least one */
    struct out *out;  /* open */
    const char *artefact;
    const struct name *stage; /* NULL: not of a single stage */
    const uint32_t *of_name;  /* by name: writes the stages whose value is `target`; NULL: everything */
    uint32_t target;
    uint32_t without;                /* WITHOUT_* */
    struct tfr_shared *shared;       /* by process, kept for the next export; NULL: nothing is kept */
    const struct event_taker *taker; /* NULL: a file is written; else this gets the events, and `out` is NULL */
};

/* Returns the number of events written, without the descriptions of processes and threads. */
uint64_t export_tfr(const struct tfr_export *asked, const struct selection *chosen);
/* Writes the same events of one process into a merged file, as those of the process at `place`. */
struct merged;
uint64_t export_tfr_merged(const struct tfr_export *asked, const struct selection *chosen, struct merged *file,
                           size_t place);
/* Writes the members that describe the trace, without the braces around them. */
void export_tfr_metadata(struct out *out, const struct process *process, const struct selection *chosen);
/* Returns `pid`, or a free number if another process or device of the file has it; `pids` are those in use. */
int64_t pid_in_file(struct map *pids, int64_t pid);
/* Returns the time from which a file's times count: the start of Kineto's period of three months that has `start`. */
int64_t export_base(int64_t start);

#endif
