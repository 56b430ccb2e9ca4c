/* lost_ends.c - finds ranges that ended although the trace has no end of them.
 *
 * The depth of a nested range is the number of ranges of its domain that are open on its thread when it begins. So a later
 * range of the same or a lower depth shows that the earlier one is no longer open. Ranges that can leave their thread
 * before they end show nothing about themselves this way.
 */
#include "model/ranges/lost_ends.h"

#include <stdlib.h>

#include "model/model.h"

/* A beginning of a nested range. */
struct nested {
    uint32_t thread, domain, depth;
    uint32_t begin; /* index in process->begins; NO_PLACE: its end is known */
    uint64_t time, id;
};

static int latest_first(const void *a, const void *b)
{
    const struct nested *x = a, *y = b;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    if (x->domain != y->domain) return x->domain < y->domain ? -1 : 1;
    if (x->time != y->time) return x->time > y->time ? -1 : 1;
    return (x->id < y->id) - (x->id > y->id);
}

static bool has_place_on_stack(uint32_t flags)
{
    return flags & TFI_RANGE_NESTED && !(flags & (TFI_RANGE_PAUSES | TFI_RANGE_UNTRACKED));
}

/* Returns true if some beginning waits for an end that another range can show to be lost. */
static bool any_waits(const struct begins *b)
{
    for (size_t i = 0; i < b->table.count; i++)
        if (b->waits[i] && has_place_on_stack(b->flags[i])) return true;
    return false;
}

/* Returns all beginnings of nested ranges, for each thread and domain the latest first. */
static struct nested *nested_ranges(const struct process *p, size_t *count)
{
    const struct ranges *r = &p->ranges;
    const struct begins *b = &p->begins;
    struct nested *all = mem_zero(r->table.count + b->table.count, sizeof *all);
    *count = 0;
    for (size_t i = 0; i < r->table.count; i++) {
        if (!has_place_on_stack(r->flags[i])) continue;
        all[(*count)++] =
            (struct nested){r->thread[i], r->domain[i], r->depth[i], NO_PLACE, (uint64_t)r->start[i], r->id[i]};
    }
    for (size_t i = 0; i < b->table.count; i++) {
        if (!b->waits[i] || !has_place_on_stack(b->flags[i])) continue;
        all[(*count)++] =
            (struct nested){b->thread[i], b->domain[i], b->depth[i], (uint32_t)i, (uint64_t)b->time[i], b->id[i]};
    }
    qsort(all, *count, sizeof *all, latest_first);
    return all;
}

static void leave_out(struct process *p, uint32_t begin)
{
    p->begins.waits[begin] = false;
    if (!(p->begins.flags[begin] & TFI_RANGE_STAGE)) return;
    struct lost_ends *lost = &p->lost_ends;
    lost->stage = mem_grow(lost->stage, &lost->capacity, lost->count + 1, sizeof *lost->stage);
    lost->stage[lost->count++] = (struct stage_of_lost_end){p->begins.name[begin], p->begins.time[begin]};
}

void lost_ends_leave_out(struct process *process)
{
    size_t count;
    uint32_t lowest = 0; /* depth of what follows on the thread */
    if (!any_waits(&process->begins)) return;
    struct nested *all = nested_ranges(process, &count);
    for (size_t i = 0; i < count; i++) {
        bool is_last = !i || all[i].thread != all[i - 1].thread || all[i].domain != all[i - 1].domain;
        if (!is_last && lowest <= all[i].depth && all[i].begin != NO_PLACE) leave_out(process, all[i].begin);
        lowest = is_last ? all[i].depth : MIN(lowest, all[i].depth);
    }
    free(all);
}
