/* hta_frame.c - loads a rank's device work the way HTA 0.5.0 does.
 *
 * The steps, in the order of HTA's source:
 * - rows have dur and cat (_compress_df), as every row of the model does;
 * - if some ts is a float, start = ceil(ts) and end = floor(ts + dur), in doubles of microseconds
 *   (round_down_time_stamps);
 * - `stream` is args.stream if that is a number, else -1 (normalize_gpu_stream_numbers); `correlation` likewise;
 * - a row is a device row if both are >= 0 or its name is Event Sync or Context Sync
 *   (_filter_gpu_kernels_with_cuda_sync);
 * - if all ranks together have two or more names that contain ProfilerStep (_filter_irrelevant_gpu_kernels): host rows
 *   are kept if they start before the last host row with such a name. Device rows are kept once for each kept host row
 *   with their correlation;
 * - every analysis takes the remaining rows with stream != -1. These include waits and annotations with a stream, and
 *   on the host Triton's operators, whose arguments name the stream of their kernel.
 */
#include "compat/hta_frame.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compat/file_us.h"
#include "compat/hta.h"
#include "pattern.h"

/* Numbers of host rows, by correlation, between the least and the largest correlation of the device rows. */
struct kept {
    uint64_t first, last;
    uint32_t *dense;   /* by correlation - first; NULL: the correlations are too far apart */
    struct map sparse; /* without `dense` */
    uint32_t other;    /* rows without a correlation */
};

struct loader {
    const struct selection *chosen;
    struct work_kinds kinds;
    bool by_steps;    /* there are two or more steps */
    bool *is_step;    /* by name */
    int64_t last;     /* start of the process's last step; INT64_MIN: no step */
    struct kept kept; /* the process's kept host rows */
};

/* ---- names ---- */

static void look_at_names(struct loader *loader)
{
    const struct names *names = &loader->chosen->model->names;
    loader->is_step = mem_zero(names->count, sizeof *loader->is_step);
    for (size_t i = 0; i < names->count; i++) {
        const struct name *name = names_get(names, (uint32_t)i);
        loader->is_step[i] = memmem(name->text, name->length, "ProfilerStep", strlen("ProfilerStep")) != NULL;
    }
}

/* Returns a key that differs between steps: the N of ProfilerStep#N, else the name. The model cuts the number off
 * the names of ranges and keeps it as the id. */
static uint64_t step_key(const struct loader *loader, uint32_t name, uint64_t id)
{
    const char *text = model_name(loader->chosen->model, name);
    const char *number = strchr(text, '#');
    uint64_t value;
    if (strcmp(text, "ProfilerStep*") == 0) return id;
    return number && tfi_whole_number(number + 1, 0, UINT64_MAX, &value) ? value : (uint64_t)name | UINT64_C(1) << 63;
}

/* Notes the name of a step; returns true if its key differs from the first step's. */
static bool other_step(const struct loader *loader, uint32_t name, uint64_t id, bool *any, uint64_t *first)
{
    if (!loader->is_step[name]) return false;
    uint64_t key = step_key(loader, name, id);
    *first = *any ? *first : key;
    *any = true;
    return key != *first;
}

static bool has_two_steps(const struct loader *loader)
{
    bool any = false, two = false;
    uint64_t first = 0;
    for (size_t i = 0; i < loader->chosen->processes && !two; i++) {
        const struct process *p = loader->chosen->process[i];
        for (size_t k = 0; k < p->ranges.table.count && !two; k++)
            two = other_step(loader, p->ranges.name[k], p->ranges.id[k], &any, &first);
        for (size_t k = 0; k < p->spans.table.count && !two; k++)
            two = other_step(loader, p->spans.name[k], 0, &any, &first);
        for (size_t k = 0; k < p->works.table.count && !two; k++)
            two = other_step(loader, p->works.name[k], 0, &any, &first);
    }
    return two;
}

/* ---- rows ---- */

struct interval hta_times(const struct process *process, int64_t start, int64_t end)
{
    if (!process->has_float_ts) return (struct interval){start, end};
    double ts = file_us(process, start), dur = (double)(end - start) / 1000;
    return (struct interval){(int64_t)ceil(ts) * 1000, (int64_t)floor(ts + dur) * 1000};
}

int64_t hta_stream(const struct process *process, size_t work)
{
    const struct lane *lane = &process->lane[process->works.lane[work]];
    return lane->has_stream ? lane->stream : -1;
}

bool hta_is_device(const struct process *process, size_t work, const struct names *names)
{
    const struct works *w = &process->works;
    if (hta_stream(process, work) >= 0 && w->correlation[work] != NO_ID) return true;
    const char *name = names_get(names, w->name[work])->text;
    return strcmp(name, "Event Sync") == 0 || strcmp(name, "Context Sync") == 0;
}

