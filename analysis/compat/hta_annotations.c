/* hta_annotations.c - gives each kernel its annotation, as get_gpu_kernels_with_user_annotations of HTA 0.5.0.
 *
 * HTA goes by the annotations' shadows on the device (category gpu_user_annotation), not by the launch. A kernel has the
 * shortest shadow of its device and stream that overlaps it; of equally long ones the one that HTA sorts last. A kernel is
 * any device row: copies, waits and the shadows themselves are kernels too. HTA compares all shadows with all kernels. Here
 * both are sorted, and a tree over the ends of the shadows finds the shortest one in logarithmic time.
 */
#include <math.h>
#include <stdlib.h>

#include "compat/hta.h"
#include "compat/hta_answer.h"

/* An annotation of one rank: get_gpu_kernels_with_user_annotations, counted and added up by annotation, and
 * its row of get_gpu_user_annotation_breakdown. */
struct annotation {
    uint32_t name; /* NAME_OUTSIDE: kernels without an annotation */
    uint64_t kernels;
    __int128 kernel_time;
    uint64_t calls; /* rows of the annotation itself */
    int64_t min, max;
    __int128 sum;
    double squares; /* sum of squared distances from the mean */
};

struct annotations {
    bool knows_kernels;            /* false: a row has a negative duration, and HTA raises an exception */
    struct annotation *annotation; /* the most kernel time first */
    size_t count, capacity;
};

/* A row of a stream: a kernel or a shadow. */
struct lane_row {
    const struct lane *lane;
    int64_t start, end;
    uint32_t name, times, work;
    bool is_device;
    uint32_t rank;   /* of a shadow: the greatest one that overlaps a kernel is its annotation */
    uint32_t by_end; /* of a shadow: its place in its stream, the last end first */
};

struct lane_rows {
    struct lane_row *row;
    size_t count, capacity;
};

/* ---- collecting ---- */

static void add_annotation(struct lane_rows *to, const struct hta_frame *frame, const struct hta_row *row,
                           bool is_device)
{
    const struct works *w = &frame->process->works;
    to->row = mem_grow(to->row, &to->capacity, to->count + 1, sizeof *to->row);
    to->row[to->count++] = (struct lane_row){.lane = &frame->process->lane[w->lane[row->work]],
                                             .start = row->start,
                                             .end = row->end,
                                             .name = row->name,
                                             .times = row->times,
                                             .work = row->work,
                                             .is_device = is_device};
}

static bool is_shadow(const struct hta_frame *frame, uint32_t work)
{
    return frame->process->works.event_class[work] == CLASS_DEVICE_ANNOTATION;
}

/* Shadows without a stream are in no analysis but this one, so the frame does not have them. */
static void collect_unstreamed(struct lane_rows *shadows, const struct hta_frame *frame)
{
    const struct process *p = frame->process;
    for (size_t i = 0; i < p->works.table.count; i++) {
        struct interval when = hta_times(p, p->works.start[i], p->works.end[i]);
        if (!is_shadow(frame, (uint32_t)i) || hta_stream(p, i) != -1 || !hta_keeps(frame, when.start)) continue;
        const struct hta_row row = {when.start, when.end, p->works.name[i], 1, (uint32_t)i, 0};
        add_annotation(shadows, frame, &row, false);
    }
}

static void collect(struct lane_rows *kernels, struct lane_rows *shadows, const struct hta_frame *frame,
                    const struct names *names)
{
    for (size_t i = 0; i < frame->count; i++) {
        const struct hta_row *row = &frame->row[i];
        if (row->work == NO_PLACE) continue;
        bool is_device = hta_is_device(frame->process, row->work, names);
        if (is_device) add_annotation(kernels, frame, row, true);
        if (is_shadow(frame, row->work)) add_annotation(shadows, frame, row, is_device);
    }
    for (size_t i = 0; i < frame->unstreamed_count; i++) add_annotation(kernels, frame, &frame->unstreamed[i], true);
    collect_unstreamed(shadows, frame);
}

/* ---- order ---- */

static int by_lane(const struct lane *x, const struct lane *y)
{
    return x->device != y->device ? by_number(x->device, y->device) : by_number(x->stream, y->stream);
}

/* HTA's order: by falling duration, equally long ones as they stand in the frame. */
static int by_duration(const void *a, const void *b)
{
    const struct lane_row *x = a, *y = b;
    int64_t long_x = x->end - x->start, long_y = y->end - y->start;
    return long_x != long_y               ? by_number(long_y, long_x)
           : x->is_device != y->is_device ? y->is_device - x->is_device
                                          : by_number(x->work, y->work);
}

static int annotations_by_start(const void *a, const void *b)
{
    const struct lane_row *x = a, *y = b;
    int lane = by_lane(x->lane, y->lane);
    return lane ? lane : x->start != y->start ? by_number(x->start, y->start) : by_number(x->rank, y->rank);
}

