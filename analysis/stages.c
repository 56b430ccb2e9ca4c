/* stages.c - sums the stages of processes, by rank and name. */
#include "stages.h"

#include <stdlib.h>

/* ---- the order in which they were opened ---- */

static int opened_before(const void *a, const void *b, void *context)
{
    const struct ranges *r = context;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    if (r->thread[x] != r->thread[y]) {
        return r->thread[x] < r->thread[y] ? -1 : 1;
    }
    if (r->start[x] != r->start[y]) {
        return r->start[x] < r->start[y] ? -1 : 1;
    }
    if (r->end[x] != r->end[y]) {
        return r->end[x] > r->end[y] ? -1 : 1;
    }
    if (r->depth[x] != r->depth[y]) {
        return r->depth[x] < r->depth[y] ? -1 : 1;
    }
    return (r->id[x] > r->id[y]) - (r->id[x] < r->id[y]);
}

size_t *stages_sorted(const struct process *process, size_t *count)
{
    const struct ranges *r = &process->ranges;
    size_t *order = mem_zero(r->table.count, sizeof *order);
    *count = 0;
    for (size_t i = 0; i < r->table.count; i++) {
        if (r->flags[i] & TFI_RANGE_STAGE && !(r->flags[i] & TFI_RANGE_UNTRACKED)) {
            order[(*count)++] = i;
        }
    }
    qsort_r(order, *count, sizeof *order, opened_before, (void *)r);
    return order;
}

/* ---- rows ---- */

static struct map *names_of_rank(struct stage_table *table, int64_t rank)
{
    size_t i = 0;
    while (i < table->ranks && table->rank[i] != rank) {
        i++;
    }
    if (i == table->ranks) {
        table->by_name = mem_resize(table->by_name, table->ranks + 1, sizeof *table->by_name);
        table->rank = mem_resize(table->rank, table->ranks + 1, sizeof *table->rank);
        table->by_name[i] = (struct map){0};
        table->rank[i] = rank;
        table->ranks++;
    }
    return &table->by_name[i];
}

static size_t row_of(struct stage_table *table, struct map *names, int64_t rank, uint32_t name)
{
    uint32_t place = map_get(names, name);
    if (place == MAP_NONE) {
        table->row = mem_grow(table->row, &table->capacity, table->count + 1, sizeof *table->row);
        table->row[table->count] = (struct stage_row){.name = name, .rank = rank};
        place = (uint32_t)table->count++;
        map_put(names, name, place);
    }
    return place;
}

/* ---- one thread's stages ---- */

struct open_stage {
    size_t row;
    int64_t start, end;
    int64_t counted; /* up to where its time is given to children */
};

struct opened {
    struct open_stage *stage;
    size_t count, capacity;
};

/* The stages of a process, while they are counted. */
struct counting {
    struct stage_table *table;
    const struct choice *choice;
    struct opened opened;
    struct map whole_of; /* by the ids of ranges that lie in pieces: places in process->wholes */
    bool *counted;       /* by whole: some piece was */
};

/* What lies in pieces counts from entry to exit, once, and not where it was entered in a stage of its name. */
static int64_t wall_of(const struct counting *c, size_t row, uint32_t whole, bool is_call, int64_t host)
{
    const struct wholes *w = &c->choice->process->wholes;
    if (whole == MAP_NONE) {
        return host;
    }
    for (size_t i = 0; i < c->opened.count; i++) {
        is_call &= c->opened.stage[i].row != row;
    }
    int64_t start = MAX(w->start[whole], c->choice->window.from), end = MIN(w->end[whole], c->choice->window.to);
    return is_call ? end - start : 0;
}