static bool is_device(const struct loader *loader, const struct process *p, size_t work)
{
    return hta_is_device(p, work, &loader->chosen->model->names);
}

bool hta_keeps(const struct hta_frame *frame, int64_t start)
{
    return !frame->by_steps || start < frame->last;
}

/* ---- rows that are kept ---- */

static void find_last_step(struct loader *loader, const struct process *p)
{
    loader->last = INT64_MIN;
    for (size_t i = 0; i < p->ranges.table.count; i++)
        if (loader->is_step[p->ranges.name[i]])
            loader->last = MAX(loader->last, hta_times(p, p->ranges.start[i], p->ranges.end[i]).start);
    for (size_t i = 0; i < p->spans.table.count; i++)
        if (loader->is_step[p->spans.name[i]])
            loader->last = MAX(loader->last, hta_times(p, p->spans.start[i], p->spans.end[i]).start);
    for (size_t i = 0; i < p->works.table.count; i++)
        if (loader->is_step[p->works.name[i]] && !is_device(loader, p, i))
            loader->last = MAX(loader->last, hta_times(p, p->works.start[i], p->works.end[i]).start);
}

static void kept_free(struct kept *kept)
{
    free(kept->dense);
    map_free(&kept->sparse);
}

/* Makes room for the correlations of the process's works. Those of really recorded traces are close together. */
static void kept_init(struct kept *kept, const struct process *p)
{
    enum { MOST_EACH = 4 };
    const struct works *works = &p->works;
    kept_free(kept);
    *kept = (struct kept){.first = UINT64_MAX};
    for (size_t i = 0; i < works->table.count; i++) {
        if (works->correlation[i] == NO_ID) continue;
        kept->first = MIN(kept->first, works->correlation[i]);
        kept->last = MAX(kept->last, works->correlation[i]);
    }
    if (kept->first <= kept->last && kept->last - kept->first < MOST_EACH * (works->table.count + p->spans.table.count))
        kept->dense = mem_zero(kept->last - kept->first + 1, sizeof *kept->dense);
}

/* Returns the number of kept host rows with a correlation of the process's works. */
static uint32_t kept_times(const struct kept *kept, uint64_t correlation)
{
    if (kept->dense) return kept->dense[correlation - kept->first];
    uint32_t times = map_get(&kept->sparse, correlation);
    return times == MAP_NONE ? 0 : times;
}

static void keep_row(struct loader *loader, struct interval row, uint64_t correlation)
{
    if (row.start >= loader->last) return;
    struct kept *kept = &loader->kept;
    if (correlation == NO_ID) {
        kept->other++;
    } else if (correlation >= kept->first && correlation <= kept->last) {
        if (kept->dense) kept->dense[correlation - kept->first]++;
        else map_put(&kept->sparse, correlation, kept_times(kept, correlation) + 1);
    }
}

static void keep_host(struct loader *loader, const struct process *p)
{
    kept_init(&loader->kept, p);
    for (size_t i = 0; i < p->ranges.table.count; i++)
        keep_row(loader, hta_times(p, p->ranges.start[i], p->ranges.end[i]), NO_ID);
    for (size_t i = 0; i < p->spans.table.count; i++) {
        bool call = p->spans.event_class[i] == CLASS_API; /* an operator's id is not a correlation id */
        keep_row(loader, hta_times(p, p->spans.start[i], p->spans.end[i]), call ? p->spans.id[i] : NO_ID);
    }
    for (size_t i = 0; i < p->works.table.count; i++)
        if (!is_device(loader, p, i))
            keep_row(loader, hta_times(p, p->works.start[i], p->works.end[i]), p->works.correlation[i]);
}

/* Returns how often a row is in the frame. */
static uint32_t times_of(const struct loader *loader, const struct process *p, size_t work, struct interval row)
{
    if (!loader->by_steps) return 1;
    if (!is_device(loader, p, work)) return row.start < loader->last;
    if (p->works.correlation[work] == NO_ID) return loader->kept.other;
    return kept_times(&loader->kept, p->works.correlation[work]);
}

static void add_row(struct hta_frame *frame, struct hta_row row)
{
    frame->row = mem_grow(frame->row, &frame->capacity, frame->count + 1, sizeof *frame->row);
    frame->row[frame->count++] = row;
}

static void add_hidden(struct hta_frame *frame, struct hta_row row)
{
    frame->hidden = mem_grow(frame->hidden, &frame->hidden_capacity, frame->hidden_count + 1, sizeof *frame->hidden);
    frame->hidden[frame->hidden_count++] = row;
}