static int by_falling_end(const void *a, const void *b)
{
    const struct lane_row *x = a, *y = b;
    int lane = by_lane(x->lane, y->lane);
    return lane ? lane : x->end != y->end ? by_number(y->end, x->end) : by_number(x->rank, y->rank);
}

static int by_rising_end(const void *a, const void *b)
{
    const struct lane_row *x = a, *y = b;
    int lane = by_lane(x->lane, y->lane);
    return lane ? lane : by_number(x->end, y->end);
}

/* Without steps HTA's frame is in the order of the file, with steps it has the device rows first. */
static void sort_shadows(struct lane_rows *shadows, bool by_steps)
{
    struct lane_row *s = shadows->row;
    size_t count = shadows->count, place = 0;
    if (!count) return;
    for (size_t i = 0; i < count && !by_steps; i++) s[i].is_device = false;
    qsort(s, count, sizeof *s, by_duration);
    for (size_t i = 0; i < count; i++) s[i].rank = (uint32_t)i;
    qsort(s, count, sizeof *s, by_falling_end);
    for (size_t i = 0; i < count; i++) {
        place = i && by_lane(s[i].lane, s[i - 1].lane) == 0 ? place + 1 : 0;
        s[i].by_end = (uint32_t)place;
    }
}

/* ---- the shadow of each kernel ---- */

/* A Fenwick tree: the greatest rank + 1 among the first places. */
static void tree_put(uint32_t *tree, size_t size, size_t place, uint32_t rank)
{
    for (size_t i = place + 1; i <= size; i += i & -i) tree[i] = MAX(tree[i], rank + 1);
}

static uint32_t tree_greatest(const uint32_t *tree, size_t places)
{
    uint32_t greatest = 0;
    for (size_t i = places; i; i -= i & -i) greatest = MAX(greatest, tree[i]);
    return greatest;
}

/* Returns how many of the ends, which fall, are after `time`. */
static size_t ends_after(const int64_t *end, size_t count, int64_t time)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (end[middle] > time) low = middle + 1;
        else high = middle;
    }
    return low;
}

static struct annotation *row_of(struct annotations *to, struct map *place_of, uint32_t name)
{
    size_t place = map_number(place_of, name);
    if (place == to->count) {
        to->annotation = mem_grow(to->annotation, &to->capacity, to->count + 1, sizeof *to->annotation);
        to->annotation[to->count++] = (struct annotation){.name = name};
    }
    return &to->annotation[place];
}

/* Gives the kernels of one stream their shadows. Kernels are sorted by end, shadows by start. */
static void match(struct annotations *to, struct map *place_of, const struct lane_row *kernel, size_t kernels,
                  const struct lane_row *shadow, size_t shadows, const uint32_t *name_of_rank)
{
    uint32_t *tree = mem_zero(shadows + 1, sizeof *tree);
    int64_t *end = mem_zero(shadows, sizeof *end);
    size_t begun = 0;
    for (size_t i = 0; i < shadows; i++) end[shadow[i].by_end] = shadow[i].end;
    for (size_t i = 0; i < kernels; i++) {
        for (; begun < shadows && shadow[begun].start < kernel[i].end; begun++)
            tree_put(tree, shadows, shadow[begun].by_end, shadow[begun].rank);
        uint32_t found = tree_greatest(tree, ends_after(end, shadows, kernel[i].start));
        struct annotation *row = row_of(to, place_of, found ? name_of_rank[found - 1] : NAME_OUTSIDE);
        row->kernels += kernel[i].times;
        row->kernel_time += (__int128)(kernel[i].end - kernel[i].start) * kernel[i].times;
    }
    free(tree);
    free(end);
}

static void match_all(struct annotations *to, struct map *place_of, struct lane_rows *kernels,
                      struct lane_rows *shadows)
{
    uint32_t *name_of_rank = mem_zero(shadows->count, sizeof *name_of_rank);
    struct lane_row *k = kernels->row, *s = shadows->row;
    for (size_t i = 0; i < shadows->count; i++) name_of_rank[s[i].rank] = s[i].name;
    if (kernels->count) qsort(k, kernels->count, sizeof *k, by_rising_end);
    if (shadows->count) qsort(s, shadows->count, sizeof *s, annotations_by_start);
    for (size_t i = 0, first = 0, last; i < kernels->count;) {
        size_t end = i;
        while (end < kernels->count && by_lane(k[end].lane, k[i].lane) == 0) end++;
        while (first < shadows->count && by_lane(s[first].lane, k[i].lane) < 0) first++;
        for (last = first; last < shadows->count && by_lane(s[last].lane, k[i].lane) == 0;) last++;
        match(to, place_of, &k[i], end - i, &s[first], last - first, name_of_rank);
        first = last;
        i = end;
    }
    free(name_of_rank);
}

/* ---- the annotations themselves ---- */

