/* step_parts.c - finds the steps of a process, extends them to the end of their device work, and divides their time.
 *
 * The rules are those of the plugin (event_parser.py of torch_tb_profiler 0.4.3). A step begins where the host begins
 * it, or where the step before ends if that is later. It ends with the host's step, or with the last device work that
 * calls inside the host's step launched if that is later. The first step begins no earlier than the end of device work
 * that no step launched and that ends before its own work begins.
 *
 * A moment counts as the first part of enum step_part that happens in it, on any thread or device. Communication is a
 * kernel of a communication library, or an operator or annotation of a backend of c10d ("nccl:...", "gloo:...").
 * Differences from the plugin: it knows no category that Kineto uses since 2022 for calls and annotations, it tells
 * communication by five names of operators, and it takes annotations of devices for steps.
 *
 * Kineto may miss kernels of the last steps. The plugin leaves out the steps behind the last one that launched device
 * work, and this one too if it launched less than 0.8 of the step before. The same is done here for PyTorch traces,
 * unless --step names the steps.
 */
#include "ask/steps/step_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/ops/walk.h"
#include "ask/steps/devices.h"
#include "ask/work_kinds.h"
#include "base/sets/measure.h"
#include "model/join.h"
#include "model/kineto/kineto_comm.h"

struct step {
    int64_t host_start, host_end;
    int64_t start, end;  /* extended */
    int64_t first, last; /* start of the first device work that it launched, end of the last one */
    uint64_t works;      /* works that it launched */
    uint32_t number;
    bool cut, chosen;
};

struct taking {
    const struct selection *chosen;
    const struct process *process;
    const struct attribution *attribution;
    const struct choice *choice;
    const struct left_out *left_out;
    struct step *step;
    size_t count;
    struct intervals part[PART_OTHER]; /* when the events of each part happen */
    unsigned known;
};

/* ---- the steps of the host ---- */

static int steps_by_start(const void *a, const void *b)
{
    const struct step *x = a, *y = b;
    return outer_first(x->host_start, x->host_end, y->host_start, y->host_end);
}

static void find_steps(struct taking *t)
{
    const struct ranges *r = &t->process->ranges;
    size_t capacity = 0;
    for (size_t i = 0; i < r->table.count; i++) {
        if (r->step[i] == NO_PLACE || r->flags[i] & RANGE_CONTINUED) continue;
        t->step = mem_grow(t->step, &capacity, t->count + 1, sizeof *t->step);
        t->step[t->count++] = (struct step){.host_start = r->start[i],
                                            .host_end = r->end[i],
                                            .first = INT64_MAX,
                                            .last = INT64_MIN,
                                            .number = r->step[i],
                                            .chosen = choice_moment(t->choice, r->start[i], r->start[i])};
    }
    if (t->count) qsort(t->step, t->count, sizeof *t->step, steps_by_start);
}

/* Makes one step of a trace without steps: from its first operator to the end of its last one. Without operators it is
 * the whole trace. */
static void make_whole(struct taking *t)
{
    const struct process *p = t->process;
    const struct options *options = t->chosen->options;
    struct step whole = {.host_start = INT64_MAX, .host_end = INT64_MIN, .number = NO_PLACE};
    struct op_walk walk;
    struct walked_op op;
    op_walk_begin(&walk, p, NULL, options, &t->chosen->model->names);
    while (op_walk_next(&walk, &op)) {
        whole.host_start = MIN(whole.host_start, op.start);
        whole.host_end = MAX(whole.host_end, op.end);
    }
    op_walk_end(&walk);
    if (whole.host_start > whole.host_end && p->has_time) {
        whole.host_start = p->first;
        whole.host_end = p->last;
    }
    whole.host_start = MAX(whole.host_start, t->choice->window.from);
    whole.host_end = MIN(whole.host_end, t->choice->window.to);
    if (options->step.count || options->cycle.count || whole.host_start >= whole.host_end) return;
    whole.first = INT64_MAX;
    whole.last = INT64_MIN;
    whole.chosen = true;
    t->step = mem_zero(1, sizeof *t->step);
    t->step[t->count++] = whole;
}

/* ---- the steps of the device ---- */