static void add_unstreamed(struct hta_frame *frame, struct interval when, uint32_t times, size_t work)
{
    frame->unstreamed = mem_grow(frame->unstreamed, &frame->unstreamed_capacity, frame->unstreamed_count + 1,
                                 sizeof *frame->unstreamed);
    frame->unstreamed[frame->unstreamed_count++] =
        (struct hta_row){when.start, when.end, frame->process->works.name[work], times, (uint32_t)work, WORK_OTHER};
}

/* Loads operators with a stream. They are host rows, so a filter by device or stream leaves them out. */
static void load_operators(struct loader *loader, struct hta_frame *frame, const struct process *p)
{
    const struct options *options = loader->chosen->options;
    for (size_t i = 0; i < p->streamed_count && !options->device.count && !options->stream.count; i++) {
        size_t span = p->streamed[i];
        struct interval row = hta_times(p, p->spans.start[span], p->spans.end[span]);
        uint32_t name = p->spans.name[span];
        if (!loader->by_steps || row.start < loader->last)
            add_row(frame, (struct hta_row){row.start, row.end, name, 1, NO_PLACE,
                                            (uint8_t)work_kind(&loader->kinds, CLASS_OPERATOR, name)});
    }
}

static void load(struct loader *loader, struct hta_frame *frame, const struct process *p)
{
    const struct options *options = loader->chosen->options;
    if (loader->by_steps) {
        find_last_step(loader, p);
        keep_host(loader, p);
    }
    for (size_t i = 0; i < p->works.table.count; i++) {
        const struct lane *lane = &p->lane[p->works.lane[i]];
        struct interval row = hta_times(p, p->works.start[i], p->works.end[i]);
        uint32_t times = times_of(loader, p, i, row), name = p->works.name[i];
        if (p->numbers.work && p->numbers.work[i] == 0) frame->first_times = times;
        if (hta_stream(p, i) == -1 && times && is_device(loader, p, i)) add_unstreamed(frame, row, times, i);
        if (hta_stream(p, i) == -1 || !times) continue;
        struct hta_row found = {row.start, row.end, name, times, (uint32_t)i, WORK_OTHER};
        if (!list_has(&options->device, lane->device) || !list_has(&options->stream, lane->stream)) {
            add_hidden(frame, found);
        } else {
            found.kind = (uint8_t)work_kind(&loader->kinds, p->works.event_class[i], name);
            add_row(frame, found);
        }
    }
    load_operators(loader, frame, p);
}

/* Returns the start of the file's first event. */
static int64_t first_of(const struct process *p)
{
    return hta_times(p, p->numbers.first, p->numbers.first).start;
}

/* ---- frames ---- */

static int by_rank(const void *a, const void *b)
{
    const struct hta_frame *x = a, *y = b;
    return x->rank != y->rank ? (x->rank > y->rank ? 1 : -1) : strcmp(x->path, y->path);
}

static void make(struct hta_frames *frames, const struct selection *chosen)
{
    struct loader loader = {.chosen = chosen};
    *frames = (struct hta_frames){.count = chosen->processes};
    frames->frame = mem_zero(frames->count, sizeof *frames->frame);
    work_kinds_init(&loader.kinds, &hta_kind_rules, &chosen->model->names);
    look_at_names(&loader);
    loader.by_steps = has_two_steps(&loader);
    for (size_t i = 0; i < frames->count; i++) {
        const struct process *process = chosen->process[i];
        frames->frame[i].rank = process->rank;
        frames->frame[i].path = process->path;
        frames->frame[i].process = process;
        frames->frame[i].by_steps = loader.by_steps;
        load(&loader, &frames->frame[i], process);
        frames->frame[i].last = loader.last;
        if (process->numbers.has_first && !(process->works.table.count && process->numbers.work[0] == 0))
            frames->frame[i].first_times = hta_keeps(&frames->frame[i], first_of(process));
        frames->rows += frames->frame[i].count;
    }
    qsort(frames->frame, frames->count, sizeof *frames->frame, by_rank);
    work_kinds_free(&loader.kinds);
    kept_free(&loader.kept);
    free(loader.is_step);
}

static void free_frames(void *data)
{
    struct hta_frames *frames = data;
    for (size_t i = 0; i < frames->count; i++) {
        free(frames->frame[i].row);
        free(frames->frame[i].unstreamed);
        free(frames->frame[i].hidden);
    }
    free(frames->frame);
    free(frames);
}

const struct hta_frames *hta_frames(const struct selection *chosen)
{
    struct shared_once *once = chosen->compat;
    mem_hold(&once->lock);
    if (!once->data) {
        struct hta_frames *frames = mem_zero(1, sizeof *frames);
        make(frames, chosen);
        once->free = free_frames;
        once->data = frames;
    }
    const struct hta_frames *found = once->data;
    mem_release(&once->lock);
    return found;
}