static void count_stage(struct counting *c, size_t range)
{
    struct stage_table *table = c->table;
    const struct process *process = c->choice->process;
    const struct ranges *ranges = &process->ranges;
    struct opened *opened = &c->opened;
    int64_t start = MAX(ranges->start[range], c->choice->window.from);
    int64_t end = MIN(ranges->end[range], c->choice->window.to);
    size_t row = row_of(table, names_of_rank(table, process->rank), process->rank, ranges->name[range]);
    struct stage_row *r = &table->row[row];
    uint32_t whole = map_get(&c->whole_of, ranges->id[range]);
    bool is_call = whole == MAP_NONE || !c->counted[whole];
    if (r->epoch != table->epoch) {
        r->epoch = table->epoch;
        r->covered = INT64_MIN;
    }
    int64_t host = MAX(end - MAX(start, r->covered), 0);
    r->calls += is_call;
    r->self = add_ns(r->self, end - start);
    r->host = add_ns(r->host, host);
    r->covered = MAX(r->covered, end);
    while (opened->count && opened->stage[opened->count - 1].end <= start) {
        opened->count--;
    }
    r->wall = add_ns(r->wall, wall_of(c, row, whole, is_call, host));
    if (whole != MAP_NONE) {
        c->counted[whole] = true;
    }
    if (opened->count) {
        struct open_stage *parent = &opened->stage[opened->count - 1];
        int64_t until = MIN(end, parent->end);
        table->row[parent->row].self -= MAX(until - MAX(start, parent->counted), 0);
        parent->counted = MAX(parent->counted, until);
    }
    opened->stage = mem_grow(opened->stage, &opened->capacity, opened->count + 1, sizeof *opened->stage);
    opened->stage[opened->count++] = (struct open_stage){row, start, end, start};
}

bool has_stages(const struct process *process)
{
    const struct ranges *r = &process->ranges;
    for (size_t i = 0; i < r->table.count; i++) {
        if (r->flags[i] & TFI_RANGE_STAGE && !(r->flags[i] & TFI_RANGE_UNTRACKED)) {
            return true;
        }
    }
    return false;
}

/* A trace of another profiler that marks no stages is one stage from its first event to its last; so is one of ours that
 * has device work. */
static void add_run(struct stage_table *table, struct map *names, const struct choice *choice)
{
    const struct process *p = choice->process;
    struct window window = choice->window;
    bool is_run = is_of_kineto(p) || p->works.table.count;
    if (p->has_time && is_run && p->first < window.to && p->last >= window.from) {
        size_t place = row_of(table, names, p->rank, NAME_RUN); /* which may move the rows */
        struct stage_row *row = &table->row[place];
        int64_t time = MIN(p->last, window.to) - MAX(p->first, window.from);
        row->calls++;
        row->host += time;
        row->wall += time;
        row->self += time;
    }
}

void stages_add(struct stage_table *table, const struct choice *choice)
{
    const struct process *process = choice->process;
    const struct ranges *r = &process->ranges;
    const struct wholes *w = &process->wholes;
    struct counting c = {.table = table, .choice = choice};
    size_t count, *order = stages_sorted(process, &count);
    uint32_t thread = 0;
    c.counted = mem_zero(w->table.count, sizeof *c.counted);
    for (size_t i = 0; i < w->table.count; i++) {
        map_put(&c.whole_of, r->id[w->range[i]], (uint32_t)i);
    }
    if (!count) {
        add_run(table, names_of_rank(table, process->rank), choice);
    }
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
    free(c.counted);
    free(c.opened.stage);
    free(order);
}

/* ---- the device's work ---- */

static void add_busy(struct stage_row *row, const struct process *process, int64_t device, struct interval when)
{
    const struct process *piece = is_of_kineto(process) ? process : NULL;
    size_t i = 0;
    while (i < row->devices && (row->device[i].device != device || row->device[i].piece != piece)) {
        i++;
    }
    if (i == row->devices) {
        row->device = mem_resize(row->device, row->devices + 1, sizeof *row->device);
        row->device[row->devices++] = (struct stage_device){.device = device, .piece = piece};
    }
    intervals_add(&row->device[i].busy, when.start, when.end);
}

static void add_work(struct stage_row *row, const struct process *process, int64_t device, struct interval when)
{
    row->work = add_ns(row->work, when.end - when.start);
    add_busy(row, process, device, when);
}

/* A stage that lies in another of its name has its work counted once. */
static bool is_repeated(const struct attribution *a, uint32_t innermost, uint32_t stage, int64_t time)
{
    const struct ranges *r = &a->process->ranges;
    for (uint32_t s = innermost; s != stage; s = stage_around(a, s, time)) {
        if (r->name[s] == r->name[stage]) {
            return true;
        }
    }
    return false;
}

