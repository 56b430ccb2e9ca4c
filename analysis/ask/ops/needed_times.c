/* needed_times.c - finds the times whose operators in the file the table of a part of a run needs.
 *
 * The table has the events that begin in the part. Its rows also depend on what these contain, and on whether one of them is
 * the only child of its parent, into which it is then folded. So these times count too:
 * - the time of a held event (a stage, a call) that begins in the part;
 * - the times of chunks that lie partly in the part: they hold each operator that is open in it;
 * - where the part begins: of each thread the held event that began last, if it is still open. An earlier one that is
 *   still open contains an event that has ended, so that none in the part is its only child.
 */
#include "ask/ops/needed_times.h"

#include <stdlib.h>

#include "ask/part_of_run.h"
#include "model/sweep/sweep.h"

/* The held event that began last on a thread. */
struct latest {
    int64_t start, end;
    bool is_new; /* since the last look */
};

struct latests {
    struct map of; /* index in `latest`, by thread */
    struct latest *latest;
    size_t count, capacity;
    uint32_t *new; /* those to look at */
    size_t news, new_capacity;
};

static void note_latest(struct latests *l, const struct op_event *event)
{
    uint32_t at = map_number(&l->of, event->thread);
    if (at == l->count) {
        l->latest = mem_grow(l->latest, &l->capacity, l->count + 1, sizeof *l->latest);
        l->latest[l->count++].is_new = false;
    }
    if (!l->latest[at].is_new) {
        l->new = mem_grow(l->new, &l->new_capacity, l->news + 1, sizeof *l->new);
        l->new[l->news++] = at;
    }
    l->latest[at] = (struct latest){event->start, event->end, true};
}

/* Adds the latest events that are open at `begin`. One that was looked at before has ended, or is added. */
static void add_open(struct latests *l, int64_t begin, struct intervals *needed)
{
    for (size_t i = 0; i < l->news; i++) {
        struct latest *latest = &l->latest[l->new[i]];
        if (latest->end >= begin) intervals_add_merging(needed, latest->start, add_ns(latest->end, 1));
        latest->is_new = false;
    }
    l->news = 0;
}

static struct intervals held_times(const struct op_events *events, const struct intervals *part)
{
    struct intervals needed = {0};
    struct latests latests = {0};
    size_t next = 0; /* interval of the part whose begin is not reached yet */
    for (size_t i = 0; i < events->count; i++) {
        const struct op_event event = op_event_of(events, events->sorted[i]);
        for (; next < part->count && part->interval[next].start <= event.start; next++)
            add_open(&latests, part->interval[next].start, &needed);
        if (intervals_hold(part, event.start, event.start))
            intervals_add_merging(&needed, event.start, add_ns(MAX(event.start, event.end), 1));
        if (!op_event_is_async(events, &event)) note_latest(&latests, &event);
    }
    for (; next < part->count; next++) add_open(&latests, part->interval[next].start, &needed);
    intervals_merge(&needed);
    map_free(&latests.of);
    free(latests.latest);
    free(latests.new);
    return needed;
}

struct intervals ops_needed_times(const struct op_events *events, const struct selection *chosen)
{
    struct intervals part = part_times(chosen, events->process), held = held_times(events, &part);
    sweep_widen(events->process, &part);
    struct intervals needed = intervals_union(&part, &held);
    intervals_free(&part);
    intervals_free(&held);
    return needed;
}