/* Returns the step that a call lies in, or NULL. */
static struct step *step_around(const struct taking *t, int64_t start, int64_t end)
{
    size_t low = 0, high = t->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (t->step[middle].host_start <= start) low = middle + 1;
        else high = middle;
    }
    return low && end <= t->step[low - 1].host_end && start < t->step[low - 1].host_end ? &t->step[low - 1] : NULL;
}

static struct step *step_of_work(const struct taking *t, size_t work)
{
    const struct spans *s = &t->process->spans;
    uint32_t launch = t->attribution->launch[work];
    return launch == NO_PLACE ? NULL : step_around(t, s->start[launch], s->end[launch]);
}

/* Returns when the device work before the first step is over. */
static int64_t end_before(const struct taking *t)
{
    const struct works *w = &t->process->works;
    int64_t end = t->step[0].host_start;
    for (size_t i = 0; i < w->table.count && t->step[0].works; i++)
        if (IS_WORK(w->event_class[i]) && w->end[i] < t->step[0].first && !step_of_work(t, i))
            end = MAX(end, w->end[i]);
    return end;
}

static void extend(struct taking *t)
{
    const struct works *w = &t->process->works;
    uint64_t works = 0;
    for (size_t i = 0; i < w->table.count; i++) {
        struct step *step = IS_WORK(w->event_class[i]) ? step_of_work(t, i) : NULL;
        if (!step) continue;
        step->first = MIN(step->first, w->start[i]);
        step->last = MAX(step->last, w->end[i]);
        step->works++;
        works++;
    }
    int64_t before = works ? end_before(t) : INT64_MIN;
    for (size_t i = 0; i < t->count; i++) {
        struct step *step = &t->step[i];
        step->start = MAX(step->host_start, before);
        step->end = MAX(MAX(step->host_end, step->last), step->start);
        before = works ? step->end : INT64_MIN;
    }
    if (t->step[0].number == NO_PLACE && !isnan(t->chosen->options->to))
        t->step[0].end = MIN(t->step[0].end, t->choice->window.to);
}

/* Leaves out the last steps, whose kernels the profiler may have missed. Returns their number. */
static uint64_t cut(struct taking *t)
{
    size_t keep = t->count;
    uint64_t cut = 0;
    while (keep && !t->step[keep - 1].works) keep--;
    if (!keep || t->count < 2 || !is_of_kineto(t->process) || t->chosen->options->step.count) return 0;
    if (keep > 1 && (double)t->step[keep - 2].works * 0.8 > (double)t->step[keep - 1].works) keep--;
    for (size_t i = keep; i < t->count; i++) {
        t->step[i].cut = true;
        cut += t->step[i].chosen;
    }
    return cut;
}

/* ---- what happens when ---- */

static bool starts_with(const struct name *name, const char *word)
{
    return name->length >= strlen(word) && memcmp(name->text, word, strlen(word)) == 0;
}

bool is_loading(const struct name *name)
{
    static const char end[] = ".__next__";
    size_t length = sizeof end - 1;
    if (starts_with(name, "enumerate(DataPipe)#")) return true;
    return starts_with(name, "enumerate(DataLoader)#") && name->length >= length &&
           memcmp(name->text + name->length - length, end, length) == 0;
}

/* Returns the part of an operator or annotation; PART_CPU_EXEC if its name is of no other one. */
static enum step_part host_part(const struct taking *t, struct map *known, uint32_t number)
{
    uint32_t part = map_get(known, number);
    if (part == MAP_NONE) {
        const struct name *name = names_get(&t->chosen->model->names, number);
        part = is_loading(name)                                            ? PART_DATALOADER
               : is_backend_work((struct slice){name->text, name->length}) ? PART_COMMUNICATION
                                                                           : PART_CPU_EXEC;
        map_put(known, number, part);
    }
    return (enum step_part)part;
}

static void add_to_part(struct taking *t, enum step_part part, int64_t start, int64_t end)
{
    t->known |= 1u << part;
    intervals_add_merging(&t->part[part], start, end);
}

