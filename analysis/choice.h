/* choice.h - which of a process's stages and device work an answer is about: the window, steps, devices and streams.
 *
 * Work is chosen by when it ran (--from, --to: what lies outside is cut off), where it ran (--device, --stream) and in which
 * step it was launched (--step), or in which cycle of the schedule (--cycle: while it was recorded, not in its warm-up).
 * A call is chosen by when it was made, in which step or cycle, and by the device and stream of the work that it launched:
 * one that launched none has no device.
 * A stage is chosen by when it was open, and by the step or cycle it began in. What was launched during warm-up is left
 * out, as torch.profiler does, unless --step names a step of it; stages are timed in every state.
 */
#ifndef TFA_CHOICE_H
#define TFA_CHOICE_H

#include "attribute.h"
#include "intervals.h"
#include "session.h"

struct window {
    int64_t from, to;
};

struct choice {
    const struct process *process;
    const struct options *options;
    const struct attribution *attribution; /* needed for work if choice_needs_launches */
    struct window window;
    bool *lane; /* by place in process->lane: chosen */
    bool by_step, by_cycle;
    struct intervals steps;  /* when the chosen ones were open */
    struct intervals cycles; /* when the chosen ones were recorded */
    struct intervals warmup; /* when recording was warming up */
    struct intervals off;    /* or off */
    bool by_stage, by_lane, none_wanted;
    struct stage_paths paths; /* over the stages of --stage */
    bool *launches;           /* by span, with --device or --stream: it launched work that they choose */
};

void choice_init(struct choice *choice, const struct session *session, const struct process *process,
                 const struct attribution *attribution);
void choice_free(struct choice *choice);
/* Kernels, copies and sets; `when` is cut to the window. */
bool choice_work(const struct choice *choice, size_t work, struct interval *when);
bool choice_stage(const struct choice *choice, size_t range);
/* What began then on the host, and was launched at `launched`: an operator, a call, a block. Not what began while
 * recording was off: nothing is known of it but its stages. */
bool choice_moment(const struct choice *choice, int64_t start, int64_t launched);
/* In a stage that --stage names, if it is given; what is in none, in `(none)`, or `(run)` where there are none. */
bool choice_in_stage(const struct choice *choice, const struct belonging *at);
/* The same, and in the steps and cycles that were asked for. */
bool choice_belonging(const struct choice *choice, const struct belonging *at);
/* Work launched at that time lies in the steps and cycles that were asked for. */
bool choice_in_steps(const struct choice *choice, int64_t launched);
bool choice_lane(const struct choice *choice, int64_t device, int64_t stream);
/* A call made then, in the steps and cycles that were asked for, which launched work of the chosen devices and streams if
 * there is such a choice. `span`: its place in process->spans, or NO_PLACE. */
bool choice_call(const struct choice *choice, int64_t start, uint32_t span);
/* Whether work is chosen depends on when it was launched. */
bool choice_needs_launches(const struct session *session, const struct process *process);
/* Some option of these was given: an empty answer is then the filter's. */
bool is_filtered(const struct session *session);

#endif
