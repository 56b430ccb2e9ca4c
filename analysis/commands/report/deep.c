/* deep.c - sums up the kernels of very deeply nested stages, with ask/stages/sets.h.
 *
 * The sums of all kernels are updated as work is added and removed. A tree over the kernels, ordered by name, finds the
 * longest ones. A stage gets as many kernels as a report shows, and the number of all its kernels.
 */
#include <stdlib.h>
#include <string.h>

#include "ask/stages/sets.h"
#include "commands/report/report.h"

enum { PARTS = 1 << 20 }; /* per nanosecond: a call's time is divided by the number of works it launched */

struct kernel {
    uint32_t name;
    uint64_t calls, launched;
    int64_t device;
    __int128 host; /* in PARTS */
};

struct deep {
    struct report *report;
    struct unit *unit;
    const struct attribution *attribution;
    const uint32_t *works; /* by call: number of works it launched */
    const struct interval *when;
    struct kernel *kernel; /* by name */
    size_t kernels, leaves;
    struct map place;  /* index of a kernel by name */
    int64_t *longest;  /* by tree node: the longest time below it; -1: no kernel below it is present */
    uint32_t *of_work; /* by work: its kernel; NO_PLACE if it is not a kernel */
    int64_t device, kernel_time;
    uint64_t launches, distinct;
};

static int by_name(const void *a, const void *b, void *context)
{
    const struct kernel *x = a, *y = b;
    const struct names *names = context;
    int order = strcmp(names_get(names, x->name)->text, names_get(names, y->name)->text);
    return order ? order : (x->name > y->name) - (x->name < y->name);
}

static void find_kernels(struct deep *d)
{
    const struct works *w = &d->attribution->process->works;
    struct names *names = &d->report->session->model.names;
    size_t capacity = 0;
    for (size_t i = 0; i < w->table.count; i++) {
        uint32_t name = w->event_class[i] == CLASS_KERNEL ? short_names_get(&d->report->shorts, w->name[i]) : NAME_NONE;
        if (w->event_class[i] == CLASS_KERNEL && map_get(&d->place, name) == MAP_NONE) {
            d->kernel = mem_grow(d->kernel, &capacity, d->kernels + 1, sizeof *d->kernel);
            d->kernel[d->kernels++] = (struct kernel){.name = name};
            map_put(&d->place, name, 0);
        }
    }
    if (d->kernels) qsort_r(d->kernel, d->kernels, sizeof *d->kernel, by_name, names);
    for (size_t i = 0; i < d->kernels; i++) map_put(&d->place, d->kernel[i].name, (uint32_t)i);
    d->of_work = mem_zero(w->table.count, sizeof *d->of_work);
    for (size_t i = 0; i < w->table.count; i++) {
        d->of_work[i] = w->event_class[i] == CLASS_KERNEL
                            ? map_get(&d->place, short_names_get(&d->report->shorts, w->name[i]))
                            : NO_PLACE;
    }
    for (d->leaves = 1; d->leaves < d->kernels; d->leaves *= 2) {
    }
    d->longest = mem_resize(NULL, 2 * d->leaves, sizeof *d->longest);
    memset(d->longest, 0xff, 2 * d->leaves * sizeof *d->longest);
}

static void set_longest(struct deep *d, size_t kernel, int64_t time)
{
    size_t at = d->leaves + kernel;
    d->longest[at] = time;
    for (at /= 2; at; at /= 2) d->longest[at] = MAX(d->longest[2 * at], d->longest[2 * at + 1]);
}

/* Adds to or subtracts from a sum with wrap-around: an overflowing sum is right again after the subtraction. */
static int64_t change_by(int64_t sum, int64_t time, bool add)
{
    return (int64_t)((uint64_t)sum + (add ? (uint64_t)time : 0 - (uint64_t)time));
}

static void change(void *context, uint32_t work, bool add)
{
    struct deep *d = context;
    const struct process *p = d->attribution->process;
    int64_t time = d->when[work].end - d->when[work].start;
    uint32_t call = d->attribution->launch[work];
    d->device = change_by(d->device, time, add);
    if (d->of_work[work] == NO_PLACE) return;
    struct kernel *kernel = &d->kernel[d->of_work[work]];
    d->kernel_time = change_by(d->kernel_time, time, add);
    d->launches += add ? 1 : UINT64_MAX;
    d->distinct += add && !kernel->calls;
    kernel->calls += add ? 1 : UINT64_MAX;
    d->distinct -= !add && !kernel->calls;
    kernel->device = change_by(kernel->device, time, add);
    if (call != NO_PLACE) {
        __int128 host = (__int128)(p->spans.end[call] - p->spans.start[call]) * PARTS / d->works[call];
        kernel->launched += add ? 1 : UINT64_MAX;
        kernel->host += add ? host : -host;
    }
    set_longest(d, d->of_work[work], kernel->calls ? kernel->device : -1);
}

/* Returns the longest kernel; of equal ones the first by name. */
static size_t longest_kernel(const struct deep *d)
{
    size_t at = 1;
    while (at < d->leaves) at = d->longest[2 * at] >= d->longest[2 * at + 1] ? 2 * at : 2 * at + 1;
    return at - d->leaves;
}

/* Takes the longest kernels out of the tree one after the other, then puts them back. */
static void take_kernels(struct deep *d, struct report_stage *stage)
{
    size_t place[MOST_KERNELS], count = 0;
    for (; count < MOST_KERNELS && d->longest[1] >= 0; count++) {
        place[count] = longest_kernel(d);
        set_longest(d, place[count], -1);
    }
    stage->kernel = mem_resize(stage->kernel, count, sizeof *stage->kernel);
    stage->kernel_count = stage->kernel_capacity = count;
    stage->kernels_found = d->distinct;
    for (size_t i = 0; i < count; i++) {
        const struct kernel *k = &d->kernel[place[i]];
        stage->kernel[i] = (struct report_kernel){k->name, k->calls, k->launched, k->device, (double)k->host / PARTS};
        set_longest(d, place[i], k->device);
    }
}

static void end_name(void *context, uint32_t name)
{
    struct deep *d = context;
    struct report_stage *stage = report_stage_of(d->unit, name);
    stage->device = d->device;
    stage->kernels = d->kernel_time;
    stage->launches = d->launches;
    take_kernels(d, stage);
}

void report_add_deep(struct report *report, struct unit *unit, const struct attribution *attribution,
                     const bool *chosen, const struct interval *when, const uint32_t *works)
{
    struct deep d = {.report = report, .unit = unit, .attribution = attribution, .works = works, .when = when};
    struct stage_sets sets = {attribution, chosen, report->one, &d, change, end_name};
    find_kernels(&d);
    stage_sets_visit(&sets);
    free(d.kernel);
    free(d.longest);
    free(d.of_work);
    map_free(&d.place);
}
