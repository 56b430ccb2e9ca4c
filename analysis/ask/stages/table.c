/* table.c - sums up the stages of processes by rank and name. */
#include "ask/stages/table.h"

#include <stdlib.h>

#include "ask/stages/deep.h"
#include "ask/stages/done.h"
#include "ask/stages/sets.h"
#include "base/hash.h"
#include "model/elsewhere.h"

/* ---- rows ---- */

struct stage_row *stages_row(struct stage_table *table, int64_t rank, uint32_t name)
{
    enum { KEY = offsetof(struct stage_row, name) + sizeof name };
    const struct {
        int64_t rank;
        uint32_t name;
    } key = {rank, name};
    struct stage_row *row = keyed_row(&table->keyed, &key, KEY, sizeof *row);
    row->place = (size_t)(row - table->row);
    return row;
}

/* ---- one thread's stages ---- */

struct open_stage {
    size_t row;
    size_t call; /* index in the row's `each` */
    int64_t start, end;
    int64_t counted; /* its time up to here is already given to children */
};

struct opened {
    struct open_stage *stage;
    size_t count, capacity;
};

/* State while the stages of a process are counted. */
struct counting {
    struct stage_table *table;
    const struct choice *choice;
    struct opened opened;
    struct map whole_of; /* index into process->wholes, by id of a range in pieces */
    size_t *call_of;     /* by whole: its index + 1 in the row's `each`; 0: no piece counted yet */
    const int64_t *done; /* by range: when its work was done; NULL: no call launched work */
    bool exclusive;
};

static int64_t cut_to(const struct choice *choice, int64_t start, int64_t end)
{
    return MIN(end, choice->window.to) - MAX(start, choice->window.from);
}

/* A range in pieces counts once, from entry to exit; it counts 0 if it was entered in a stage of its own name. */
static int64_t wall_of(const struct counting *c, const struct stage_row *row, uint32_t whole, bool is_call,
                       int64_t host)
{
    const struct wholes *w = &c->choice->process->wholes;
    if (whole == MAP_NONE) return host;
    return is_call && !row->open ? cut_to(c->choice, w->start[whole], w->end[whole]) : 0;
}

/* Adds the time until a call's work was done. A range in pieces counts once, like its wall time. */
static void add_done(const struct counting *c, struct stage_row *row, size_t range, uint32_t whole, bool is_call)
{
    const struct process *p = c->choice->process;
    bool in_pieces = whole != MAP_NONE;
    int64_t start = MAX(in_pieces ? p->wholes.start[whole] : p->ranges.start[range], c->choice->window.from);
    int64_t done = c->done ? c->done[range] : in_pieces ? p->wholes.end[whole] : p->ranges.end[range];
    row->done_unknown |= done == DONE_UNKNOWN;
    if (done == DONE_UNKNOWN || (in_pieces && (!is_call || row->open))) return;
    done = MIN(done, c->choice->window.to);
    row->done = add_ns(row->done, MAX(done - (in_pieces ? start : MAX(start, row->done_covered)), 0));
    row->done_covered = MAX(row->done_covered, done);
}

/* Returns the index of this call's duration. A later piece of a call adds to the duration of its first piece. In a
 * damaged trace the first piece may have another name and so be in another row. */
static size_t call_of(const struct counting *c, struct stage_row *row, uint32_t whole, int64_t time)
{
    if (whole == MAP_NONE || !c->call_of[whole] || c->call_of[whole] > row->each.count) {
        const struct wholes *w = &c->choice->process->wholes;
        bool by_whole = whole != MAP_NONE && !c->exclusive;
        values_add(&row->each, by_whole ? cut_to(c->choice, w->start[whole], w->end[whole]) : time);
        return row->each.count - 1;
    }
    size_t call = c->call_of[whole] - 1;
    row->each.value[call] = add_ns(row->each.value[call], c->exclusive ? time : 0);
    return call;
}