void stages_add_work(struct stage_table *table, const struct choice *choice, bool exclusive)
{
    const struct process *process = choice->process;
    const struct attribution *a = choice->attribution;
    struct map *names = names_of_rank(table, process->rank);
    uint32_t outside = has_stages(process) ? NAME_OUTSIDE : NAME_RUN;
    for (size_t i = 0; i < process->works.table.count; i++) {
        struct interval when;
        if (!choice_work(choice, i, &when)) {
            continue;
        }
        int64_t device = process->lane[process->works.lane[i]].device;
        const struct belonging *b = &a->work[i];
        if (b->stage == NO_PLACE) {
            size_t place = row_of(table, names, process->rank, outside);
            add_work(&table->row[place], process, device, when);
        }
        for (uint32_t s = b->stage; s != NO_PLACE; s = exclusive ? NO_PLACE : stage_around(a, s, b->time)) {
            if (!is_repeated(a, b->stage, s, b->time)) {
                size_t place = row_of(table, names, process->rank, process->ranges.name[s]);
                add_work(&table->row[place], process, device, when);
            }
        }
    }
}

/* Ranges by their ids: of those in pieces the first one. */
void ranges_by_id(struct map *ranges, const struct process *process)
{
    const struct ranges *r = &process->ranges;
    for (size_t i = 0; i < r->table.count; i++) {
        if (!(r->flags[i] & RANGE_CONTINUED)) {
            map_put(ranges, r->id[i], (uint32_t)i);
        }
    }
}

void stages_add_memory(struct stage_table *table, const struct choice *choice)
{
    const struct process *process = choice->process;
    struct map *names = names_of_rank(table, process->rank), ranges = {0};
    if (process->stage_memories) {
        ranges_by_id(&ranges, process);
    }
    for (size_t i = 0; i < process->stage_memories; i++) {
        const struct stage_memory *m = &process->stage_memory[i];
        uint32_t range = map_get(&ranges, m->range);
        if (range == MAP_NONE || !(process->ranges.flags[range] & TFI_RANGE_STAGE) || !choice_stage(choice, range)) {
            continue;
        }
        struct stage_row *row = &table->row[row_of(table, names, process->rank, process->ranges.name[range])];
        bool is_host = m->device < 0;
        if (row->has_peaks && is_host && !row->peaks_of_host) {
            continue;
        }
        if (row->has_peaks && !is_host && row->peaks_of_host) {
            row->peak_allocated = row->peak_reserved = 0;
        }
        row->has_peaks = true;
        row->peaks_of_host = is_host;
        row->peak_allocated = MAX(row->peak_allocated, m->allocated_peak);
        row->peak_reserved = MAX(row->peak_reserved, m->reserved_peak);
    }
    map_free(&ranges);
}

void stages_add_events(struct stage_table *table, const struct choice *choice)
{
    const struct process *process = choice->process;
    const struct event_times *t = &process->event_times;
    struct map *names = names_of_rank(table, process->rank);
    struct map ranges = {0};
    ranges_by_id(&ranges, process);
    for (size_t i = 0; i < t->table.count; i++) {
        uint32_t range = map_get(&ranges, t->range[i]);
        struct interval when = {MAX(t->start[i], choice->window.from), MIN(t->end[i], choice->window.to)};
        if (range != MAP_NONE && choice->lane[t->lane[i]] && choice_stage(choice, range) && when.start < when.end) {
            size_t place = row_of(table, names, process->rank, process->ranges.name[range]);
            table->row[place].by_events = true;
            add_busy(&table->row[place], process, process->lane[t->lane[i]].device, when);
        }
    }
    map_free(&ranges);
}

void stage_busy(struct stage_row *row, int64_t *busy, int64_t *idle)
{
    *busy = *idle = 0;
    for (size_t i = 0; i < row->devices; i++) {
        struct intervals *set = &row->device[i].busy;
        intervals_merge(set);
        int64_t total = intervals_total(set);
        *busy = add_ns(*busy, total);
        if (set->count) {
            *idle = add_ns(*idle, set->interval[set->count - 1].end - set->interval[0].start - total);
        }
    }
}

void stages_free(struct stage_table *table)
{
    for (size_t i = 0; i < table->ranks; i++) {
        map_free(&table->by_name[i]);
    }
    for (size_t i = 0; i < table->count; i++) {
        for (size_t k = 0; k < table->row[i].devices; k++) {
            intervals_free(&table->row[i].device[k].busy);
        }
        free(table->row[i].device);
    }
    free(table->by_name);
    free(table->rank);
    free(table->row);
    *table = (struct stage_table){0};
}
