/* hta.c - computes the analyses of HolisticTraceAnalysis 0.5.0 on a rank's frame.
 *
 * The definitions are those of its hta/analyzers/ and hta/utils/utils.py. HTA's rounding of nanoseconds can make work
 * end before it starts. Its sums count such work as negative, and so do these. Times are whole nanoseconds. Times
 * that HTA rounds are whole microseconds since the file's base.
 */
#include "compat/hta.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double hta_round(double value, int digits)
{
    double scale = digits == 1 ? 10 : 100;
    return rint(value * scale) / scale; /* rounds half to even, like numpy */
}

int64_t hta_fitting(__int128 sum)
{
    return sum > INT64_MAX ? INT64_MAX : sum < INT64_MIN ? INT64_MIN : (int64_t)sum;
}

/* ---- sets ---- */

static int hta_rows_by_start(const void *a, const void *b)
{
    const struct interval *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* merge_kernel_intervals: a new group begins at a start that is later than all ends before it. Unlike
 * intervals_merge, this keeps intervals of zero or negative length. */
static void merge(struct intervals *set, bool sorted)
{
    size_t groups = 0;
    int64_t last = INT64_MIN;
    if (set->count && !sorted) qsort(set->interval, set->count, sizeof *set->interval, hta_rows_by_start);
    for (size_t i = 0; i < set->count; i++) {
        struct interval next = set->interval[i];
        if (!groups || next.start > last) set->interval[groups++] = next;
        else set->interval[groups - 1].end = MAX(set->interval[groups - 1].end, next.end);
        last = MAX(last, next.end);
    }
    set->count = groups;
}

/* Returns the merged work of the given kinds. A row that is in the frame several times counts once in a union. Only a
 * row that ends before it starts forms that many groups. */
static struct intervals merged(const struct hta_frame *frame, unsigned kinds)
{
    struct intervals set = {0};
    bool sorted = true;
    for (size_t i = 0; i < frame->count; i++) {
        const struct hta_row *row = &frame->row[i];
        uint32_t times = row->end < row->start ? MIN(row->times, HTA_MOST_TIMES) : 1;
        for (; kinds & KIND_BIT(row->kind) && times; times--) {
            sorted &= !set.count || set.interval[set.count - 1].start <= row->start;
            set.interval = mem_grow(set.interval, &set.capacity, set.count + 1, sizeof *set.interval);
            set.interval[set.count++] = (struct interval){row->start, row->end};
        }
    }
    merge(&set, sorted);
    return set;
}

static const unsigned all_kinds = KIND_BIT(NR_WORK_KINDS) - 1;

/* ---- get_temporal_breakdown ---- */

struct hta_temporal hta_temporal(const struct hta_frame *frame)
{
    struct intervals all = merged(frame, all_kinds), compute = merged(frame, KIND_BIT(WORK_COMPUTATION));
    struct hta_temporal t = {0};
    if (all.count) {
        t.total = all.interval[all.count - 1].end - all.interval[0].start;
        t.idle = t.total - intervals_total(&all);
        t.compute = intervals_total(&compute);
        t.other = t.total - t.compute - t.idle;
        t.known = t.idle <= t.total && t.compute <= t.total && t.other >= 0;
    }
    intervals_free(&all);
    intervals_free(&compute);
    return t;
}

/* ---- get_comm_comp_overlap ---- */

struct hta_overlap hta_overlap_of(const struct hta_frame *frame)
{
    struct intervals sets[] = {merged(frame, KIND_BIT(WORK_COMMUNICATION)), merged(frame, KIND_BIT(WORK_COMPUTATION))};
    int64_t time[INTERVALS_COMBINATIONS] = {0};
    struct hta_overlap overlap = {.communication = intervals_total(&sets[0])};
    intervals_combine(sets, ARRAY_SIZE(sets), time);
    overlap.time = time[3];
    intervals_free(&sets[0]);
    intervals_free(&sets[1]);
    return overlap;
}

/* ---- get_gpu_kernel_breakdown ---- */

uint64_t hta_kinds_of(const struct selection *chosen, int64_t total[INTERVALS_COMBINATIONS])
{
    const struct hta_frames *frames = hta_frames(chosen);
    for (size_t i = 0; i < frames->count; i++) {
        struct intervals sets[INTERVALS_SETS];
        for (unsigned kind = 0; kind < INTERVALS_SETS; kind++) sets[kind] = merged(&frames->frame[i], KIND_BIT(kind));
        intervals_combine(sets, INTERVALS_SETS, total);
        for (unsigned kind = 0; kind < INTERVALS_SETS; kind++) intervals_free(&sets[kind]);
    }
    return frames->rows;
}

static struct hta_kernel *kernel_of(struct hta_kernels *kernels, const struct hta_row *row)
{
    uint32_t place = map_get(&kernels->by_name, row->name);
    if (place == MAP_NONE) {
        place = (uint32_t)kernels->count;
        kernels->kernel = mem_grow(kernels->kernel, &kernels->capacity, kernels->count + 1, sizeof *kernels->kernel);
        kernels->kernel[kernels->count++] =
            (struct hta_kernel){.name = row->name, .kind = row->kind, .min = INT64_MAX, .max = INT64_MIN};
        map_put(&kernels->by_name, row->name, place);
    }
    return &kernels->kernel[place];
}

/* groupby("name")["dur"]: sum, max, min, mean, std with ddof 1. Leaves out the kinds for which HTA makes no table. */
static void add_kernels(struct hta_kernels *kernels, const struct hta_frame *frame)
{
    for (size_t i = 0; i < frame->count; i++) {
        const struct hta_row *row = &frame->row[i];
        if (row->kind != WORK_OTHER) {
            struct hta_kernel *k = kernel_of(kernels, row);
            int64_t time = row->end - row->start;
            k->calls += row->times;
            k->sum += (__int128)time * row->times;
            k->min = MIN(k->min, time);
            k->max = MAX(k->max, time);
        }
    }
    for (size_t i = 0; i < frame->count; i++) {
        const struct hta_row *row = &frame->row[i];
        if (row->kind != WORK_OTHER) {
            struct hta_kernel *k = kernel_of(kernels, row);
            double far = (double)(row->end - row->start) - (double)k->sum / (double)k->calls;
            k->squares += far * far * row->times;
        }
    }
}

static int largest_first(const void *a, const void *b, void *context)
{
    const struct hta_kernel *x = a, *y = b;
    const struct model *model = context;
    if (x->sum != y->sum) return x->sum > y->sum ? -1 : 1;
    return strcmp(model_name(model, x->name), model_name(model, y->name));
}

void hta_kernels(struct hta_kernels *kernels, const struct hta_frame *frame, struct model *model)
{
    *kernels = (struct hta_kernels){0};
    add_kernels(kernels, frame);
    if (kernels->count) qsort_r(kernels->kernel, kernels->count, sizeof *kernels->kernel, largest_first, model);
    for (size_t i = 0; i < kernels->count; i++) kernels->sum += kernels->kernel[i].sum;
}

void hta_kernels_free(struct hta_kernels *kernels)
{
    free(kernels->kernel);
    map_free(&kernels->by_name);
}
