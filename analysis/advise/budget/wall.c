/* wall.c - summarises a process for the budget: when its devices worked, what its host did, and the windows to divide. */
#include "advise/budget/wall.h"

#include <stdlib.h>
#include <string.h>

#include "ask/device/call_kinds.h"
#include "ask/ops/walk.h"
#include "ask/samples/periods.h"
#include "ask/stages/done_times.h"
#include "ask/stages/order.h"
#include "ask/stages/start_times.h"
#include "ask/steps/step_parts.h"
#include "base/sets/measure.h"
#include "model/join.h"
#include "model/kineto/kineto_comm.h"

struct watching {
    struct wall *wall;
    struct scope *scope;
    const struct process *process;
    const struct names *names;
    struct map leaf_of; /* by name and what it names */
};

enum named { NAMES_KERNEL, NAMES_OPERATOR, NAMES_RANGE, NAMES_CALL, NR_NAMED };

static void add_moment(struct watching *w, enum leaf leaf, int64_t start, int64_t end)
{
    intervals_add_merging(&w->wall->happens[leaf], start, end);
}

static bool has_word(const struct name *name, const char *word)
{
    return strstr(name->text, word) != NULL;
}

static bool compiles(const struct name *name)
{
    return has_word(name, "(dynamo_timed)");
}

/* Annotations and stages say something of the host only if they wait or compile; else UNKNOWN. */
static enum leaf range_leaf(const struct name *name)
{
    return is_loading(name)                                            ? LEAF_LOADER
           : is_backend_work((struct slice){name->text, name->length}) ? LEAF_PEER
           : compiles(name)                                            ? LEAF_COMPILE
                                                                       : LEAF_UNKNOWN;
}

static enum leaf call_leaf(const struct name *name)
{
    if (has_word(name, "ModuleLoad") || has_word(name, "LibraryLoad") || has_word(name, "ModuleGetFunction"))
        return LEAF_COMPILE;
    if (call_kind_of(name->text) == SYNC) return LEAF_SYNC;
    if (has_word(name, "Memcpy") && !has_word(name, "Async")) return LEAF_SYNC;
    return call_allocates(name->text) ? LEAF_ALLOCATOR : LEAF_LAUNCH;
}

static enum leaf named_leaf(struct watching *w, enum named named, uint32_t number)
{
    uint64_t key = (uint64_t)number * NR_NAMED + named;
    uint32_t known = map_get(&w->leaf_of, key);
    if (known != MAP_NONE) return (enum leaf)known;
    const struct name *name = names_get(w->names, number);
    enum leaf of_range = named == NAMES_KERNEL || named == NAMES_CALL ? LEAF_UNKNOWN : range_leaf(name);
    known = named == NAMES_KERNEL           ? kernel_leaf(name)
            : named == NAMES_CALL           ? call_leaf(name)
            : of_range != LEAF_UNKNOWN      ? of_range
            : named == NAMES_RANGE          ? LEAF_UNKNOWN
            : w->process->works.table.count ? LEAF_LAUNCH
                                            : operator_leaf(name);
    map_put(&w->leaf_of, key, known);
    return (enum leaf)known;
}

/* ---- what happens when ---- */

static void watch_device(struct watching *w)
{
    const struct works *works = &w->process->works;
    struct work_kinds kinds;
    work_kinds_init(&kinds, &exact_kinds, w->names);
    for (size_t i = 0; i < works->table.count; i++) {
        enum work_kind kind = work_kind_of(&kinds, w->process, i);
        if (kind == WORK_OTHER) continue;
        enum leaf leaf = kind == WORK_COMMUNICATION ? LEAF_COMMUNICATION
                         : kind == WORK_MEMORY      ? LEAF_COPY
                                                    : named_leaf(w, NAMES_KERNEL, works->name[i]);
        add_moment(w, leaf, works->start[i], works->end[i]);
        w->wall->works++;
    }
    work_kinds_free(&kinds);
}

static void watch_calls(struct watching *w)
{
    const struct spans *s = &w->process->spans;
    const struct calls *c = &w->process->calls;
    for (size_t i = 0; i < s->table.count; i++)
        if (s->event_class[i] == CLASS_API)
            add_moment(w, named_leaf(w, NAMES_CALL, s->name[i]), s->start[i], s->end[i]);
    enum leaf *of_func = mem_zero(w->process->funcs, sizeof *of_func);
    for (size_t i = 0; i < w->process->funcs; i++) {
        const struct func *func = &w->process->func[i];
        of_func[i] = is_device_call(func) ? call_leaf(&(struct name){.text = func->name}) : LEAF_UNKNOWN;
    }
    for (size_t i = 0; i < c->table.count; i++)
        if (of_func[c->func[i]] != LEAF_UNKNOWN) add_moment(w, of_func[c->func[i]], c->start[i], c->end[i]);
    free(of_func);
}

