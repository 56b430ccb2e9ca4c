/* hta_depths.c - links the rows of HTA 0.5.0, and computes the depth of the launch queue at each of them. */
#include <stdlib.h>
#include <string.h>

#include "ask/critical/hta_parts.h"

/* ---- links ---- */

static void keep(struct hta_links *links, const struct hta_row *row, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (row[i].work == NO_PLACE) continue;
        links->kept[row[i].work] = true;
        links->is_repeated |= row[i].times > 1;
    }
}

void hta_links(struct hta_links *links, const struct hta_frame *frame, const struct names *names)
{
    const struct process *p = frame->process;
    *links = (struct hta_links){.frame = frame, .process = p, .names = names};
    hta_calls(&links->calls, frame, names);
    for (size_t i = 0; i < p->works.table.count; i++)
        if (p->works.correlation[i] != NO_ID && hta_is_device(p, i, names))
            map_put(&links->linked, p->works.correlation[i], (uint32_t)i);
    links->kept = mem_zero(p->works.table.count, sizeof *links->kept);
    keep(links, frame->row, frame->count);
    keep(links, frame->unstreamed, frame->unstreamed_count);
}

void hta_links_free(struct hta_links *links)
{
    hta_calls_free(&links->calls);
    map_free(&links->linked);
    free(links->kept);
}

uint32_t hta_work_of(const struct hta_links *links, uint32_t call)
{
    const uint32_t *number = links->process->numbers.work;
    uint32_t work = map_get(&links->linked, links->calls.call[call].correlation);
    return work == MAP_NONE || (number && number[work] == 0) ? NO_PLACE : work;
}

uint32_t hta_call_of(const struct hta_links *links, uint32_t work)
{
    uint64_t correlation = links->process->works.correlation[work];
    if (correlation == NO_ID || !hta_is_device(links->process, work, links->names)) return NO_PLACE;
    uint32_t call = map_get(&links->calls.last, correlation);
    bool is_first = call != MAP_NONE && links->process->numbers.span && links->calls.call[call].number == 0;
    return call == MAP_NONE || is_first ? NO_PLACE : call;
}

bool hta_is_named(const struct hta_links *links, uint32_t name, const char *text)
{
    return strcmp(names_get(links->names, name)->text, text) == 0;
}

/* ---- depths ---- */

/* A change of the depth of a stream, in the order of HTA's table: launches before device rows. */
struct change {
    int64_t stream, time;
    uint32_t call; /* NO_PLACE: the work begins */
    uint32_t work;
};

static int by_time(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    if (x->stream != y->stream) return by_number(x->stream, y->stream);
    if (x->time != y->time) return by_number(x->time, y->time);
    if (x->call != y->call) return by_number(x->call, y->call);
    return by_number(x->work, y->work);
}

static int by_call(const void *a, const void *b)
{
    const struct hta_depth *x = a, *y = b;
    if (x->call != y->call) return by_number(x->call, y->call);
    return x->stream != y->stream ? by_number(x->stream, y->stream) : by_number(x->time, y->time);
}

/* Finds the launch of each correlation id. */
static struct map find_launches(const struct hta_links *links, uint64_t *calls)
{
    struct map launches = {0};
    for (size_t i = 0; i < links->calls.count; i++) {
        const struct hta_call *call = &links->calls.call[i];
        if (!call->kept || hta_work_of(links, (uint32_t)i) == NO_PLACE ||
            !hta_is_launch(names_get(links->names, call->name)->text))
            continue;
        map_put(&launches, call->correlation, (uint32_t)i);
        (*calls)++;
    }
    return launches;
}

static void add_depths(struct hta_depths *depths, const struct change *change, size_t changes)
{
    int32_t depth = 0;
    for (size_t i = 0; i < changes; i++) {
        depth = i && change[i].stream == change[i - 1].stream ? depth : 0;
        depth += change[i].call == NO_PLACE ? -1 : 1;
        if (change[i].call == NO_PLACE) depths->of_work[change[i].work] = depth;
        else depths->one[depths->count++] = (struct hta_depth){change[i].call, change[i].stream, 0, depth};
    }
    for (size_t i = 0; i < depths->count; i++) depths->one[i].time = (int64_t)i;
    if (depths->count) qsort(depths->one, depths->count, sizeof *depths->one, by_call);
}

const char *hta_depths(struct hta_depths *depths, const struct hta_links *links)
{
    const struct works *w = &links->process->works;
    const struct hta_frame *frame = links->frame;
    uint64_t calls = 0;
    struct map launches = find_launches(links, &calls), met = {0};
    struct change *change = mem_zero(2 * frame->count, sizeof *change);
    size_t changes = 0;
    *depths = (struct hta_depths){.of_work = mem_zero(w->table.count, sizeof *depths->of_work)};
    for (size_t i = 0; i < w->table.count; i++) depths->of_work[i] = NO_DEPTH;
    for (size_t i = 0; i < frame->count; i++) {
        uint32_t work = frame->row[i].work;
        uint32_t call =
            work == NO_PLACE || w->correlation[work] == NO_ID ? MAP_NONE : map_get(&launches, w->correlation[work]);
        if (call == MAP_NONE) continue;
        int64_t stream = hta_stream(links->process, work);
        map_put(&met, call, 1);
        change[changes++] = (struct change){stream, links->calls.call[call].start, call, work};
        change[changes++] = (struct change){stream, frame->row[i].start, NO_PLACE, work};
    }
    bool one_to_one = changes && met.count == calls;
    if (one_to_one) {
        qsort(change, changes, sizeof *change, by_time);
        depths->one = mem_zero(changes, sizeof *depths->one);
        add_depths(depths, change, changes);
    }
    free(change);
    map_free(&launches);
    map_free(&met);
    return one_to_one ? NULL
           : calls    ? "launches and device rows do not meet one to one"
                      : "it knows no launch that started work";
}

void hta_depths_free(struct hta_depths *depths)
{
    free(depths->of_work);
    free(depths->one);
    *depths = (struct hta_depths){0};
}

size_t hta_depth_of_call(const struct hta_depths *depths, uint32_t call)
{
    size_t low = 0, high = depths->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (depths->one[middle].call < call) low = middle + 1;
        else high = middle;
    }
    return low < depths->count && depths->one[low].call == call ? low : depths->count;
}
