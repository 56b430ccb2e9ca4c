/* export_wanted.c - chooses the events of an export by stage, window, step, device and stream. */
#include "write/export/export_write.h"

bool is_inside(const struct export *x, uint32_t stage, int64_t time)
{
    return stage_or_around(&x->paths, stage, time) != NO_PLACE;
}

bool is_chosen(const struct export *x, int64_t launched)
{
    return !x->scope->choice.by_lane && choice_in_steps(&x->scope->choice, launched);
}

static bool lies_there(const struct export *x, uint32_t thread, int64_t start, int64_t end)
{
    bool in_time = start < x->to && end >= x->from;
    return in_time && (x->whole || is_inside(x, stage_at(&x->scope->attribution.finder, thread, start), start));
}

bool is_wanted(const struct export *x, uint32_t thread, int64_t start, int64_t end)
{
    return is_chosen(x, start) && lies_there(x, thread, start, end);
}

bool is_wanted_call(const struct export *x, uint32_t thread, int64_t start, int64_t end, uint32_t span)
{
    bool on_lane = !x->scope->choice.by_lane || (span != NO_PLACE && x->scope->choice.launches[span]);
    return on_lane && choice_in_steps(&x->scope->choice, start) && lies_there(x, thread, start, end);
}

bool wants_range(const struct export *x, size_t i)
{
    const struct ranges *r = &x->process->ranges;
    bool in_time = r->start[i] < x->to && r->end[i] >= x->from;
    if (r->flags[i] & TFI_RANGE_UNTRACKED) return false;
    if (!x->whole && r->flags[i] & TFI_RANGE_STAGE)
        return in_time && is_chosen(x, r->start[i]) && is_inside(x, (uint32_t)i, r->start[i]);
    return is_wanted(x, r->thread[i], r->start[i], r->end[i]);
}