static void add_host(struct taking *t)
{
    const struct spans *s = &t->process->spans;
    const struct ranges *r = &t->process->ranges;
    const struct calls *c = &t->process->calls;
    struct map known = {0};
    struct op_walk walk;
    struct walked_op op;
    for (size_t i = 0; i < s->table.count; i++)
        if (s->event_class[i] == CLASS_API) add_to_part(t, PART_RUNTIME, s->start[i], s->end[i]);
    op_walk_begin(&walk, t->process, NULL, t->chosen->options, &t->chosen->model->names);
    while (op_walk_next(&walk, &op)) {
        t->known |= 1u << PART_CPU_EXEC;
        add_to_part(t, host_part(t, &known, op.name), op.start, op.end);
    }
    op_walk_end(&walk);
    for (size_t i = 0; i < c->table.count; i++) /* of a trace of ours, where few calls have a span */
        if (is_device_call(&t->process->func[c->func[i]])) add_to_part(t, PART_RUNTIME, c->start[i], c->end[i]);
    for (size_t i = 0; i < r->table.count; i++) {
        if (r->step[i] != NO_PLACE) continue;
        enum step_part part = host_part(t, &known, r->name[i]);
        if (part != PART_CPU_EXEC) add_to_part(t, part, r->start[i], r->end[i]);
    }
    map_free(&known);
}

static void add_works(struct taking *t, struct steps *steps)
{
    static const enum step_part parts[] = {
        [CLASS_KERNEL] = PART_KERNEL, [CLASS_MEMCPY] = PART_MEMCPY, [CLASS_MEMSET] = PART_MEMSET};
    const struct works *w = &t->process->works;
    struct work_kinds kinds;
    work_kinds_init(&kinds, &exact_kinds, &t->chosen->model->names);
    for (size_t i = 0; i < w->table.count; i++) {
        if (!IS_WORK(w->event_class[i])) continue;
        t->known |= 1u << PART_KERNEL | 1u << PART_MEMCPY | 1u << PART_MEMSET | 1u << PART_COMMUNICATION;
        if (!t->choice->lane[w->lane[i]]) continue;
        steps->works++;
        bool communicates = work_kind_of(&kinds, t->process, i) == WORK_COMMUNICATION;
        add_to_part(t, communicates ? PART_COMMUNICATION : parts[w->event_class[i]], w->start[i], w->end[i]);
    }
    work_kinds_free(&kinds);
}

/* ---- rows ---- */

static bool is_shown(const struct step *step)
{
    return step->chosen && !step->cut;
}

/* Adds the rows; each part is what the union of the parts up to it has more than the union up to the one before. */
static void add_rows(struct taking *t, struct steps *steps)
{
    struct intervals all = {0};
    struct measure measure;
    for (size_t i = 0; i < t->count; i++) {
        const struct step *step = &t->step[i];
        struct step_row row = {.rank = t->process->rank,
                               .pid = t->process->pid,
                               .start = step->start,
                               .total = step->end - step->start,
                               .known = t->known | 1u << PART_OTHER | 1u << PART_DATALOADER,
                               .number = step->number};
        if (!is_shown(step)) continue;
        if (left_out_during(t->left_out, (struct interval){step->start, step->end})) row.known = 0;
        row.part[PART_OTHER] = row.total;
        steps->row = mem_grow(steps->row, &steps->capacity, steps->count + 1, sizeof row);
        steps->row[steps->count++] = row;
    }
    for (int part = 0; part < PART_OTHER; part++) {
        intervals_merge(&t->part[part]);
        struct intervals next = intervals_union(&all, &t->part[part]);
        intervals_free(&all);
        all = next;
        measure_init(&measure, &all);
        for (size_t i = 0; i < steps->count; i++) {
            struct step_row *row = &steps->row[i];
            int64_t left = row->total - measure_between(&measure, row->start, row->start + row->total);
            row->part[part] = row->part[PART_OTHER] - left;
            row->part[PART_OTHER] = left;
        }
        measure_free(&measure);
    }
    intervals_free(&all);
}

/* Adds the devices over the time from the start of each row of neighbouring steps to its end, gaps included. */
static void add_devices(struct taking *t, struct steps *steps)
{
    struct intervals times = {0};
    for (size_t i = 0, from = 0; i < t->count; i++) {
        if (!is_shown(&t->step[i])) continue;
        if (!i || !is_shown(&t->step[i - 1])) from = i;
        if (i + 1 == t->count || !is_shown(&t->step[i + 1])) intervals_add(&times, t->step[from].start, t->step[i].end);
    }
    intervals_merge(&times);
    for (size_t i = 0; i < times.count && !steps->unknown; i++)
        steps->unknown = left_out_during(t->left_out, times.interval[i]);
    step_devices(steps, t->choice, &t->chosen->model->names, &times);
    intervals_free(&times);
}

