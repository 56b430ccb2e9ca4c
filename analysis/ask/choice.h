/* choice.h - selects the stages, calls and device work of a process by window, step, cycle, device and stream.
 *
 * Work is chosen by its time (--from, --to: the part outside the window is cut off), its device and stream (--device,
 * --stream), and the step (--step) or schedule cycle (--cycle) of its launch. A cycle covers its recorded part, not its
 * warm-up.
 * A call is chosen by its time, its step or cycle, and the device and stream of the work that it launched. A call that
 * launched no work has no device.
 * A stage is chosen by the time it was open, and by the step or cycle it began in.
 * Work launched and calls made during warm-up are left out, as torch.profiler does, unless --step names a step of it.
 * Stages are timed in every state.
 */
#ifndef TFA_CHOICE_H
#define TFA_CHOICE_H

#include "ask/attribute.h"
#include "ask/selection.h"
#include "base/sets/intervals.h"

struct window {
    int64_t from, to;
};

struct choice {
    const struct process *process;
    const struct options *options;
    const struct attribution *attribution; /* of choice_attribute; needed for work if choice_needs_launches */
    struct window window;
    bool *lane; /* by index in process->lane: true if chosen */
    bool by_step, by_cycle;
    struct intervals steps;  /* times the chosen steps were open */
    struct intervals cycles; /* times the chosen cycles were recorded */
    struct intervals warmup; /* times of warm-up */
    struct intervals off;    /* times recording was off */
    bool by_stage, by_lane;
    uint32_t outside; /* name for work in no stage: NAME_OUTSIDE, or NAME_RUN if the process has no stages */
    bool outside_wanted;
    struct stage_paths paths; /* links over the stages of --stage */
    bool *launches;           /* by span, with --device or --stream: it launched chosen work */
};

void choice_init(struct choice *choice, const struct selection *chosen, const struct process *process);
/* Adds what depends on launches and their stages. */
void choice_attribute(struct choice *choice, const struct selection *chosen, const struct attribution *attribution);
void choice_free(struct choice *choice);
/* True for a kernel, copy or set that is chosen by all but the window. */
bool choice_work_at_any_time(const struct choice *choice, size_t work);
/* True for a chosen kernel, copy or set. Sets `when` to its time, cut to the window. */
bool choice_work(const struct choice *choice, size_t work, struct interval *when);
/* The same for the times of stages, which have the work of warm-up too: their calls are counted in every state. */
bool choice_stage_work_at_any_time(const struct choice *choice, size_t work);
bool choice_stage_work(const struct choice *choice, size_t work, struct interval *when);
bool choice_stage(const struct choice *choice, size_t range);
/* True if the process has any of the steps that --step lists and of the cycles that --cycle lists. Without such a list it
 * is true. */
bool choice_has_steps(const struct choice *choice);
/* For an operator, a call or a block that began at `start` and was launched at `launched`. False while recording was
 * off: only stages are recorded then. */
bool choice_moment(const struct choice *choice, int64_t start, int64_t launched);
/* True if `at` lies in a stage that --stage names, or if --stage is not given. An item in no stage counts as in
 * `(none)`, or in `(run)` if the process has no stages. */
bool choice_in_stage(const struct choice *choice, const struct belonging *at);
/* The same; sets `name` to the innermost stage that --stage names, or to NAME_OUTSIDE or NAME_RUN if there is none. */
bool choice_stage_name(const struct choice *choice, const struct belonging *at, uint32_t *name);
/* True if `at` lies in such a stage and in the chosen steps and cycles. */
bool choice_belonging(const struct choice *choice, const struct belonging *at);
/* True if work launched at that time lies in the chosen steps and cycles. */
bool choice_in_steps(const struct choice *choice, int64_t launched);
bool choice_lane(const struct choice *choice, int64_t device, int64_t stream);
/* True for a call that launched work on the chosen devices and streams; for every call if there is no choice of them. */
bool choice_launched(const struct choice *choice, uint32_t span);
/* True for a call that began at `start` in the window and in the chosen steps and cycles. With --device or --stream it
 * must also have launched work there. `span`: the call's index in process->spans, or NO_PLACE. */
bool choice_call(const struct choice *choice, int64_t start, uint32_t span);
/* True if the choice of work depends on its launch. */
bool choice_needs_launches(const struct options *options, const struct process *process);

#endif
