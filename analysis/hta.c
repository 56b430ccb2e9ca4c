/* hta.c - HolisticTraceAnalysis 0.5.0: its frame of a rank's device work, and three answers from it.
 *
 * The definitions are those of its hta/analyzers/ and hta/utils/utils.py. It rounds times of nanoseconds so that work
 * can end before it starts; its sums count that as negative, and so it is here. Times are whole nanoseconds; where HTA
 * rounds they are whole microseconds since the file's base.
 */
#include "hta.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hta_frame.h"
#include "short_names.h"
#include "work_kinds.h"

enum { STATUS_USAGE = 2 };

double hta_round(double value, int digits)
{
    double scale = digits == 1 ? 10 : 100;
    return rint(value * scale) / scale; /* to even, like numpy */
}

/* Filters choose rows of HTA's table; what would cut rows or depends on stages has no meaning in it. */
static bool refused(struct session *session)
{
    const struct options *o = &session->options;
    const char *option = o->step.count                 ? "--step"
                         : o->cycle.count              ? "--cycle"
                         : o->stage.count              ? "--stage"
                         : !isnan(o->from)             ? "--from"
                         : !isnan(o->to)               ? "--to"
                         : o->group_by != GROUP_KERNEL ? "--group-by"
                                                       : NULL;
    if (option) {
        complain(NULL, "%s and --rules hta exclude each other: HTA has no such question", option);
        session->status = STATUS_USAGE;
    }
    return option != NULL;
}

bool hta_load(struct session *session)
{
    return !refused(session) &&
           session_load(session, WANT_DEVICE | WANT_RANGES | WANT_LAUNCHES | WANT_OPERATORS, false);
}

/* ---- sets ---- */

