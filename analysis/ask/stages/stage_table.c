/* stage_table.c - sums up the stages of processes by group and name. */
#include "ask/stages/stage_table.h"

#include <stdlib.h>

#include "ask/ops/addition.h"
#include "ask/stages/done_times.h"
#include "ask/stages/open_stages.h"
#include "ask/stages/stages_with_records.h"
#include "base/hash.h"
#include "model/other_profilers.h"

/* A process whose stages are counted. */
struct counting {
    struct stage_table *table;
    const struct choice *choice;
    const struct process *process;
    int64_t group;
    const size_t *order; /* stages_sorted */
    size_t count;
    size_t *own;                     /* `order`, if there is no attribution that has it */
    uint32_t *name;                  /* by range: the row it counts in, or NO_PLACE */
    uint8_t *deep;                   /* by range: enum stage_sums; NULL: all count */
    const struct stage_paths *paths; /* over the counting stages */
    uint32_t outside, run;           /* rows of work in no stage, and of a process without stages; NO_PLACE: none */
    const int64_t *done;             /* by range: when its work was done; NULL: no call launched work */
    struct opened {
        struct open_stage *stage;
        size_t count, capacity;
    } opened;            /* one thread's stages */
    struct map whole_of; /* index into process->wholes, by id of a range in pieces */
    size_t *call_of;     /* by whole: its index + 1 in the row's `each`; 0: no piece counted yet */
};

/* ---- rows ---- */

static struct stage_row *row_of(const struct counting *c, uint32_t name)
{
    enum { KEY = offsetof(struct stage_row, name) + sizeof name };
    const struct {
        int64_t group;
        uint32_t name;
    } key = {c->group, name};
    struct stage_row *row = keyed_row(&c->table->keyed, &key, KEY, sizeof *row);
    row->place = (size_t)(row - c->table->row);
    return row;
}

static uint32_t name_of(const struct stage_table *table, const struct selection *chosen, uint32_t name)
{
    if (table->one) return table->one[name] == NAME_NONE ? NO_PLACE : table->one[name];
    return selection_wants(chosen, name) ? name : NO_PLACE;
}

/* Nobody knows whether such a stage was open in the window, unless it began later. */
static void count_lost_ends(const struct counting *c, const struct scope *scope)
{
    const struct lost_ends *lost = &c->process->lost_ends;
    for (size_t i = 0; i < lost->count; i++)
        c->table->unfinished += lost->stage[i].start < c->choice->window.to &&
                                name_of(c->table, scope->chosen, lost->stage[i].name) != NO_PLACE;
}

static void begin_counting(struct counting *c, const struct scope *scope)
{
    const struct process *p = c->process;
    const struct attribution *a = c->choice->attribution;
    c->order = a ? a->order : (c->own = stages_sorted(p, &c->count));
    c->count = a ? a->stages : c->count;
    c->name = no_places(p->ranges.table.count);
    for (size_t i = 0; i < c->count; i++)
        c->name[c->order[i]] = name_of(c->table, scope->chosen, p->ranges.name[c->order[i]]);
    c->run = name_of(c->table, scope->chosen, NAME_RUN);
    c->outside = c->count ? name_of(c->table, scope->chosen, NAME_OUTSIDE) : c->run;
    if (!c->table->exclusive) c->deep = stages_deep(&p->ranges, c->order, c->count, c->name);
    wholes_by_id(&c->whole_of, p);
    c->call_of = mem_zero(p->wholes.table.count, sizeof *c->call_of);
    count_lost_ends(c, scope);
}

static void end(struct counting *c)
{
    map_free(&c->whole_of);
    free(c->call_of);
    free(c->opened.stage);
    free(c->deep);
    free(c->name);
    free(c->own);
}

/* ---- one thread's stages ---- */

#define NO_ROW SIZE_MAX