/* Subtracts a stage's time from the stage around it. */
static void take_from_parent(struct counting *c, int64_t start, int64_t end)
{
    struct open_stage *parent = &c->opened.stage[c->opened.count - 1];
    struct stage_row *row = &c->table->row[parent->row];
    int64_t until = MIN(end, parent->end), time = MAX(until - MAX(start, parent->counted), 0);
    row->self = add_ns(row->self, -time);
    int64_t *one = &row->each.value[parent->call];
    *one = add_ns(*one, c->exclusive ? -time : 0);
    parent->counted = MAX(parent->counted, until);
}

static void count_stage(struct counting *c, size_t range)
{
    struct stage_table *table = c->table;
    const struct process *process = c->choice->process;
    const struct ranges *ranges = &process->ranges;
    struct opened *opened = &c->opened;
    int64_t start = MAX(ranges->start[range], c->choice->window.from);
    int64_t end = MIN(ranges->end[range], c->choice->window.to);
    struct stage_row *r = stages_row(table, process->rank, ranges->name[range]);
    uint32_t whole = map_get(&c->whole_of, ranges->id[range]);
    bool is_call = whole == MAP_NONE || !c->call_of[whole];
    if (r->epoch != table->epoch) {
        r->epoch = table->epoch;
        r->covered = r->done_covered = INT64_MIN;
        r->open = 0;
    }
    int64_t host = MAX(end - MAX(start, r->covered), 0);
    if (r->elsewhere == NAME_NONE) r->elsewhere = elsewhere_between(process, start, end);
    r->calls += is_call;
    r->self = add_ns(r->self, end - start);
    r->host = add_ns(r->host, host);
    r->covered = MAX(r->covered, end);
    size_t call = call_of(c, r, whole, end - start);
    while (opened->count && opened->stage[opened->count - 1].end <= start)
        table->row[opened->stage[--opened->count].row].open--;
    r->wall = add_ns(r->wall, wall_of(c, r, whole, is_call, host));
    add_done(c, r, range, whole, is_call);
    if (whole != MAP_NONE) c->call_of[whole] = call + 1;
    if (opened->count) take_from_parent(c, start, end);
    opened->stage = mem_grow(opened->stage, &opened->capacity, opened->count + 1, sizeof *opened->stage);
    opened->stage[opened->count++] = (struct open_stage){r->place, call, start, end, start};
    r->open++;
}

/* Adds a process without stages as one stage, from its first record to its last. */
static void add_run(struct stage_table *table, const struct choice *choice)
{
    const struct process *p = choice->process;
    struct window window = choice->window;
    if (p->has_time && p->first < window.to && p->last >= window.from) {
        struct stage_row *row = stages_row(table, p->rank, NAME_RUN);
        int64_t time = cut_to(choice, p->first, p->last);
        row->elsewhere = elsewhere_between(p, p->first, p->last);
        row->calls++;
        values_add(&row->each, time);
        row->host = add_ns(row->host, time);
        row->wall = add_ns(row->wall, time);
        row->done = add_ns(row->done, time);
        row->self = add_ns(row->self, time);
    }
}

void stages_add(struct stage_table *table, const struct choice *choice, const int64_t *done, bool exclusive, bool alone)
{
    const struct process *process = choice->process;
    const struct ranges *r = &process->ranges;
    const struct wholes *w = &process->wholes;
    struct counting c = {.table = table, .choice = choice, .exclusive = exclusive, .done = done};
    size_t count, *order = stages_sorted(process, &count);
    uint32_t thread = 0;
    c.call_of = mem_zero(w->table.count, sizeof *c.call_of);
    wholes_by_id(&c.whole_of, process);
    if (!count && is_one_stage(process, alone) && choice_has_steps(choice)) add_run(table, choice);
    for (size_t i = 0; i < count; i++) {
        size_t at = order[i];
        if (i == 0 || r->thread[at] != thread) {
            thread = r->thread[at];
            c.opened.count = 0;
            table->epoch++;
        }
        if (choice_stage(choice, at)) {
            table->unfinished += (r->flags[at] & RANGE_UNFINISHED) != 0;
            count_stage(&c, at);
        }
    }
    map_free(&c.whole_of);
    free(c.call_of);
    free(c.opened.stage);
    free(order);
}