static void watch_operators(struct watching *w)
{
    struct op_walk walk;
    struct walked_op op;
    struct model *model = w->scope->chosen->model;
    op_walk_begin(&walk, w->process, NULL, w->scope->chosen->options, &model->names);
    while (op_walk_next(&walk, &op)) {
        enum leaf leaf = named_leaf(w, NAMES_OPERATOR, op.name);
        w->wall->waits |= leaf == LEAF_LOADER;
        add_moment(w, leaf, op.start, op.end);
    }
    op_walk_end(&walk);
}

static void watch_ranges(struct watching *w)
{
    const struct ranges *r = &w->process->ranges;
    for (size_t i = 0; i < r->table.count; i++) {
        enum leaf leaf = named_leaf(w, NAMES_RANGE, r->name[i]);
        if (leaf == LEAF_UNKNOWN) continue;
        w->wall->waits |= leaf == LEAF_LOADER;
        add_moment(w, leaf, r->start[i], r->end[i]);
    }
}

static bool is_file_call(const struct ios *ios, size_t io)
{
    return ios->of_name[ios->function[io]].kind != IO_PROCESS && ios->sum[io] == IO_ONE_CALL;
}

static void watch_files(struct watching *w)
{
    const struct ios *ios = &w->process->ios;
    for (size_t i = 0; i < ios->table.count; i++)
        if (is_file_call(ios, i)) add_moment(w, LEAF_FILE_IO, ios->start[i], ios->end[i]);
}

static void watch_start(struct watching *w)
{
    const struct startup *s = &w->process->startup;
    for (size_t i = 0; i < s->pieces; i++)
        if (!s->piece[i].depth) add_moment(w, LEAF_START, s->piece[i].start, s->piece[i].end);
    for (size_t i = 0; i < s->phases; i++) add_moment(w, LEAF_COMPILE, s->phase[i].start, s->phase[i].end);
}

/* True if the interpreter knew that the thread was in Python code, even where its stack could not be read. */
static bool is_in_python(const struct looks *looks, size_t look)
{
    return looks->stack[look] != NAME_NONE ||
           (looks->flags[look] & (TFI_SAMPLED_UNREADABLE | TFI_SAMPLED_FOREIGN)) == TFI_SAMPLED_UNREADABLE;
}

/* A thread's periods of Python, and its calls on files. */
struct own_time {
    struct intervals python, files;
};

static uint32_t tid_of(const struct process *p, uint32_t serial)
{
    const struct thread *thread = find_thread(p, serial);
    return thread ? thread->tid : 0;
}

/* Python's time is that of threads that are in no call on a file: then such a call of another thread delays nothing. */
static void add_python(struct watching *w, struct own_time *own)
{
    intervals_merge(&own->python);
    intervals_merge(&own->files);
    struct intervals outside = intervals_without(&own->python, &own->files);
    for (size_t i = 0; i < outside.count; i++)
        add_moment(w, LEAF_PYTHON, outside.interval[i].start, outside.interval[i].end);
    intervals_free(&outside);
    intervals_free(&own->python);
    intervals_free(&own->files);
}

/* The first thread that waits says what the program waits for; the others may wait for work. */
static void watch_samples(struct watching *w)
{
    const struct looks *l = &w->process->looks;
    const struct ios *ios = &w->process->ios;
    struct map place = {0};
    struct own_time *own = NULL;
    size_t count = 0, capacity = 0;
    for (size_t i = 0; i < l->table.count; i++) {
        bool works = sampled_works(l, i, l->end[i] - l->start[i], l->cpu[i]);
        if (!works && l->tid[i] == (uint32_t)w->process->pid) add_moment(w, LEAF_SYSTEM, l->start[i], l->end[i]);
        if (!works || !is_in_python(l, i)) continue;
        uint32_t at = map_get(&place, l->tid[i]);
        if (at == MAP_NONE) {
            map_put(&place, l->tid[i], at = (uint32_t)count);
            own = mem_grow(own, &capacity, count + 1, sizeof *own);
            own[count++] = (struct own_time){0};
        }
        intervals_add_merging(&own[at].python, l->start[i], l->end[i]);
    }
    for (size_t i = 0; i < ios->table.count && count; i++) {
        uint32_t at = is_file_call(ios, i) ? map_get(&place, tid_of(w->process, ios->thread[i])) : MAP_NONE;
        if (at != MAP_NONE) intervals_add_merging(&own[at].files, ios->start[i], ios->end[i]);
    }
    for (size_t i = 0; i < count; i++) add_python(w, &own[i]);
    map_free(&place);
    free(own);
}

/* ---- windows ---- */