struct open_stage {
    size_t row;  /* NO_ROW: its name has none */
    size_t call; /* index in the row's `each` */
    int64_t start, end;
    int64_t counted; /* its time up to here is already given to children */
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

/* A call is told if it ended late enough. `done`: when its work was done. */
static void tell(const struct counting *c, struct stage_row *row, uint64_t range, int64_t start, int64_t end,
                 int64_t done)
{
    const struct window *window = &c->choice->window;
    if (end < c->table->since) return;
    end = MIN(end, window->to);
    int64_t time = MIN(done, window->to) - MAX(start, window->from);
    if (!row->last.process || end >= row->last.end) row->last = (struct stage_last){c->process, range, end, time};
    row->told++;
    row->told_time = add_ns(row->told_time, time);
}

/* Adds the time until a call's work was done. A range in pieces counts once, like its wall time. */
static void add_done(const struct counting *c, struct stage_row *row, size_t range, uint32_t whole, bool is_call)
{
    const struct process *p = c->process;
    bool in_pieces = whole != MAP_NONE, waits = p->ranges.flags[range] & TFI_RANGE_WAITS;
    struct interval call = call_time(p, range, whole);
    int64_t start = call.start, done = done_or(c->done, range, call.end);
    if (is_call) tell(c, row, p->ranges.id[range], start, call.end, waits ? call.end : done);
    row->done_unknown |= c->done && c->done[range] == DONE_UNKNOWN;
    if (in_pieces && (!is_call || row->open)) return;
    start = MAX(start, c->choice->window.from);
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
        bool by_whole = whole != MAP_NONE && !c->table->exclusive;
        values_add(&row->each, by_whole ? cut_to(c->choice, w->start[whole], w->end[whole]) : time);
        return row->each.count - 1;
    }
    size_t call = c->call_of[whole] - 1;
    row->each.value[call] = add_ns(row->each.value[call], c->table->exclusive ? time : 0);
    return call;
}

/* Subtracts a stage's time from the stage around it. */
static void take_from_parent(struct counting *c, int64_t start, int64_t end)
{
    struct open_stage *parent = &c->opened.stage[c->opened.count - 1];
    int64_t until = MIN(end, parent->end), time = MAX(until - MAX(start, parent->counted), 0);
    parent->counted = MAX(parent->counted, until);
    if (parent->row == NO_ROW) return;
    struct stage_row *row = &c->table->row[parent->row];
    row->self = add_ns(row->self, -time);
    int64_t *one = &row->each.value[parent->call];
    *one = add_ns(*one, c->table->exclusive ? -time : 0);
}

/* Adds the processor time of a call, unless it was entered in a stage of its own name. What is not whole is unknown. */
static void add_cpu(const struct counting *c, struct stage_row *row, size_t range, uint32_t whole)
{
    const struct process *p = c->process;
    struct interval call = call_time(p, range, whole);
    int64_t cpu = p->ranges.cpu[range];
    if (row->open) return;
    row->cpu_unknown |= cpu < 0 || call.start < c->choice->window.from || call.end > c->choice->window.to;
    row->cpu = add_ns(row->cpu, MAX(cpu, 0));
}

/* Returns the name of the innermost chosen stage that is open, apart from those of that name. Only the MOST_OPEN innermost
 * ones are looked at. */
static uint32_t parent_of(const struct counting *c, uint32_t name)
{
    for (size_t i = c->opened.count; i-- > 0 && i + MOST_OPEN >= c->opened.count;) {
        size_t row = c->opened.stage[i].row;
        if (row != NO_ROW && c->table->row[row].name != name) return c->table->row[row].name;
    }
    return NAME_NONE;
}

/* Adds a stage to its row. Returns the index of the call's duration. */
static size_t count_call(struct counting *c, struct stage_row *r, size_t range, int64_t start, int64_t end)
{
    uint32_t whole = map_get(&c->whole_of, c->process->ranges.id[range]);
    bool is_call = whole == MAP_NONE || !c->call_of[whole];
    if (r->epoch != c->table->epoch) {
        r->epoch = c->table->epoch;
        r->covered = r->done_covered = INT64_MIN;
        r->open = 0;
    }
    int64_t host = MAX(end - MAX(start, r->covered), 0);
    if (r->elsewhere == NAME_NONE) r->elsewhere = elsewhere_between(c->process, start, end);
    r->first = r->calls ? MIN(r->first, start) : start;
    r->calls += is_call;
    r->self = add_ns(r->self, end - start);
    r->host = add_ns(r->host, host);
    r->covered = MAX(r->covered, end);
    size_t call = call_of(c, r, whole, end - start);
    r->wall = add_ns(r->wall, wall_of(c, r, whole, is_call, host));
    add_done(c, r, range, whole, is_call);
    if (is_call) add_cpu(c, r, range, whole);
    if (whole != MAP_NONE) c->call_of[whole] = call + 1;
    if (c->deep && c->deep[range] == STAGE_DEEP) {
        r->work_unknown = true;
        c->table->deep++;
    }
    r->open++;
    return call;
}