/* ---- device work ---- */

enum { FEW_DEVICES = 16 };

static struct stage_device *device_of(struct stage_row *row, int64_t device, const struct process *piece)
{
    uint64_t key = hash_numbers((uint64_t)device, (uintptr_t)piece);
    uint32_t found = map_get(&row->device_of, key);
    for (size_t i = 0; i < MIN(row->devices, FEW_DEVICES); i++)
        if (row->device[i].device == device && row->device[i].piece == piece) return &row->device[i];
    if (found == MAP_NONE) {
        found = (uint32_t)row->devices++;
        row->device = mem_grow(row->device, &row->device_capacity, row->devices, sizeof *row->device);
        row->device[found] = (struct stage_device){.device = device, .piece = piece};
        if (found >= FEW_DEVICES) map_put(&row->device_of, key, found);
    }
    return &row->device[found];
}

static void add_busy(struct stage_row *row, const struct process *process, int64_t device, struct interval when)
{
    intervals_add(&device_of(row, device, is_of_kineto(process) ? process : NULL)->busy, when.start, when.end);
}

static void add_work(struct stage_row *row, const struct process *process, int64_t device, struct interval when)
{
    row->work = add_ns(row->work, when.end - when.start);
    add_busy(row, process, device, when);
}

/* Adds work to its stage and all stages around it. It counts once for nested stages of one name. */
static void add_to_stages(struct stage_table *table, const struct choice *choice, size_t work,
                          const struct interval *when, bool exclusive)
{
    const struct process *process = choice->process;
    const struct attribution *a = choice->attribution;
    const struct belonging *b = &a->work[work];
    int64_t device = process->lane[process->works.lane[work]].device;
    uint64_t number = ++table->epoch;
    for (uint32_t s = b->stage; s != NO_PLACE; s = exclusive ? NO_PLACE : stages_around(&a->paths, s, b->time)) {
        struct stage_row *row = stages_row(table, process->rank, process->ranges.name[s]);
        if (row->seen != number) {
            row->seen = number;
            add_work(row, process, device, *when);
        }
    }
}

void stages_add_work(struct stage_table *table, const struct choice *choice, bool exclusive, bool alone)
{
    const struct process *process = choice->process;
    const struct attribution *a = choice->attribution;
    size_t works = process->works.table.count;
    uint32_t outside = has_stages(process) ? NAME_OUTSIDE : NAME_RUN;
    bool *chosen = mem_zero(works, sizeof *chosen);
    struct interval *when = mem_zero(works, sizeof *when);
    for (size_t i = 0; i < works; i++) chosen[i] = choice_work(choice, i, &when[i]);
    bool deep = !exclusive && alone && stages_are_deep(a, chosen);
    for (size_t i = 0; i < works; i++) {
        if (chosen[i] && a->work[i].stage == NO_PLACE) {
            int64_t device = process->lane[process->works.lane[i]].device;
            add_work(stages_row(table, process->rank, outside), process, device, when[i]);
        } else if (chosen[i] && !deep) {
            add_to_stages(table, choice, i, &when[i], exclusive);
        }
    }
    if (deep) stages_add_deep(table, choice, chosen, when);
    free(chosen);
    free(when);
}

