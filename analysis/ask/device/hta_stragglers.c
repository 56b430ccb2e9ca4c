/* hta_stragglers.c - finds the stragglers of a job by HTA's rules.
 *
 * The steps, in the order of HTA's source:
 * - a host row is in the step whose row, on the host or the device, is the last one in the file that is open when it
 *   starts. A device row with a stream above 0 is in the step of the last host row with its correlation id, unless that
 *   is the file's first event. Other rows are in no step (add_iteration);
 * - steps are those with a row left after the last step was cut off (get_profiler_steps);
 * - the mean step time is the span of all rows in steps over the number of steps;
 * - of kernels whose names begin with ncclKernel and that last a hundredth of it or longer, the last one in the file
 *   counts, for each rank, stream, step above 0 and name;
 * - the stream and name with the largest deviation of durations over ranks, as a mean over steps, are chosen;
 * - in each step the latest of these kernels count for their ranks; the ranks with most counts are the answer.
 */
#include "ask/device/hta_stragglers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/timeline.h"
#include "pattern.h"

enum { NO_STEP = UINT32_MAX };

/* A row of a step, or a stretch of time in which a step is the one that counts. */
struct stretch {
    double start, end;
    uint32_t number, step; /* number: place in the file */
};

struct stretches {
    struct stretch *stretch;
    size_t count, capacity;
};

/* A kernel that may be chosen. */
struct candidate {
    int64_t rank, stream;
    uint32_t step, name, number;
    double start, duration;
};

struct search {
    const struct names *names;
    struct stretches steps, pieces; /* of one rank: its steps in the file, and who counts when */
    struct map launch;              /* of one rank: index in `launched`, by correlation */
    struct launch {
        uint32_t number;
        double start;
    } * launched;
    size_t launches, launch_capacity;
    struct map valid; /* steps with a row */
    struct map used;  /* those of them in which there are other rows */
    double first, last;
    struct candidate *candidate;
    size_t candidates, capacity;
    bool is_bad; /* a step without a number */
};

/* ---- rows ---- */

/* Returns the times in the file's microseconds. */
static struct stretch times_of(const struct process *p, int64_t start, int64_t end)
{
    double ts = file_us(p, start), dur = (double)(end - start) / 1000;
    if (p->has_float_ts) return (struct stretch){.start = ceil(ts), .end = floor(ts + dur)};
    return (struct stretch){.start = ts, .end = ts + dur};
}

static void add_stretch(struct stretches *to, struct stretch stretch)
{
    to->stretch = mem_grow(to->stretch, &to->capacity, to->count + 1, sizeof *to->stretch);
    to->stretch[to->count++] = stretch;
}

/* Reads "ProfilerStep#7". Returns false if the name is not that of a step. */
static bool read_step(struct search *s, uint32_t name, uint32_t *step)
{
    const struct name *n = names_get(s->names, name);
    uint64_t value = 0;
    if (n->length < 12 || memcmp(n->text, "ProfilerStep", 12) != 0) return false;
    const char *p = n->text + 12;
    while (*p == ' ' || *p == '\t') p++;
    if (*p == '#') p++;
    else s->is_bad = true;
    while (*p == ' ' || *p == '\t') p++;
    size_t digits = strspn(p, "0123456789");
    char number[16] = {0};
    s->is_bad |= !digits || digits >= sizeof number;
    memcpy(number, p, MIN(digits, sizeof number - 1));
    if (!tfi_whole_number(number, 0, UINT32_MAX - 1, &value)) s->is_bad = true;
    *step = (uint32_t)value;
    return true;
}

static uint32_t number_of(const uint32_t *numbers, size_t at)
{
    return numbers ? numbers[at] : (uint32_t)at;
}

/* ---- the step of a moment ---- */

static void find_steps(struct search *s, const struct process *p)
{
    s->steps.count = 0;
    for (size_t i = 0; i < p->ranges.table.count; i++) {
        if (p->ranges.step[i] == NO_PLACE) continue;
        struct stretch row = times_of(p, p->ranges.start[i], p->ranges.end[i]);
        row.number = number_of(p->numbers.range, i);
        row.step = p->ranges.step[i];
        add_stretch(&s->steps, row);
    }
    for (size_t i = 0; i < p->works.table.count; i++) {
        struct stretch row = times_of(p, p->works.start[i], p->works.end[i]);
        row.number = number_of(p->numbers.work, i);
        if (read_step(s, p->works.name[i], &row.step)) add_stretch(&s->steps, row);
    }
}