static void count_stage(struct counting *c, size_t range)
{
    struct stage_table *table = c->table;
    const struct ranges *ranges = &c->process->ranges;
    struct opened *opened = &c->opened;
    int64_t start = MAX(ranges->start[range], c->choice->window.from);
    int64_t end = MIN(ranges->end[range], c->choice->window.to);
    struct open_stage stage = {NO_ROW, 0, start, end, start};
    for (; opened->count && opened->stage[opened->count - 1].end <= start; opened->count--)
        if (opened->stage[opened->count - 1].row != NO_ROW) table->row[opened->stage[opened->count - 1].row].open--;
    if (c->name[range] != NO_PLACE) {
        struct stage_row *row = row_of(c, c->name[range]);
        if (!row->calls) row->parent = parent_of(c, row->name);
        stage.row = row->place;
        stage.call = count_call(c, row, range, start, end);
    }
    if (opened->count) take_from_parent(c, start, end);
    opened->stage = mem_grow(opened->stage, &opened->capacity, opened->count + 1, sizeof *opened->stage);
    opened->stage[opened->count++] = stage;
}

/* Adds a process without stages as one stage, from its first record to its last. */
static void add_run(const struct counting *c)
{
    const struct process *p = c->process;
    struct window window = c->choice->window;
    if (p->has_time && p->first < window.to && p->last >= window.from) {
        struct stage_row *row = row_of(c, c->run);
        int64_t time = cut_to(c->choice, p->first, p->last), first = MAX(p->first, window.from);
        row->elsewhere = elsewhere_between(p, p->first, p->last);
        row->first = row->calls ? MIN(row->first, first) : first;
        row->calls++;
        values_add(&row->each, time);
        row->host = add_ns(row->host, time);
        row->wall = add_ns(row->wall, time);
        row->done = add_ns(row->done, time);
        row->cpu_unknown = true;
        row->self = add_ns(row->self, time);
        tell(c, row, 0, p->first, p->last, p->last);
    }
}

static void add_times(struct counting *c, bool alone)
{
    const struct ranges *r = &c->process->ranges;
    if (!c->count && c->run != NO_PLACE && is_one_stage(c->process, alone) && choice_has_steps(c->choice)) add_run(c);
    for (size_t i = 0; i < c->count; i++) {
        size_t at = c->order[i];
        if (i == 0 || r->thread[at] != r->thread[c->order[i - 1]]) {
            c->opened.count = 0;
            c->table->epoch++;
        }
        if (choice_stage(c->choice, at)) {
            c->table->unfinished += c->name[at] != NO_PLACE && r->flags[at] & RANGE_UNFINISHED;
            count_stage(c, at);
        }
    }
}

