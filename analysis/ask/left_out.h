/* left_out.h - tells where records of device work were left out of a trace, so that no sum of the others counts as whole.
 *
 * A trace holds sums of the work whose records ENABLE_PROFILER_NAMES, TFI_SCHEDULE or TFI_CAPTURE left out, by call of a
 * stage. Where only time decided, whatever was launched while recording was on is there: an answer is about that time,
 * and is whole unless recording was off in the middle of it. Where stages were selected, the work of others is missing at
 * any moment: an answer about a rank or a stream is whole only if none of it ran meanwhile, or --stage leaves it out.
 */
#ifndef TFA_LEFT_OUT_H
#define TFA_LEFT_OUT_H

#include "ask/choice.h"

struct left_out {
    bool by_stage;          /* stages were selected */
    uint64_t count;         /* works in the sums that the filters choose */
    struct intervals work;  /* merged: when the work of these ran */
    struct intervals held;  /* merged: from the start of the stages that launched it to its end */
    struct intervals *lane; /* merged, by lane: the same of all sums, because other work keeps a stream busy too */
    size_t lanes;
    struct map stages; /* index in `stage`, by name */
    uint32_t *stage;   /* names of the stages to which work of chosen sums belongs */
    size_t stage_count, stage_capacity;
    struct intervals pauses; /* merged: times of warm-up and times recording was off */
};

/* `choice` knows of launches if it needs them. */
void left_out_init(struct left_out *left, const struct choice *choice);
void left_out_free(struct left_out *left);
/* True if an answer from work between two moments lacks some of any lane, or one about a lane (else NO_PLACE). No interval:
 * there is no such work. */
bool left_out_of(const struct left_out *left, struct interval work, uint32_t lane);
/* True if work that ran or was launched at any moment of an interval that the host gives may be missing. */
bool left_out_during(const struct left_out *left, struct interval when);

/* Adds what a selection, a schedule or a capture left out of the trace of a process, in words; nothing if it is whole. */
void left_out_describe(struct text *text, const struct process *process);

/* The ranks of several processes, and their stages, whose sums would lack work. */
struct left_rows {
    struct map rank, stage;
    bool any;
};
/* `work`: bounds of the work of the process from which the answer is made. */
void left_rows_add(struct left_rows *rows, const struct process *process, const struct left_out *left,
                   struct interval work);
bool left_rows_rank(const struct left_rows *rows, int64_t rank);
/* True if work of the stage itself, and not of a stage inside it, is missing. */
bool left_rows_stage(const struct left_rows *rows, int64_t rank, uint32_t stage);
void left_rows_free(struct left_rows *rows);

#endif
