/* choice.h - which of a process's stages and device work an answer is about: the window, steps, devices and streams.
 *
 * Work is chosen by when it ran (--from, --to: what lies outside is cut off), where it ran (--device, --stream) and in which
 * step it was launched (--step). A stage is chosen by when it was open, and by the step it began in.
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
    const struct attribution *attribution; /* needed for work if there is --step */
    struct window window;
    bool *lane; /* by place in process->lane: chosen */
    bool by_step;
    struct intervals steps; /* when the chosen ones were open */
};

void choice_init(struct choice *choice, const struct session *session, const struct process *process,
                 const struct attribution *attribution);
void choice_free(struct choice *choice);
/* Kernels, copies and sets; `when` is cut to the window. */
bool choice_work(const struct choice *choice, size_t work, struct interval *when);
bool choice_stage(const struct choice *choice, size_t range);
/* Some option of these was given: an empty answer is then the filter's. */
bool is_filtered(const struct session *session);

#endif
