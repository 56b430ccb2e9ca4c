/* hta_rows.c - finds the step of each event of a trace as HTA 0.5.0's LabeledTrace does.
 *
 * The steps, in the order of HTA's source:
 * - rows have dur and cat, and cat is not Trace; times are rounded as in ask/hta_frame.c;
 * - all rows whose name begins with ProfilerStep are steps, also their shadows on a device (add_iteration). A moment
 *   belongs to the last step in the file that covers it;
 * - a row without a stream belongs to the step of its start;
 * - a row with a stream above 0 belongs to the step of the host row with its correlation id, the last one in the file.
 *   HTA takes the number 0 of an event for none (transform_correlation_to_index);
 * - a row of stream 0 belongs to no step.
 * Unlike the frame of HTA's other analyses, this one keeps the last step.
 */
#include "ask/diff/hta_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pattern.h"
#include "read/kineto.h"

struct row {
    int64_t start, end;   /* nanoseconds of the file */
    uint64_t correlation; /* NO_ID: none */
    int64_t stream;       /* -1: none */
    uint32_t name, number;
};

struct step {
    int64_t start, end, number;
};

/* A stretch of time that belongs to one step. */
struct stretch {
    int64_t from;
    int64_t number; /* -1: no step */
};

struct rows {
    struct row *row;
    size_t count, capacity;
    struct names *names;
    bool is_float; /* some time of a row has a point */
    uint32_t events;
    struct step *step;
    size_t steps, step_capacity;
    struct stretch *stretch; /* sorted; each ends where the next begins */
    size_t stretches;
    struct map host; /* last host row, by correlation id */
};

/* ---- reading ---- */

static void take_event(void *context, const struct kineto_event *event)
{
    struct rows *rows = context;
    uint32_t number = rows->events;
    rows->events += rows->events < NO_PLACE - 1;
    if (!(event->has & HAS_DUR) || !event->category.at || !(event->has & HAS_TS) || !event->name.at ||
        slice_is(event->category, "Trace"))
        return;
    rows->is_float |= (event->has & HAS_FLOAT_TS) != 0;
    rows->row = mem_grow(rows->row, &rows->capacity, rows->count + 1, sizeof *rows->row);
    rows->row[rows->count++] = (struct row){.start = event->ts,
                                            .end = add_ns(event->ts, event->dur),
                                            .correlation = event->has & HAS_CORRELATION ? event->correlation : NO_ID,
                                            .stream = event->has & HAS_STREAM ? event->stream : -1,
                                            .name = names_add(rows->names, event->name.at, event->name.length),
                                            .number = number};
}

static void round_times(struct rows *rows)
{
    for (size_t i = 0; i < rows->count && rows->is_float; i++) {
        struct row *row = &rows->row[i];
        /* Nanoseconds since 1970 do not fit into a double. With a long double only the result is rounded. */
        double start = (double)((long double)row->start / 1000), duration = (double)(row->end - row->start) / 1000;
        row->start = (int64_t)ceil(start) * 1000;
        row->end = (int64_t)floor(start + duration) * 1000;
    }
}

/* ---- steps ---- */

static bool step_of_name(const struct rows *rows, uint32_t name, int64_t *number)
{
    static const char prefix[] = "ProfilerStep#";
    const char *text = names_get(rows->names, name)->text;
    uint64_t value;
    if (strncmp(text, prefix, sizeof prefix - 1) != 0 ||
        !tfi_whole_number(text + sizeof prefix - 1, 0, INT64_MAX, &value))
        return false;
    *number = (int64_t)value;
    return true;
}

static int by_from(const void *a, const void *b)
{
    const struct stretch *x = a, *y = b;
    return by_number(x->from, y->from);
}