static int by_start(const void *a, const void *b)
{
    const struct stretch *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Keeps the open steps in a heap, with the last one of the file on top. */
static void push(struct stretch *heap, size_t *count, struct stretch row)
{
    size_t at = (*count)++;
    for (; at && heap[(at - 1) / 2].number < row.number; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = row;
}

static void pop(struct stretch *heap, size_t *count)
{
    struct stretch row = heap[--*count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < *count; at = child) {
        child += child + 1 < *count && heap[child + 1].number > heap[child].number;
        if (heap[child].number < row.number) break;
        heap[at] = heap[child];
    }
    heap[at] = row;
}

static void find_pieces(struct search *s)
{
    struct stretch *heap = mem_zero(s->steps.count, sizeof *heap);
    double *edge = mem_zero(2 * s->steps.count, sizeof *edge);
    size_t open = 0, next = 0;
    s->pieces.count = 0;
    if (s->steps.count) qsort(s->steps.stretch, s->steps.count, sizeof *s->steps.stretch, by_start);
    for (size_t i = 0; i < s->steps.count; i++) {
        edge[2 * i] = s->steps.stretch[i].start;
        edge[2 * i + 1] = s->steps.stretch[i].end;
    }
    if (s->steps.count) qsort(edge, 2 * s->steps.count, sizeof *edge, by_double);
    for (size_t i = 0; i < 2 * s->steps.count; i++) {
        for (; next < s->steps.count && s->steps.stretch[next].start <= edge[i]; next++)
            push(heap, &open, s->steps.stretch[next]);
        while (open && heap[0].end <= edge[i]) pop(heap, &open);
        add_stretch(&s->pieces, (struct stretch){.start = edge[i], .step = open ? heap[0].step : NO_STEP});
    }
    free(heap);
    free(edge);
}

static uint32_t step_at(const struct search *s, double time)
{
    size_t low = 0, high = s->pieces.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (s->pieces.stretch[middle].start <= time) low = middle + 1;
        else high = middle;
    }
    return low ? s->pieces.stretch[low - 1].step : NO_STEP;
}

/* ---- launches ---- */

static void add_launch(struct search *s, uint64_t correlation, uint32_t number, double start)
{
    if (correlation == NO_ID) return;
    uint32_t at = map_get(&s->launch, correlation);
    if (at == MAP_NONE) {
        s->launched = mem_grow(s->launched, &s->launch_capacity, s->launches + 1, sizeof *s->launched);
        at = (uint32_t)s->launches++;
        s->launched[at] = (struct launch){number, start};
        map_put(&s->launch, correlation, at);
    } else if (number > s->launched[at].number) {
        s->launched[at] = (struct launch){number, start};
    }
}

static void find_launches(struct search *s, const struct process *p)
{
    map_free(&s->launch);
    s->launch = (struct map){0};
    s->launches = 0;
    for (size_t i = 0; i < p->spans.table.count; i++)
        if (p->spans.event_class[i] == CLASS_API)
            add_launch(s, p->spans.id[i], number_of(p->numbers.span, i),
                       times_of(p, p->spans.start[i], p->spans.end[i]).start);
    for (size_t i = 0; i < p->works.table.count; i++)
        if (!hta_is_device(p, i, s->names))
            add_launch(s, p->works.correlation[i], number_of(p->numbers.work, i),
                       times_of(p, p->works.start[i], p->works.end[i]).start);
}

static uint32_t step_of_work(const struct search *s, const struct process *p, size_t work)
{
    int64_t stream = hta_stream(p, work);
    if (stream < 0) return step_at(s, times_of(p, p->works.start[work], p->works.end[work]).start);
    if (!stream || p->works.correlation[work] == NO_ID) return NO_STEP;
    uint32_t at = map_get(&s->launch, p->works.correlation[work]);
    return at == MAP_NONE || !s->launched[at].number ? NO_STEP : step_at(s, s->launched[at].start);
}

/* ---- the rows of all ranks ---- */

/* Calls `take` for each row of a frame: `work` is NO_PLACE for a host row, `name` NAME_NONE for one that is no step. */
static void each_row(struct search *s, const struct hta_frame *frame,
                     void (*take)(struct search *s, const struct hta_frame *frame, struct stretch row, size_t work))
{
    const struct process *p = frame->process;
    size_t streamed = 0;
    for (size_t i = 0; i < p->ranges.table.count; i++) {
        if (!hta_keeps(frame, hta_times(p, p->ranges.start[i], p->ranges.end[i]).start)) continue;
        struct stretch row = times_of(p, p->ranges.start[i], p->ranges.end[i]);
        row.step = p->ranges.step[i] == NO_PLACE ? NO_STEP : p->ranges.step[i];
        take(s, frame, row, NO_PLACE);
    }
    for (size_t i = 0; i < p->spans.table.count; i++) {
        bool has_stream = streamed < p->streamed_count && p->streamed[streamed] == i;
        streamed += has_stream;
        if (has_stream || !hta_keeps(frame, hta_times(p, p->spans.start[i], p->spans.end[i]).start)) continue;
        struct stretch row = times_of(p, p->spans.start[i], p->spans.end[i]);
        row.step = NO_STEP;
        take(s, frame, row, NO_PLACE);
    }
    for (size_t i = 0; i < frame->count + frame->unstreamed_count; i++) {
        const struct hta_row *row = i < frame->count ? &frame->row[i] : &frame->unstreamed[i - frame->count];
        if (row->work != NO_PLACE)
            take(s, frame, times_of(p, p->works.start[row->work], p->works.end[row->work]), row->work);
    }
    for (size_t i = 0; i < p->works.table.count; i++)
        if (hta_stream(p, i) < 0 && !hta_is_device(p, i, s->names) &&
            hta_keeps(frame, hta_times(p, p->works.start[i], p->works.end[i]).start))
            take(s, frame, times_of(p, p->works.start[i], p->works.end[i]), i);
}

static void take_step(struct search *s, const struct hta_frame *frame, struct stretch row, size_t work)
{
    uint32_t step = row.step;
    bool is_step = work == NO_PLACE ? step != NO_STEP : read_step(s, frame->process->works.name[work], &step);
    if (is_step) map_put(&s->valid, step, 1);
}

static void take_row(struct search *s, const struct hta_frame *frame, struct stretch row, size_t work)
{
    const struct process *p = frame->process;
    uint32_t step = work == NO_PLACE ? step_at(s, row.start) : step_of_work(s, p, work);
    if (step == NO_STEP || map_get(&s->valid, step) == MAP_NONE) return;
    s->first = s->used.count ? fmin(s->first, row.start) : row.start;
    s->last = s->used.count ? fmax(s->last, row.end) : row.end;
    map_put(&s->used, step, 1);
    if (work == NO_PLACE || hta_stream(p, work) <= 0 || !step) return;
    const struct name *name = names_get(s->names, p->works.name[work]);
    if (name->length < 10 || memcmp(name->text, "ncclKernel", 10) != 0) return;
    s->candidate = mem_grow(s->candidate, &s->capacity, s->candidates + 1, sizeof *s->candidate);
    s->candidate[s->candidates++] = (struct candidate){.rank = MAX(frame->rank, 0),
                                                       .stream = hta_stream(p, work),
                                                       .step = step,
                                                       .name = p->works.name[work],
                                                       .number = number_of(p->numbers.work, work),
                                                       .start = row.start,
                                                       .duration = row.end - row.start};
}

/* ---- the kernel ---- */

static int by_name(const struct candidate *x, const struct candidate *y)
{
    return x->stream != y->stream ? (x->stream < y->stream ? -1 : 1) : by_number(x->name, y->name);
}

/* By kernel, step, rank and place in the file. */
static int by_kernel(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    int order = by_name(x, y);
    if (order) return order;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1) : by_number(x->number, y->number);
}

