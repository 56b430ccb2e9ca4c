/* range_pieces.c - cuts ranges at their pauses.
 *
 * A second pause without a resume in between changes nothing. A record outside of its range changes nothing either. A
 * resume of a range that is not paused moves it to the other thread.
 */
#include "model/range_pieces.h"

#include <stdlib.h>

static int by_id_and_time(const void *a, const void *b, void *context)
{
    const struct pauses *p = context;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    if (p->id[x] != p->id[y]) return p->id[x] < p->id[y] ? -1 : 1;
    if (p->time[x] != p->time[y]) return (uint64_t)p->time[x] < (uint64_t)p->time[y] ? -1 : 1;
    return (x > y) - (x < y);
}

/* State of cutting one range. */
struct cut {
    struct process *process;
    size_t range; /* the first piece */
    size_t whole;
    bool running;
    int64_t since;
    uint32_t thread;
};

static void add_piece(struct cut *cut, int64_t end)
{
    struct ranges *r = &cut->process->ranges;
    uint32_t *pieces = &cut->process->wholes.pieces[cut->whole];
    size_t from = cut->range, at = from;
    if ((*pieces)++) {
        bool details = r->detail != NULL;
        ranges_reserve(r, 1, details);
        at = r->table.count++;
        r->id[at] = r->id[from];
        r->name[at] = r->name[from];
        r->domain[at] = r->domain[from];
        r->depth[at] = r->depth[from];
        r->step[at] = r->step[from];
        r->cpu[at] = r->cpu[from];
        r->flags[at] = (r->flags[from] & ~RANGE_UNFINISHED) | RANGE_CONTINUED;
        if (details) r->detail[at] = r->detail[from];
    }
    r->start[at] = cut->since;
    r->end[at] = end;
    r->thread[at] = cut->thread;
}

static void begin_cut(struct cut *cut, size_t range)
{
    struct process *p = cut->process;
    struct wholes *w = &p->wholes;
    wholes_reserve(w, 1);
    cut->range = range;
    cut->whole = w->table.count++;
    cut->running = true;
    cut->since = w->start[cut->whole] = p->ranges.start[range];
    w->end[cut->whole] = p->ranges.end[range];
    w->range[cut->whole] = (uint32_t)range;
    w->pieces[cut->whole] = 0;
    cut->thread = p->ranges.thread[range];
}

/* Applies a pause or a resume. Ticks are compared as unsigned. */
static void cut_at(struct cut *cut, size_t pause)
{
    const struct pauses *p = &cut->process->pauses;
    int64_t time = p->time[pause];
    if ((uint64_t)time < (uint64_t)cut->since || (uint64_t)time > (uint64_t)cut->process->wholes.end[cut->whole])
        return;
    if (cut->running) add_piece(cut, time);
    cut->running = p->is_resume[pause];
    cut->since = time;
    cut->thread = p->is_resume[pause] ? p->thread[pause] : cut->thread;
}

static void end_cut(struct cut *cut)
{
    if (cut->running) add_piece(cut, cut->process->wholes.end[cut->whole]);
}

void cut_ranges(struct process *process)
{
    struct pauses *p = &process->pauses;
    struct map range_of = {0};
    struct cut cut = {.process = process};
    size_t *order = mem_zero(p->table.count, sizeof *order);
    for (size_t i = 0; i < p->table.count; i++) order[i] = i;
    for (size_t i = 0; p->table.count && i < process->ranges.table.count; i++)
        map_put(&range_of, process->ranges.id[i], (uint32_t)i);
    qsort_r(order, p->table.count, sizeof *order, by_id_and_time, p);
    for (size_t i = 0; i < p->table.count;) {
        uint64_t id = p->id[order[i]];
        uint32_t range = map_get(&range_of, id);
        if (range != MAP_NONE) begin_cut(&cut, range);
        for (; i < p->table.count && p->id[order[i]] == id; i++)
            if (range != MAP_NONE) cut_at(&cut, order[i]);
        if (range != MAP_NONE) end_cut(&cut);
    }
    map_free(&range_of);
    free(order);
    p->table.count = 0;
}