/* Returns the number of stretches that begin at `time` or before. */
static size_t stretches_until(const struct rows *rows, int64_t time)
{
    size_t low = 0, high = rows->stretches;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (rows->stretch[middle].from <= time) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Returns the first stretch from `at` on that no step has taken; next[at] is `at` itself if it is free. */
static size_t free_one(size_t *next, size_t at)
{
    while (next[at] != at) {
        next[at] = next[next[at]];
        at = next[at];
    }
    return at;
}

/* Gives each stretch the last step that covers it: from the last step back to the first, each takes what is left. */
static void find_stretches(struct rows *rows)
{
    rows->stretch = mem_zero(2 * rows->steps + 1, sizeof *rows->stretch);
    for (size_t i = 0; i < rows->steps; i++) {
        rows->stretch[rows->stretches++] = (struct stretch){rows->step[i].start, -1};
        rows->stretch[rows->stretches++] = (struct stretch){rows->step[i].end, -1};
    }
    if (rows->stretches) qsort(rows->stretch, rows->stretches, sizeof *rows->stretch, by_from);
    size_t *next = mem_zero(rows->stretches + 1, sizeof *next);
    for (size_t i = 0; i <= rows->stretches; i++) next[i] = i;
    for (size_t i = rows->steps; i-- > 0;) {
        const struct step *step = &rows->step[i];
        size_t at = free_one(next, stretches_until(rows, step->start - 1));
        while (at < rows->stretches && rows->stretch[at].from < step->end) {
            rows->stretch[at].number = step->number;
            next[at] = at + 1;
            at = free_one(next, at + 1);
        }
    }
    free(next);
}

static void find_steps(struct rows *rows, struct diff_taken *taken)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct row *row = &rows->row[i];
        int64_t number;
        if (!step_of_name(rows, row->name, &number)) continue;
        rows->step = mem_grow(rows->step, &rows->step_capacity, rows->steps + 1, sizeof *rows->step);
        rows->step[rows->steps++] = (struct step){row->start, row->end, number};
        taken->first_step = taken->has_step ? MIN(taken->first_step, number) : number;
        taken->has_step = true;
    }
    find_stretches(rows);
}

/* Equal starts leave stretches without length, which are before the one that counts. */
static int64_t step_at(const struct rows *rows, int64_t time)
{
    size_t at = stretches_until(rows, time);
    return at ? rows->stretch[at - 1].number : -1;
}

/* ---- rows ---- */

static bool is_device(const struct rows *rows, const struct row *row)
{
    const char *name = names_get(rows->names, row->name)->text;
    return (row->stream >= 0 && row->correlation != NO_ID) || strcmp(name, "Event Sync") == 0 ||
           strcmp(name, "Context Sync") == 0;
}

static int64_t step_of(const struct rows *rows, const struct row *row)
{
    if (row->stream < 0) return step_at(rows, row->start);
    uint32_t host = row->correlation == NO_ID || !row->stream ? MAP_NONE : map_get(&rows->host, row->correlation);
    if (host == MAP_NONE || !rows->row[host].number) return -1;
    return step_at(rows, rows->row[host].start);
}

void hta_rows_take(struct diff_taken *taken, struct names *names, const struct process *process)
{
    struct rows rows = {.names = names};
    struct kineto_sink sink = {.context = &rows, .event = take_event};
    struct kineto_damage damage;
    struct notes notes = {0};
    if (!is_of_kineto(process)) return;
    kineto_read(process->path, &process->way, &sink, &damage, &notes, NULL);
    notes_free(&notes); /* loading has said them */
    round_times(&rows);
    find_steps(&rows, taken);
    for (size_t i = 0; i < rows.count; i++)
        if (rows.row[i].correlation != NO_ID && !is_device(&rows, &rows.row[i]))
            map_put(&rows.host, rows.row[i].correlation, (uint32_t)i);
    for (size_t i = 0; i < rows.count; i++) {
        const struct row *row = &rows.row[i];
        int64_t step = step_of(&rows, row);
        if (step >= 0)
            diff_take(taken, row->name, row->stream == -1 ? DIFF_HTA_HOST : DIFF_HTA_DEVICE, step,
                      row->end - row->start);
    }
    free(rows.row);
    free(rows.step);
    free(rows.stretch);
    map_free(&rows.host);
}