static void describe(struct annotations *to, struct map *place_of, const struct lane_rows *shadows)
{
    const struct lane_row *s = shadows->row;
    for (size_t i = 0; i < shadows->count; i++) {
        struct annotation *row = row_of(to, place_of, s[i].name);
        int64_t time = s[i].end - s[i].start;
        row->min = row->calls ? MIN(row->min, time) : time;
        row->max = row->calls ? MAX(row->max, time) : time;
        row->calls += s[i].times;
        row->sum += (__int128)time * s[i].times;
    }
    for (size_t i = 0; i < shadows->count; i++) {
        struct annotation *row = row_of(to, place_of, s[i].name);
        double off = (double)(s[i].end - s[i].start) - (double)row->sum / (double)row->calls;
        row->squares += off * off * s[i].times;
    }
}

static int by_kernel_time(const void *a, const void *b, void *names)
{
    const struct annotation *x = a, *y = b;
    return x->kernel_time != y->kernel_time ? (x->kernel_time < y->kernel_time ? 1 : -1)
           : x->sum != y->sum               ? (x->sum < y->sum ? 1 : -1)
                                            : names_order(names, x->name, y->name);
}

static bool has_negative(const struct lane_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        if (rows->row[i].end < rows->row[i].start) return true;
    return false;
}

/* HTA has no answer if no annotation of any process is on a device. */
static bool has_annotations(const struct hta_frames *frames)
{
    for (size_t i = 0; i < frames->count; i++) {
        const struct works *w = &frames->frame[i].process->works;
        for (size_t k = 0; k < w->table.count; k++)
            if (w->event_class[k] == CLASS_DEVICE_ANNOTATION) return true;
    }
    return false;
}

static void take_frame(struct annotations *annotations, const struct hta_frame *frame, const struct names *names)
{
    struct lane_rows kernels = {0}, shadows = {0};
    struct map place_of = {0};
    *annotations = (struct annotations){0};
    collect(&kernels, &shadows, frame, names);
    annotations->knows_kernels = !has_negative(&kernels) && !has_negative(&shadows);
    sort_shadows(&shadows, frame->by_steps);
    describe(annotations, &place_of, &shadows);
    if (annotations->knows_kernels) match_all(annotations, &place_of, &kernels, &shadows);
    else row_of(annotations, &place_of, NAME_OUTSIDE);
    if (annotations->count)
        qsort_r(annotations->annotation, annotations->count, sizeof *annotations->annotation, by_kernel_time,
                (void *)names);
    map_free(&place_of);
    free(kernels.row);
    free(shadows.row);
}

/* ---- the answer ---- */

static void emit_calls(struct emit *e, const struct annotation *a)
{
    static const char *const keys[] = {"sum_us", "mean_us", "min_us", "max_us", "std_us"};
    emit_count(e, "calls", a->calls);
    if (!a->calls) {
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++) emit_null(e, keys[i]);
        return;
    }
    emit_us(e, "sum_us", hta_fitting(a->sum));
    emit_us(e, "mean_us", llround((double)a->sum / (double)a->calls));
    emit_us(e, "min_us", a->min);
    emit_us(e, "max_us", a->max);
    emit_us(e, "std_us", a->calls > 1 ? llround(sqrt(a->squares / (double)(a->calls - 1))) : 0); /* HTA's fillna */
}

static void emit_frame(struct session *session, const struct hta_frame *frame, uint64_t *shown)
{
    struct emit *e = &session->emit;
    struct annotations found;
    uint64_t top = session->options.top;
    take_frame(&found, frame, &session->model.names);
    if (!found.knows_kernels)
        complain(frame->path, "HTA's rules give no kernels: its rounding makes the duration of an event negative");
    for (size_t i = 0; i < found.count; i++) {
        const struct annotation *a = &found.annotation[i];
        if (top && *shown >= top) break;
        (*shown)++;
        emit_row(e);
        emit_known(e, "rank", frame->rank);
        emit_text(e, "annotation", model_name(&session->model, a->name));
        if (found.knows_kernels) {
            emit_count(e, "kernels", a->kernels);
            emit_us(e, "total_us", hta_fitting(a->kernel_time));
        } else {
            emit_null(e, "kernels");
            emit_null(e, "total_us");
        }
        emit_calls(e, a);
        emit_row_end(e);
    }
    free(found.annotation);
}

void hta_annotations(struct session *session)
{
    uint64_t shown = 0;
    if (!hta_begin(session)) return;
    emit_keys(&session->emit, "rank,annotation,kernels,total_us,calls,sum_us,mean_us,min_us,max_us,std_us");
    const struct hta_frames *frames = hta_frames(&session->chosen);
    bool has_any = has_annotations(frames);
    for (size_t i = 0; i < frames->count && has_any; i++) emit_frame(session, &frames->frame[i], &shown);
    if (!has_any)
        complain(NULL, "HTA's rules need annotations on a device (gpu_user_annotation), and the trace has none; "
                       "--rules exact goes by the launches");
    emit_totals(&session->emit);
    emit_count(&session->emit, "ranks", frames->count);
    emit_end(&session->emit);
    session_end(session, shown || !is_filtered(&session->options));
}
