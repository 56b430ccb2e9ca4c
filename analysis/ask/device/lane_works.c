/* lane_works.c - collects the device work of a process by stream and start, with the start of each launch. */
#include "ask/device/lane_works.h"

#include <stdlib.h>

static int by_lane(const void *a, const void *b)
{
    const struct lane_work *x = a, *y = b;
    return x->lane != y->lane     ? by_number(x->lane, y->lane)
           : x->start != y->start ? by_number(x->start, y->start)
                                  : by_number(x->work, y->work);
}

void lane_works_init(struct lane_works *works, struct scope *scope)
{
    const struct process *process = scope->process;
    const struct works *w = &process->works;
    const struct attribution *a = scope_attribute(scope);
    const struct choice *choice = &scope->choice;
    struct interval when;
    *works = (struct lane_works){.window = choice->window};
    for (size_t i = 0; i < w->table.count; i++) {
        if (!IS_WORK(w->event_class[i]) || !choice->lane[w->lane[i]]) continue;
        uint32_t launch = a->launch[i];
        bool in_stage = choice_in_stage(choice, &a->work[i]);
        works->work = mem_grow(works->work, &works->capacity, works->count + 1, sizeof *works->work);
        works->work[works->count++] =
            (struct lane_work){.start = w->start[i],
                               .end = w->end[i],
                               .launched = launch == NO_PLACE ? 0 : process->spans.start[launch],
                               .lane = w->lane[i],
                               .work = (uint32_t)i,
                               .has_launch = launch != NO_PLACE,
                               .at_any_time = in_stage && choice_work_at_any_time(choice, i),
                               .chosen = in_stage && choice_work(choice, i, &when)};
    }
    if (works->count) qsort(works->work, works->count, sizeof *works->work, by_lane);
}

void lane_works_free(struct lane_works *works)
{
    free(works->work);
    *works = (struct lane_works){0};
}