/* Keeps the long ones, and of each rank, step and kernel the last one. */
static void keep_last(struct search *s, double least)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->candidates; i++)
        if (s->candidate[i].duration >= least) s->candidate[kept++] = s->candidate[i];
    s->candidates = kept;
    if (kept) qsort(s->candidate, kept, sizeof *s->candidate, by_kernel);
    kept = 0;
    for (size_t i = 0; i < s->candidates; i++) {
        const struct candidate *c = &s->candidate[i];
        const struct candidate *before = kept ? &s->candidate[kept - 1] : NULL;
        bool is_same = before && !by_name(before, c) && before->step == c->step && before->rank == c->rank;
        s->candidate[is_same ? kept - 1 : kept++] = *c;
    }
    s->candidates = kept;
}

/* Returns the deviation of the durations of one step, NAN of a single rank. */
static double deviation(const struct candidate *c, size_t count, double step)
{
    double mean = 0, squares = 0;
    for (size_t i = 0; i < count; i++) mean += c[i].duration / step / (double)count;
    for (size_t i = 0; i < count; i++) squares += pow(c[i].duration / step - mean, 2);
    return count < 2 ? NAN : sqrt(squares / (double)(count - 1));
}

/* Finds the kernel whose durations differ most. Returns its first candidate and their number, 0 if there is none. */
static size_t choose(const struct search *s, double step, size_t *first)
{
    double most = -1;
    size_t chosen = 0;
    for (size_t begin = 0, end; begin < s->candidates; begin = end) {
        double sum = 0;
        size_t steps = 0;
        for (end = begin; end < s->candidates && !by_name(&s->candidate[begin], &s->candidate[end]);) {
            size_t from = end;
            while (end < s->candidates && !by_name(&s->candidate[begin], &s->candidate[end]) &&
                   s->candidate[end].step == s->candidate[from].step)
                end++;
            double found = deviation(&s->candidate[from], end - from, step);
            if (isnan(found)) continue;
            sum += found;
            steps++;
        }
        if (!steps || sum / (double)steps <= most) continue;
        most = sum / (double)steps;
        *first = begin;
        chosen = end - begin;
    }
    return chosen;
}