void stages_add_memory(struct stage_table *table, const struct choice *choice)
{
    const struct process *process = choice->process;
    struct map ranges = {0};
    if (process->stage_memories) ranges_by_id(&ranges, process);
    for (size_t i = 0; i < process->stage_memories; i++) {
        const struct stage_memory *m = &process->stage_memory[i];
        uint32_t range = map_get(&ranges, m->range);
        if (range == MAP_NONE || !(process->ranges.flags[range] & TFI_RANGE_STAGE) || !choice_stage(choice, range))
            continue;
        struct stage_row *row = stages_row(table, process->rank, process->ranges.name[range]);
        bool is_host = m->device < 0;
        if (row->has_peaks && is_host && !row->peaks_of_host) continue;
        if (row->has_peaks && !is_host && row->peaks_of_host) row->peak_allocated = row->peak_reserved = 0;
        row->has_peaks = true;
        row->peaks_of_host = is_host;
        row->peak_allocated = MAX(row->peak_allocated, m->allocated_peak);
        row->peak_reserved = MAX(row->peak_reserved, m->reserved_peak);
    }
    map_free(&ranges);
}

/* Adds a sum of work to the stage in which it was launched and to all stages around it. */
static void add_sum(struct stage_table *table, const struct choice *choice, size_t at, uint32_t range, bool exclusive)
{
    const struct process *p = choice->process;
    const struct stage_times *t = &p->stage_times;
    const struct window *window = &choice->window;
    bool cut = t->start[at] < window->from || t->end[at] > window->to || choice->by_step || choice->by_cycle;
    bool outside = range == MAP_NONE;
    uint64_t number = ++table->epoch;
    uint32_t s = outside ? NO_PLACE : range;
    while (outside || s != NO_PLACE) {
        uint32_t name = outside ? has_stages(p) ? NAME_OUTSIDE : NAME_RUN : p->ranges.name[s];
        struct stage_row *row = stages_row(table, p->rank, name);
        if (row->seen != number) {
            row->seen = number;
            row->by_sums = true;
            row->work_unknown |= cut;
            row->work = add_ns(row->work, t->busy[at]);
        }
        if (outside || exclusive) return;
        s = stages_around(&choice->attribution->paths, s, p->ranges.start[s]);
    }
}

void stages_add_times(struct stage_table *table, const struct choice *choice, bool exclusive)
{
    const struct process *process = choice->process;
    const struct stage_times *t = &process->stage_times;
    struct map ranges = {0};
    ranges_by_id(&ranges, process);
    for (size_t i = 0; i < t->table.count; i++) {
        uint32_t range = map_get(&ranges, t->range[i]);
        struct interval when = {MAX(t->start[i], choice->window.from), MIN(t->end[i], choice->window.to)};
        if (!choice->lane[t->lane[i]] || when.start > when.end) continue;
        if (t->busy[i] >= 0) {
            add_sum(table, choice, i, range, exclusive);
        } else if (range != MAP_NONE && !process->works.table.count && choice_stage(choice, range) &&
                   when.start < when.end) {
            struct stage_row *row = stages_row(table, process->rank, process->ranges.name[range]);
            row->by_events = true;
            add_busy(row, process, process->lane[t->lane[i]].device, when);
        }
    }
    map_free(&ranges);
}

void stage_busy(struct stage_row *row, int64_t *busy, int64_t *idle)
{
    *busy = row->deep_busy;
    *idle = row->deep_idle;
    for (size_t i = 0; i < row->devices; i++) {
        struct intervals *set = &row->device[i].busy;
        intervals_merge(set);
        int64_t total = intervals_total(set);
        *busy = add_ns(*busy, total);
        if (set->count) *idle = add_ns(*idle, set->interval[set->count - 1].end - set->interval[0].start - total);
    }
}

void stages_free(struct stage_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        for (size_t k = 0; k < table->row[i].devices; k++) intervals_free(&table->row[i].device[k].busy);
        free(table->row[i].device);
        map_free(&table->row[i].device_of);
        values_free(&table->row[i].each);
    }
    keyed_free(&table->keyed);
    *table = (struct stage_table){0};
}