static struct wall_part *part_of(struct wall *wall, uint32_t stage, uint32_t step)
{
    for (size_t i = 0; i < wall->parts; i++)
        if (wall->part[i].stage == stage && wall->part[i].step == step) return &wall->part[i];
    wall->part = mem_grow(wall->part, &wall->part_capacity, wall->parts + 1, sizeof *wall->part);
    wall->part[wall->parts] = (struct wall_part){.stage = stage, .step = step};
    return &wall->part[wall->parts++];
}

static void add_window(struct watching *w, struct wall_part *part, int64_t start, int64_t end)
{
    const struct window *window = &w->scope->choice.window;
    start = MAX(start, window->from);
    end = MIN(end, window->to);
    if (start >= end) return;
    part->unknown |= left_out_during(scope_left_out(w->scope), (struct interval){start, end});
    intervals_add_merging(&part->window, start, end);
}

/* The time of all records, device work included. */
static void window_of_process(struct watching *w)
{
    const struct process *p = w->process;
    const struct works *works = &p->works;
    struct wall *wall = w->wall;
    int64_t first = p->has_time ? p->first : INT64_MAX, last = p->has_time ? p->last : INT64_MIN;
    for (size_t i = 0; i < works->table.count; i++) {
        if (!IS_WORK(works->event_class[i])) continue;
        first = MIN(first, works->start[i]);
        last = MAX(last, works->end[i]);
    }
    if (has_startup(p)) first = MIN(first, startup_begin(p));
    struct wall_part *part = part_of(wall, NAME_NONE, NO_PLACE);
    part->unknown = selects_stages(p);
    if (first >= last) return;
    add_window(w, part, first, last);
    if (is_of_kineto(p) || !part->window.count) return;
    wall->first = part->window.interval[0].start; /* our traces of a rank are one piece */
    wall->last = part->window.interval[0].end;
    part->window.count = 0;
}

static void windows_of_ranges(struct watching *w)
{
    const struct ranges *r = &w->process->ranges;
    const struct options *options = w->scope->chosen->options;
    const struct choice *choice = &w->scope->choice;
    if (w->process->works.table.count || w->process->stage_times.table.count) scope_attribute(w->scope);
    int64_t *done = options->stage.count ? stages_done(choice, w->names) : NULL;
    for (size_t i = 0; i < r->table.count; i++) {
        bool is_part = options->stage.count ? is_stage(r, i) && selection_wants(w->scope->chosen, r->name[i])
                                            : r->step[i] != NO_PLACE;
        if (!is_part || !choice_stage(choice, i)) continue;
        struct wall_part *part = part_of(w->wall, r->name[i], options->step.count ? r->step[i] : NO_PLACE);
        add_window(w, part, r->start[i], MAX(done_or(done, i, r->end[i]), r->end[i]));
    }
    free(done);
}

/* ---- the summary ---- */

static void *reduce_wall(struct scope *scope)
{
    struct wall *wall = mem_zero(1, sizeof *wall);
    struct watching w = {.wall = wall, .scope = scope, .process = scope->process};
    const struct options *options = scope->chosen->options;
    w.names = &scope->chosen->model->names;
    wall->rank = scope->process->rank;
    wall->first = INT64_MAX;
    wall->last = INT64_MIN;
    watch_device(&w);
    watch_calls(&w);
    watch_operators(&w);
    watch_ranges(&w);
    watch_files(&w);
    watch_start(&w);
    watch_samples(&w);
    for (int leaf = 0; leaf < NR_LEAVES; leaf++) {
        intervals_merge(&wall->happens[leaf]);
        intervals_fit(&wall->happens[leaf]);
    }
    if (options->stage.count || options->step.count) windows_of_ranges(&w);
    else window_of_process(&w);
    map_free(&w.leaf_of);
    return wall;
}

void wall_free(struct wall *wall)
{
    for (int leaf = 0; leaf < NR_LEAVES; leaf++) intervals_free(&wall->happens[leaf]);
    for (size_t i = 0; i < wall->parts + wall->has_all; i++) intervals_free(&wall->part[i].window);
    intervals_free(&wall->loading);
    intervals_free(&wall->explained);
    free(wall->part);
    *wall = (struct wall){.rank = wall->rank, .first = INT64_MAX, .last = INT64_MIN};
}

static void free_taken(void *summary)
{
    wall_free(summary);
    free(summary);
}

struct needs wall_needs(const struct options *options)
{
    (void)options;
    return (struct needs){.ranges = true,
                          .device = true,
                          .launches = true,
                          .calls = true,
                          .operators = true,
                          .io = true,
                          .startup = true,
                          .looks = true};
}

const struct reduction wall_reduction = {without_window, reduce_wall, free_taken, NULL};