/* ---- the ranks ---- */

/* The candidates are those of one kernel, by step. Returns false if a step has fewer ranks than are asked for. */
static bool mark_latest(struct hta_stragglers *found, size_t candidates)
{
    for (size_t begin = 0, end; begin < found->lates; begin = end) {
        for (end = begin; end < found->lates && found->late[end].step == found->late[begin].step;) end++;
        size_t count = end - begin;
        if (count < candidates) return false;
        double *start = mem_zero(count, sizeof *start);
        for (size_t i = 0; i < count; i++) start[i] = found->late[begin + i].start;
        qsort(start, count, sizeof *start, by_double);
        double threshold = start[count - candidates];
        for (size_t i = begin; i < end; i++) found->late[i].is_late = found->late[i].start >= threshold;
        free(start);
    }
    return true;
}

static int by_rank(const void *a, const void *b)
{
    const struct hta_late *x = a, *y = b;
    return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1) : by_number(x->step, y->step);
}

static int by_steps(const void *a, const void *b)
{
    const struct hta_straggler *x = a, *y = b;
    if (x->steps != y->steps) return x->steps > y->steps ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static void count_ranks(struct hta_stragglers *found, size_t candidates)
{
    found->rank = mem_zero(found->lates, sizeof *found->rank);
    qsort(found->late, found->lates, sizeof *found->late, by_rank);
    for (size_t i = 0; i < found->lates; i++) {
        if (!found->count || found->rank[found->count - 1].rank != found->late[i].rank)
            found->rank[found->count++] = (struct hta_straggler){found->late[i].rank, 0};
        found->rank[found->count - 1].steps += found->late[i].is_late;
    }
    qsort(found->rank, found->count, sizeof *found->rank, by_steps);
    found->count = MIN(found->count, candidates);
}

static const char *find(struct hta_stragglers *found, struct search *s, size_t candidates)
{
    size_t first = 0;
    if (s->is_bad) return "a step has no number";
    if (!s->used.count) return "there are no steps";
    found->steps = s->used.count;
    found->step_us = (s->last - s->first) / (double)s->used.count;
    keep_last(s, found->step_us * 0.01);
    found->lates = choose(s, found->step_us, &first);
    if (!found->lates) return "no long kernel `ncclKernel...` is in the same step of two ranks";
    found->stream = s->candidate[first].stream;
    found->name = s->candidate[first].name;
    found->late = mem_zero(found->lates, sizeof *found->late);
    for (size_t i = 0; i < found->lates; i++) {
        const struct candidate *c = &s->candidate[first + i];
        found->late[i] = (struct hta_late){c->rank, c->step, (c->start - s->first) / found->step_us, false};
    }
    if (!mark_latest(found, candidates)) return "a step has its kernel in fewer ranks than are asked for";
    count_ranks(found, candidates);
    return NULL;
}

static void look_at(struct search *s, const struct hta_frame *frame)
{
    find_steps(s, frame->process);
    find_pieces(s);
    find_launches(s, frame->process);
    each_row(s, frame, take_row);
}

const char *hta_stragglers(struct hta_stragglers *found, const struct hta_frames *frames, const struct names *names,
                           size_t candidates)
{
    struct search s = {.names = names};
    *found = (struct hta_stragglers){.stream = -1};
    for (size_t i = 0; i < frames->count; i++) each_row(&s, &frames->frame[i], take_step);
    for (size_t i = 0; i < frames->count; i++) look_at(&s, &frames->frame[i]);
    const char *fault = find(found, &s, candidates);
    free(s.steps.stretch);
    free(s.pieces.stretch);
    map_free(&s.launch);
    free(s.launched);
    map_free(&s.valid);
    map_free(&s.used);
    free(s.candidate);
    return fault;
}

void hta_stragglers_free(struct hta_stragglers *found)
{
    free(found->rank);
    free(found->late);
    *found = (struct hta_stragglers){0};
}