void stages_add_times(struct stage_table *table, const struct scope *scope, int64_t group, bool alone)
{
    struct counting c = {.table = table, .choice = &scope->choice, .process = scope->process, .group = group};
    begin_counting(&c, scope);
    add_times(&c, alone);
    end(&c);
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

/* Returns links over the counting stages. */
static struct stage_paths counting_paths(const struct counting *c)
{
    const struct attribution *a = c->choice->attribution;
    struct stage_paths paths;
    bool *left_out = mem_zero(c->process->ranges.table.count, sizeof *left_out);
    for (size_t i = 0; i < c->count; i++) left_out[c->order[i]] = c->deep[c->order[i]] != STAGE_COUNTS;
    stage_paths_init(&paths, c->process, c->order, c->count, a->paths.outer, left_out);
    return paths;
}

/* A piece of device work, or a sum of several. */
struct work {
    uint64_t number;
    int64_t device;
    struct interval when;
    bool is_sum, is_cut; /* is_cut: a filter would cut the sum */
    bool is_kernel;
    uint32_t kernel; /* its displayed name */
    double host;     /* ns of its launch; negative: unknown */
};

static void add_kernel(struct stage_row *row, const struct work *work)
{
    struct stage_kernel *kernel = keyed_row(&row->kernels.keyed, &work->kernel, sizeof work->kernel, sizeof *kernel);
    int64_t time = work->when.end - work->when.start;
    kernel->calls++;
    kernel->device = add_ns(kernel->device, time);
    kernel->launched += work->host >= 0;
    kernel->host += MAX(work->host, 0);
    row->kernel_time = add_ns(row->kernel_time, time);
    row->launches++;
}

/* Work counts once for nested stages of one name. */
static void add_work(const struct counting *c, struct stage_row *row, const struct work *work)
{
    const struct stage_table *table = c->table;
    if (row->seen == work->number) return;
    row->seen = work->number;
    row->work = add_ns(row->work, work->when.end - work->when.start);
    row->by_sums |= work->is_sum;
    row->work_unknown |= work->is_cut;
    if (!work->is_sum && (!table->kernels || row == &table->all)) add_busy(row, c->process, work->device, work->when);
    if (table->kernels && work->is_kernel) add_kernel(row, work);
}

typedef void add_to_row(const struct counting *c, struct stage_row *row, const struct work *work);

/* Adds something to its stage and all stages around it. */
static void add_around(const struct counting *c, const struct belonging *at, const struct work *work, add_to_row *to)
{
    for (uint32_t s = stage_or_around(c->paths, at->stage, at->time); s != NO_PLACE;
         s = c->table->exclusive ? NO_PLACE : stages_around(c->paths, s, at->time))
        if (c->name[s] != NO_PLACE) to(c, row_of(c, c->name[s]), work);
}

static void add_to_stages(const struct counting *c, const struct belonging *at, const struct work *work)
{
    if (c->table->kernels && choice_in_stage(c->choice, at)) add_work(c, &c->table->all, work);
    if (at->stage == NO_PLACE && c->outside != NO_PLACE) add_work(c, row_of(c, c->outside), work);
    add_around(c, at, work, add_work);
}

/* Returns the number of works that each call launched. */
static uint32_t *works_by_call(const struct attribution *a)
{
    const struct process *p = a->process;
    uint32_t *works = mem_zero(p->spans.table.count, sizeof *works);
    for (size_t i = 0; i < p->works.table.count; i++)
        if (IS_WORK(p->works.event_class[i]) && a->launch[i] != NO_PLACE) works[a->launch[i]]++;
    return works;
}

static void add_works(const struct counting *c)
{
    const struct process *p = c->process;
    const struct works *w = &p->works;
    const struct attribution *a = c->choice->attribution;
    const struct short_names *kernels = c->table->kernels;
    uint32_t *works = kernels ? works_by_call(a) : NULL;
    struct work work = {.host = -1};
    for (size_t i = 0; i < w->table.count; i++) {
        if (!choice_stage_work(c->choice, i, &work.when)) continue;
        work.number = ++c->table->epoch;
        work.device = p->lane[w->lane[i]].device;
        work.is_kernel = w->event_class[i] == CLASS_KERNEL;
        if (kernels) {
            uint32_t call = a->launch[i];
            work.kernel = short_names_get(kernels, w->name[i]);
            work.host = call == NO_PLACE ? -1 : (double)(p->spans.end[call] - p->spans.start[call]) / works[call];
        }
        add_to_stages(c, &a->work[i], &work);
    }
    free(works);
}

/* Adds the device times of stages that come without records of the work: sums, or times by CUDA events. */
static void add_sums(const struct counting *c, const struct map *ranges)
{
    const struct process *p = c->process;
    const struct stage_times *t = &p->stage_times;
    const struct window *window = &c->choice->window;
    for (size_t i = 0; i < t->table.count; i++) {
        uint32_t range = map_get(ranges, t->range[i]);
        struct interval when = {MAX(t->start[i], window->from), MIN(t->end[i], window->to)};
        if (!c->choice->lane[t->lane[i]] || when.start > when.end) continue;
        if (t->busy[i] >= 0) {
            bool outside = range == MAP_NONE || !is_stage(&p->ranges, range),
                 cut = t->start[i] < window->from || t->end[i] > window->to;
            struct belonging at = {outside ? t->start[i] : p->ranges.start[range], outside ? NO_PLACE : range,
                                   VIA_NONE};
            struct work work = {.number = ++c->table->epoch,
                                .when = {0, t->busy[i]},
                                .is_sum = true,
                                .is_cut = cut || c->choice->by_step || c->choice->by_cycle};
            add_to_stages(c, &at, &work);
        } else if (range != MAP_NONE && !p->works.table.count && choice_stage(c->choice, range) &&
                   when.start < when.end && c->name[range] != NO_PLACE) {
            struct stage_row *row = row_of(c, c->name[range]);
            row->by_events = true;
            add_busy(row, p, p->lane[t->lane[i]].device, when);
        }
    }
}

/* ---- operators ---- */

static void add_own_time(const struct counting *c, struct stage_row *row, const struct work *work)
{
    (void)c;
    if (row->seen != work->number) add_kernel(row, work);
    row->seen = work->number;
}

/* An operator outside all stages counts where there are no stages. */
static void add_operator(void *counting, const struct addition *operator, const struct belonging * at)
{
    const struct counting *c = counting;
    struct work work = {
        .number = ++c->table->epoch,
        .when = {0, operator->own.time }, .kernel = operator->name, .host = (double)operator->own.time };
    if (!operator->all.time) return;
    if (at->stage != NO_PLACE) add_around(c, at, &work, add_own_time);
    else if (!c->count && c->run != NO_PLACE) add_own_time(c, row_of(c, c->run), &work);
}

static void add_operators(struct counting *c, struct scope *scope)
{
    const struct names *names = &scope->chosen->model->names;
    struct op_rows *rows = c->table->operators;
    struct selected_stages selected;
    rows->each = add_operator;
    rows->to = c;
    op_rows_add(rows, scope);
    selected_stages_init(&selected, c->choice, names);
    for (size_t i = 0; i < c->count; i++)
        if (c->name[c->order[i]] != NO_PLACE && !is_recorded_whole(&selected, c->order[i]))
            row_of(c, c->name[c->order[i]])->work_unknown = true;
    selected_stages_free(&selected);
}

/* ---- memory ---- */

/* The peaks are those of the device with the most, or of the host if no device's are known. */
static void add_peaks(struct stage_row *row, const struct stage_memory *m)
{
    bool is_host = m->device < 0;
    if (row->has_peaks && is_host && !row->peaks_of_host) return;
    if (row->has_peaks && !is_host && row->peaks_of_host) row->peak_allocated = row->peak_reserved = 0;
    row->has_peaks = true;
    row->peaks_of_host = is_host;
    row->peak_allocated = MAX(row->peak_allocated, m->allocated_peak);
    row->peak_reserved = MAX(row->peak_reserved, m->reserved_peak);
}

static void add_memory(const struct counting *c, const struct map *ranges)
{
    const struct process *p = c->process;
    for (size_t i = 0; i < p->stage_memories; i++) {
        uint32_t range = map_get(ranges, p->stage_memory[i].range);
        if (range != MAP_NONE && c->name[range] != NO_PLACE && choice_stage(c->choice, range))
            add_peaks(row_of(c, c->name[range]), &p->stage_memory[i]);
    }
}

/* ---- all of it ---- */

bool stages_have_device(const struct process *p)
{
    for (size_t i = 0; i < p->works.table.count; i++)
        if (IS_WORK(p->works.event_class[i])) return true;
    for (size_t i = 0; i < p->stage_times.table.count; i++)
        if (p->stage_times.busy[i] >= 0) return true;
    return false;
}

void stages_add(struct stage_table *table, struct scope *scope, int64_t group, bool alone)
{
    const struct process *p = scope->process;
    struct stage_paths counting = {0};
    struct map ranges = {0};
    bool has_work = p->works.table.count || p->stage_times.table.count;
    bool has_paths = has_work || table->operators;
    if (has_paths) scope_attribute(scope);
    int64_t *done = stages_done(&scope->choice, &scope->chosen->model->names);
    struct counting c = {.table = table, .choice = &scope->choice, .process = p, .group = group, .done = done};
    begin_counting(&c, scope);
    if (c.deep && has_paths) counting = counting_paths(&c);
    if (has_paths) c.paths = c.deep ? &counting : &scope->attribution.paths;
    if (p->stage_memories || p->stage_times.table.count) ranges_by_id(&ranges, p);
    add_times(&c, alone);
    add_memory(&c, &ranges);
    if (p->works.table.count) add_works(&c);
    if (table->operators) add_operators(&c, scope);
    add_sums(&c, &ranges);
    stage_paths_free(&counting);
    map_free(&ranges);
    end(&c);
    free(done);
}

void stage_busy(struct stage_row *row, int64_t *busy, int64_t *idle)
{
    *busy = *idle = 0;
    for (size_t i = 0; i < row->devices; i++) {
        struct intervals *set = &row->device[i].busy;
        intervals_merge(set);
        int64_t total = intervals_total(set);
        *busy = add_ns(*busy, total);
        if (set->count) *idle = add_ns(*idle, set->interval[set->count - 1].end - set->interval[0].start - total);
    }
}

void stages_tell_deep(const struct stage_table *table)
{
    if (table->deep)
        complain(NULL,
                 "%llu stage%s opened while %d others were open on the thread: the device work of %s is not added up",
                 (unsigned long long)table->deep, table->deep == 1 ? " was" : "s were", MOST_OPEN,
                 table->deep == 1 ? "it" : "them");
}

static void free_row(struct stage_row *row)
{
    for (size_t i = 0; i < row->devices; i++) intervals_free(&row->device[i].busy);
    free(row->device);
    map_free(&row->device_of);
    values_free(&row->each);
    keyed_free(&row->kernels.keyed);
}

void stages_free(struct stage_table *table)
{
    for (size_t i = 0; i < table->count; i++) free_row(&table->row[i]);
    free_row(&table->all);
    keyed_free(&table->keyed);
    *table = (struct stage_table){0};
}
