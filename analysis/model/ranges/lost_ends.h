/* lost_ends.h - finds ranges that ended although the trace has no end of them.
 *
 * Such a range has no known time, so it is no range of the model. Of a stage its name and its start are kept, because
 * `stages` counts it.
 */
#ifndef TFA_LOST_ENDS_H
#define TFA_LOST_ENDS_H

#include <stddef.h>
#include <stdint.h>

struct process;

struct lost_ends {
    struct stage_of_lost_end {
        uint32_t name;
        int64_t start;
    } * stage;
    size_t count, capacity;
};

/* Takes the waiting beginnings of such ranges out of process->begins. Needs all ranges that have ends, in ticks. */
void lost_ends_leave_out(struct process *process);

#endif
