/* hta_waits.c - finds the work behind each wait for a CUDA event, as the critical path of HTA 0.5.0 does.
 *
 * A wait names the call that recorded its event. The work that HTA waits for is the last launch into that call's stream
 * before the call. The work that waits is the next launch of the waiting thread into the waiting stream.
 */
#include <stdlib.h>

#include "ask/critical/hta_parts.h"

enum { NO_LAUNCH = NO_PLACE - 1 };

/* ---- launches ---- */

static int by_time(const void *a, const void *b)
{
    const struct hta_started *x = a, *y = b;
    return x->time != y->time ? by_number(x->time, y->time) : by_number(x->call, y->call);
}

static int by_stream(const void *a, const void *b)
{
    const struct hta_started *x = a, *y = b;
    return x->device != y->device   ? by_number(x->device, y->device)
           : x->stream != y->stream ? by_number(x->stream, y->stream)
                                    : by_number(x->place, y->place);
}

static int by_thread(const void *a, const void *b)
{
    const struct hta_started *x = a, *y = b;
    return x->thread != y->thread   ? by_number(x->thread, y->thread)
           : x->stream != y->stream ? by_number(x->stream, y->stream)
                                    : by_number(x->place, y->place);
}

static void find_launches(struct hta_waits *waits, const struct hta_links *links)
{
    const struct process *p = links->process;
    struct hta_started *one = mem_zero(links->calls.count, sizeof *one);
    for (size_t i = 0; i < links->calls.count; i++) {
        const struct hta_call *call = &links->calls.call[i];
        uint32_t work = hta_work_of(links, (uint32_t)i);
        if (!call->kept || call->span == NO_PLACE || work == NO_PLACE || hta_stream(p, work) == -1 ||
            !hta_is_launch(names_get(links->names, call->name)->text))
            continue;
        one[waits->count++] = (struct hta_started){.time = call->start,
                                                   .device = p->lane[p->works.lane[work]].device,
                                                   .stream = hta_stream(p, work),
                                                   .call = (uint32_t)i,
                                                   .thread = p->spans.thread[call->span]};
    }
    if (waits->count) qsort(one, waits->count, sizeof *one, by_time);
    for (size_t i = 0; i < waits->count; i++) one[i].place = (uint32_t)i;
    waits->by_stream = one;
    waits->by_thread = mem_zero(waits->count, sizeof *one);
    for (size_t i = 0; i < waits->count; i++) waits->by_thread[i] = one[i];
    if (waits->count) qsort(waits->by_stream, waits->count, sizeof *one, by_stream);
    if (waits->count) qsort(waits->by_thread, waits->count, sizeof *one, by_thread);
}

/* Returns the last launch into a stream that began no later than `time`; NO_LAUNCH: none. */
static uint32_t last_before(const struct hta_waits *waits, int64_t device, int64_t stream, int64_t time)
{
    size_t low = 0, high = waits->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct hta_started *s = &waits->by_stream[middle];
        bool below = s->device != device   ? s->device < device
                     : s->stream != stream ? s->stream < stream
                                           : s->time <= time;
        if (below) low = middle + 1;
        else high = middle;
    }
    const struct hta_started *s = low ? &waits->by_stream[low - 1] : NULL;
    return s && s->device == device && s->stream == stream ? s->call : NO_LAUNCH;
}

/* ---- records of events ---- */

struct recorded {
    uint64_t correlation;
    int64_t stream, device;
};

static int by_correlation(const void *a, const void *b)
{
    const struct recorded *x = a, *y = b;
    if (x->correlation != y->correlation) return x->correlation > y->correlation ? 1 : -1;
    return x->stream != y->stream ? by_number(x->stream, y->stream) : by_number(x->device, y->device);
}

static struct recorded *list_recorded(const struct hta_links *links, size_t *count)
{
    const struct process *p = links->process;
    struct recorded *recorded = mem_zero(p->waited_count, sizeof *recorded);
    for (size_t i = 0; i < p->waited_count; i++) {
        const struct waited *waited = &p->waited[i];
        if (waited->stream < 0 || !links->kept[waited->work]) continue;
        recorded[(*count)++] =
            (struct recorded){waited->correlation, waited->stream, p->lane[p->works.lane[waited->work]].device};
    }
    if (*count) qsort(recorded, *count, sizeof *recorded, by_correlation);
    return recorded;
}

/* Finds the launch before each record of an event. Returns false if an event has two streams. */
static bool find_records(struct hta_waits *waits, const struct hta_links *links, const struct recorded *recorded,
                         size_t count)
{
    struct map place = {0}; /* by correlation id: index in `recorded` */
    bool clear = true, any = false;
    for (size_t i = 0; i < count; i++) {
        bool same_id = i && recorded[i].correlation == recorded[i - 1].correlation;
        clear &= !same_id || by_correlation(&recorded[i], &recorded[i - 1]) == 0;
        map_put(&place, recorded[i].correlation, (uint32_t)i);
    }
    for (size_t i = 0; i < links->calls.count; i++) {
        const struct hta_call *call = &links->calls.call[i];
        if (!hta_is_named(links, call->name, "cudaEventRecord")) continue;
        any = true;
        uint32_t at = map_get(&place, call->correlation);
        if (!call->kept || at == MAP_NONE) continue;
        map_put(&waits->previous, call->correlation,
                last_before(waits, recorded[at].device, recorded[at].stream, call->start));
    }
    map_free(&place);
    return clear || !any;
}

/* ---- waits ---- */

bool hta_waits(struct hta_waits *waits, const struct hta_links *links)
{
    const struct process *p = links->process;
    size_t count = 0;
    struct recorded *recorded = list_recorded(links, &count);
    *waits = (struct hta_waits){0};
    find_launches(waits, links);
    for (size_t i = 0; i < p->waited_count; i++) map_put(&waits->waited, p->waited[i].work, (uint32_t)i);
    for (size_t i = 0; i < links->calls.count; i++)
        waits->has_waits |= hta_is_named(links, links->calls.call[i].name, "cudaStreamWaitEvent");
    bool good = find_records(waits, links, recorded, count);
    free(recorded);
    return good;
}

void hta_waits_free(struct hta_waits *waits)
{
    free(waits->by_stream);
    free(waits->by_thread);
    map_free(&waits->previous);
    map_free(&waits->waited);
    *waits = (struct hta_waits){0};
}

uint32_t hta_launch_before(const struct hta_waits *waits, const struct hta_links *links, uint32_t work)
{
    uint32_t at = map_get(&waits->waited, work);
    if (at == MAP_NONE || links->process->waited[at].correlation == NO_ID) return NO_PLACE;
    uint32_t call = map_get(&waits->previous, links->process->waited[at].correlation);
    return call == MAP_NONE || call == NO_LAUNCH ? NO_PLACE : call;
}

uint32_t hta_launch_after(const struct hta_waits *waits, const struct hta_links *links, uint32_t call)
{
    const struct hta_call *wait = &links->calls.call[call];
    uint32_t thread = links->process->spans.thread[wait->span];
    int64_t stream = hta_stream(links->process, hta_work_of(links, call));
    size_t low = 0, high = waits->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct hta_started *s = &waits->by_thread[middle];
        bool below = s->thread != thread   ? s->thread < thread
                     : s->stream != stream ? s->stream < stream
                                           : s->time <= wait->start;
        if (below) low = middle + 1;
        else high = middle;
    }
    const struct hta_started *s = low < waits->count ? &waits->by_thread[low] : NULL;
    return s && s->thread == thread && s->stream == stream ? s->call : NO_PLACE;
}