/* ---- a process ---- */

static void *reduce_steps(struct scope *scope)
{
    struct steps *steps = mem_zero(1, sizeof *steps);
    struct taking t = {.chosen = scope->chosen, .process = scope->process, .choice = &scope->choice};
    t.attribution = scope_attribute(scope);
    t.left_out = scope_left_out(scope);
    find_steps(&t);
    steps->whole = t.count == 0;
    if (steps->whole) make_whole(&t);
    if (t.count) {
        extend(&t);
        steps->cut = cut(&t);
        add_works(&t, steps);
        add_host(&t);
        add_rows(&t, steps);
        add_devices(&t, steps);
    }
    for (int part = 0; part < PART_OTHER; part++) intervals_free(&t.part[part]);
    free(t.step);
    return steps;
}

static void free_taken(void *summary)
{
    steps_free(summary);
    free(summary);
}

struct needs steps_needs(const struct options *options)
{
    (void)options;
    return (struct needs){
        .ranges = true, .device = true, .launches = true, .calls = true, .operators = true, .filling = true};
}

const struct reduction steps_reduction = {without_window, reduce_steps, free_taken, NULL};

/* ---- all processes ---- */

static int by_rank_and_time(const void *a, const void *b)
{
    const struct step_row *x = a, *y = b;
    return x->rank != y->rank ? by_number(x->rank, y->rank) : by_number(x->start, y->start);
}

static int by_rank_and_device(const void *a, const void *b)
{
    const struct step_device *x = a, *y = b;
    return x->rank != y->rank ? by_number(x->rank, y->rank) : by_number(x->device, y->device);
}

static void append(struct steps *steps, const struct steps *of_process)
{
    steps->row = mem_grow(steps->row, &steps->capacity, steps->count + of_process->count, sizeof *steps->row);
    steps->device =
        mem_grow(steps->device, &steps->device_capacity, steps->devices + of_process->devices, sizeof *steps->device);
    for (size_t i = 0; i < of_process->count; i++) steps->row[steps->count++] = of_process->row[i];
    for (size_t i = 0; i < of_process->devices; i++) steps->device[steps->devices++] = of_process->device[i];
    steps->unknown |= of_process->unknown;
    steps->cut += of_process->cut;
    steps->works += of_process->works;
    steps->whole += of_process->whole && of_process->count;
}

void steps_collect(struct steps *steps, void *const *taken, size_t count)
{
    struct map with_steps = {0}; /* by rank: a process of it has steps */
    *steps = (struct steps){0};
    for (size_t i = 0; i < count; i++) {
        const struct steps *of_process = taken[i];
        if (!of_process->whole && of_process->count) map_put(&with_steps, (uint64_t)of_process->row[0].rank, 1);
    }
    for (size_t i = 0; i < count; i++) {
        const struct steps *of_process = taken[i];
        if (of_process->whole && of_process->count &&
            map_get(&with_steps, (uint64_t)of_process->row[0].rank) != MAP_NONE)
            continue;
        append(steps, of_process);
    }
    map_free(&with_steps);
    if (steps->count) qsort(steps->row, steps->count, sizeof *steps->row, by_rank_and_time);
    if (steps->devices) qsort(steps->device, steps->devices, sizeof *steps->device, by_rank_and_device);
}

struct step_device steps_sum(const struct steps *steps)
{
    struct step_device sum = {.rank = -1, .device = -1};
    for (size_t i = 0; i < steps->devices; i++) {
        const struct step_device *d = &steps->device[i];
        sum.time = add_ns(sum.time, d->time);
        sum.busy = add_ns(sum.busy, d->busy);
        sum.kernels = add_ns(sum.kernels, d->kernels);
        sum.tensor = add_ns(sum.tensor, d->tensor);
        sum.tensor_plugin = add_ns(sum.tensor_plugin, d->tensor_plugin);
        sum.estimated = add_ns(sum.estimated, d->estimated);
        sum.filled += d->filled;
        sum.occupied += d->occupied;
        sum.counted += d->counted;
        sum.unsized += d->unsized;
    }
    return sum;
}

void steps_free(struct steps *steps)
{
    free(steps->row);
    free(steps->device);
    *steps = (struct steps){0};
}