static int by_start(const void *a, const void *b)
{
    const struct interval *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* merge_kernel_intervals: a new group begins where a start is later than all ends before it. Unlike intervals_merge it
 * keeps what has no length, or less. */
static void merge(struct intervals *set)
{
    size_t groups = 0;
    int64_t last = INT64_MIN;
    if (set->count) {
        qsort(set->interval, set->count, sizeof *set->interval, by_start);
    }
    for (size_t i = 0; i < set->count; i++) {
        struct interval next = set->interval[i];
        if (!groups || next.start > last) {
            set->interval[groups++] = next;
        } else {
            set->interval[groups - 1].end = MAX(set->interval[groups - 1].end, next.end);
        }
        last = MAX(last, next.end);
    }
    set->count = groups;
}

/* A row that is in the frame several times counts once in a union, but for one that ends before it starts, which is as
 * many groups. So many calls with one correlation id no trace has that HTA could read. */
enum { MOST_TIMES = 256 };

/* Merged work of a kind, or of all kinds. */
static struct intervals merged(const struct hta_frame *frame, unsigned kinds)
{
    struct intervals set = {0};
    for (size_t i = 0; i < frame->count; i++) {
        const struct hta_row *row = &frame->row[i];
        uint32_t times = row->end < row->start ? MIN(row->times, MOST_TIMES) : 1;
        for (; kinds & KIND_BIT(row->kind) && times; times--) {
            set.interval = mem_grow(set.interval, &set.capacity, set.count + 1, sizeof *set.interval);
            set.interval[set.count++] = (struct interval){row->start, row->end};
        }
    }
    merge(&set);
    return set;
}

static const unsigned all_kinds = KIND_BIT(NR_WORK_KINDS) - 1;

/* ---- get_temporal_breakdown ---- */

struct temporal {
    bool known;
    int64_t idle, compute, other, total;
};

static struct temporal temporal_of(const struct hta_frame *frame)
{
    struct intervals all = merged(frame, all_kinds), compute = merged(frame, KIND_BIT(WORK_COMPUTATION));
    struct temporal t = {0};
    if (all.count) {
        t.total = all.interval[all.count - 1].end - all.interval[0].start;
        t.idle = t.total - intervals_total(&all);
        t.compute = intervals_total(&compute);
        t.other = t.total - t.compute - t.idle;
        t.known = t.idle <= t.total && t.compute <= t.total && t.other >= 0;
    }
    if (frame->count && !t.known) {
        complain(frame->path, "HTA gives up on it: by its rounded times %lld us are left for other work; no values",
                 (long long)(t.other / 1000));
    }
    intervals_free(&all);
    intervals_free(&compute);
    return t;
}

static void emit_share(struct emit *e, const struct temporal *t, const char *us, const char *pct, int64_t time)
{
    if (t->known) {
        emit_us(e, us, time);
    } else {
        emit_null(e, us);
    }
    emit_pct(e, pct, t->known ? hta_round(100 * ((double)time / (double)t->total), 2) : NAN);
}

void hta_timeline(struct session *session)
{
    struct hta_frames frames;
    struct emit *e = &session->emit;
    if (!hta_load(session) || !session_begin(session, STYLE_TABLE)) {
        return;
    }
    emit_keys(e, "rank,idle_us,idle_pct,compute_us,compute_pct,non_compute_us,non_compute_pct,kernel_time_us");
    hta_frames(&frames, session);
    for (size_t i = 0; i < frames.count; i++) {
        struct temporal t = temporal_of(&frames.frame[i]);
        emit_row(e);
        emit_known(e, "rank", frames.frame[i].rank);
        emit_share(e, &t, "idle_us", "idle_pct", t.idle);
        emit_share(e, &t, "compute_us", "compute_pct", t.compute);
        emit_share(e, &t, "non_compute_us", "non_compute_pct", t.other);
        if (t.known) {
            emit_us(e, "kernel_time_us", t.total);
        } else {
            emit_null(e, "kernel_time_us");
        }
        emit_row_end(e);
    }
    emit_totals(e);
    hta_end(&frames, session);
}

/* ---- get_comm_comp_overlap ---- */

void hta_overlap(struct session *session)
{
    struct hta_frames frames;
    struct emit *e = &session->emit;
    if (!hta_load(session) || !session_begin(session, STYLE_TABLE)) {
        return;
    }
    hta_frames(&frames, session);
    for (size_t i = 0; i < frames.count; i++) {
        const struct hta_frame *frame = &frames.frame[i];
        struct intervals sets[] = {merged(frame, KIND_BIT(WORK_COMMUNICATION)),
                                   merged(frame, KIND_BIT(WORK_COMPUTATION))};
        int64_t time[INTERVALS_COMBINATIONS] = {0}, communication = intervals_total(&sets[0]);
        intervals_combine(sets, ARRAY_SIZE(sets), time);
        emit_row(e);
        emit_known(e, "rank", frame->rank);
        if (frame->count) {
            emit_us(e, "overlap_us", time[3]);
            emit_us(e, "communication_us", communication);
        } else {
            emit_null(e, "overlap_us");
            emit_null(e, "communication_us");
        }
        emit_pct(e, "overlap_pct", communication ? hta_round(100 * ((double)time[3] / (double)communication), 2) : NAN);
        emit_row_end(e);
        intervals_free(&sets[0]);
        intervals_free(&sets[1]);
    }
    emit_totals(e);
    hta_end(&frames, session);
}

/* ---- get_gpu_kernel_breakdown ---- */

uint64_t hta_kinds(const struct session *session, int64_t total[INTERVALS_COMBINATIONS])
{
    struct hta_frames frames;
    hta_frames(&frames, session);
    uint64_t rows = frames.rows;
    for (size_t i = 0; i < frames.count; i++) {
        struct intervals sets[INTERVALS_SETS];
        for (unsigned kind = 0; kind < INTERVALS_SETS; kind++) {
            sets[kind] = merged(&frames.frame[i], KIND_BIT(kind));
        }
        intervals_combine(sets, INTERVALS_SETS, total);
        for (unsigned kind = 0; kind < INTERVALS_SETS; kind++) {
            intervals_free(&sets[kind]);
        }
    }
    hta_frames_free(&frames);
    return rows;
}

struct kernel {
    uint32_t name;
    uint8_t kind;
    uint64_t calls;
    int64_t min, max;
    __int128 sum;
    double squares; /* of the distances from the mean */
};

struct kernels {
    struct kernel *kernel;
    size_t count, capacity;
    struct map by_name;
};

static struct kernel *kernel_of(struct kernels *kernels, const struct hta_row *row)
{
    uint32_t place = map_get(&kernels->by_name, row->name);
    if (place == MAP_NONE) {
        place = (uint32_t)kernels->count;
        kernels->kernel = mem_grow(kernels->kernel, &kernels->capacity, kernels->count + 1, sizeof *kernels->kernel);
        kernels->kernel[kernels->count++] =
            (struct kernel){.name = row->name, .kind = row->kind, .min = INT64_MAX, .max = INT64_MIN};
        map_put(&kernels->by_name, row->name, place);
    }
    return &kernels->kernel[place];
}

/* groupby("name")["dur"]: sum, max, min, mean, std with ddof 1. Kinds of which HTA makes no table are left out. */
static void add_kernels(struct kernels *kernels, const struct hta_frame *frame)
{
    for (size_t i = 0; i < frame->count; i++) {
        const struct hta_row *row = &frame->row[i];
        if (row->kind != WORK_OTHER) {
            struct kernel *k = kernel_of(kernels, row);
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
            struct kernel *k = kernel_of(kernels, row);
            double far = (double)(row->end - row->start) - (double)k->sum / (double)k->calls;
            k->squares += far * far * row->times;
        }
    }
}

static int largest_first(const void *a, const void *b, void *context)
{
    const struct kernel *x = a, *y = b;
    const struct model *model = context;
    if (x->sum != y->sum) {
        return x->sum > y->sum ? -1 : 1;
    }
    return strcmp(model_name(model, x->name), model_name(model, y->name));
}

/* What fits into nanoseconds: the whole of any trace that was really recorded. */
static int64_t fitting(__int128 sum)
{
    return sum > INT64_MAX ? INT64_MAX : sum < INT64_MIN ? INT64_MIN : (int64_t)sum;
}

static void emit_kernel(struct session *session, int64_t rank, const struct kernel *k, __int128 all,
                        const struct short_names *shorts)
{
    const struct name *name = names_get(&session->model.names, short_names_get(shorts, k->name));
    struct emit *e = &session->emit;
    emit_row(e);
    emit_text(e, "stage", model_name(&session->model, NAME_RUN));
    emit_known(e, "rank", rank);
    emit_bytes_text(e, "name", name->text, name->length);
    emit_text(e, "kind", work_kind_names[k->kind]);
    emit_count(e, "calls", k->calls);
    emit_us(e, "total_us", fitting(k->sum));
    emit_us(e, "mean_us", llround((double)k->sum / (double)k->calls));
    emit_null(e, "median_us");
    emit_null(e, "p95_us");
    emit_us(e, "min_us", k->min);
    emit_us(e, "max_us", k->max);
    /* fillna({"std": 0}) */
    emit_us(e, "std_us", k->calls > 1 ? llround(sqrt(k->squares / (double)(k->calls - 1))) : 0);
    emit_pct(e, "pct", all ? 100.0 * (double)k->sum / (double)all : NAN);
    emit_row_end(e);
}

static struct short_names short_names_of(struct session *session, const struct hta_frames *frames)
{
    struct short_names shorts = {0};
    uint32_t *name = NULL;
    size_t count = 0, capacity = 0;
    for (size_t i = 0; i < frames->count && session->options.names == NAMES_SHORT; i++) {
        for (size_t k = 0; k < frames->frame[i].count; k++) {
            name = mem_grow(name, &capacity, count + 1, sizeof *name);
            name[count++] = frames->frame[i].row[k].name;
        }
    }
    short_names_init(&shorts, &session->model.names, name, count);
    free(name);
    return shorts;
}

/* Returns the time of all kernels. */
static __int128 emit_kernels(struct session *session, const struct hta_frame *frame, const struct short_names *shorts,
                             size_t *rows)
{
    struct kernels kernels = {0};
    uint64_t top = session->options.top;
    __int128 all = 0;
    add_kernels(&kernels, frame);
    if (kernels.count) {
        qsort_r(kernels.kernel, kernels.count, sizeof *kernels.kernel, largest_first, &session->model);
    }
    for (size_t i = 0; i < kernels.count; i++) {
        all += kernels.kernel[i].sum;
    }
    for (size_t i = 0; i < kernels.count && (!top || i < top); i++) {
        emit_kernel(session, frame->rank, &kernels.kernel[i], all, shorts);
    }
    *rows += kernels.count;
    free(kernels.kernel);
    map_free(&kernels.by_name);
    return all;
}

void hta_breakdown(struct session *session)
{
    struct hta_frames frames;
    struct emit *e = &session->emit;
    __int128 all = 0;
    size_t kernels = 0;
    if (!hta_load(session) || !session_begin(session, STYLE_TABLE)) {
        return;
    }
    hta_frames(&frames, session);
    struct short_names shorts = short_names_of(session, &frames);
    for (size_t i = 0; i < frames.count; i++) {
        all += emit_kernels(session, &frames.frame[i], &shorts, &kernels);
    }
    short_names_free(&shorts);
    emit_totals(e);
    emit_us(e, "total_kernel_time_us", fitting(all));
    emit_count(e, "num_kernels", kernels);
    hta_end(&frames, session);
}
