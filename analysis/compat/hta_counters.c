/* hta_counters.c - answers counters as get_cupti_counter_data_with_operators of HTA 0.5.0: the rows of its frame, its
 * rounding, and only cudaLaunchKernel as a launch.
 */
#include <stdlib.h>

#include "commands/device/answers.h"
#include "compat/hta_answer.h"

static bool keeps(const void *frame, int64_t start)
{
    return hta_keeps(frame, start);
}

static const struct counter_rules rules = {hta_times, keeps, "cudaLaunchKernel",
                                           "HTA has no rows then; --rules exact shows the counters"};

/* Returns the scope of the process of a frame; frames are in the order of ranks. */
static struct scope *scope_of(const struct selection *chosen, const struct hta_frame *frame)
{
    size_t number = 0;
    while (chosen->process[number] != frame->process) number++;
    return scope_begin(chosen, number);
}

void hta_counters(struct session *session)
{
    if (!hta_load(session) || !session_begin(session, STYLE_TABLE)) return;
    const struct hta_frames *frames = hta_frames(&session->chosen);
    struct counter_part *part = mem_zero(frames->count, sizeof *part);
    for (size_t i = 0; i < frames->count; i++)
        part[i] = (struct counter_part){scope_of(&session->chosen, &frames->frame[i]), &frames->frame[i]};
    counters_answer(session, &rules, part, frames->count);
    free(part);
}
