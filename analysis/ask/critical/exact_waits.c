/* exact_waits.c - finds what calls of the host and pieces of work wait for, where our own calls did not tell it.
 *
 * In a trace of ours its calls tell it, and exact_follow.c has run before. In a Kineto trace the profiler's waits
 * (cuda_sync) tell it, where they were recorded. A synchronising call that neither explains waits for the work that ended
 * last before it returned, of the work launched before it. A call that copies waits for its own copy if the copy ends
 * within the call, unless the call is asynchronous and the memory is not pageable.
 * A wait for a stream is one for that work which ends last, of the work launched into the stream before the wait.
 */
#include <stdlib.h>
#include <string.h>

#include "ask/critical/exact_parts.h"
#include "base/hash.h"

enum { MOST_LOOKS = 64 };

/* A piece of work in the order of launches; `best` is the one up to here that ends last. */
struct ordered {
    int64_t launched, end, best_end;
    uint32_t group, work, best; /* group: a lane or a device */
};

struct order {
    struct ordered *one;
    size_t count;
};

struct waits {
    struct exact *x;
    struct order by_lane, by_device, by_end;
    struct map lane_of_number; /* by device and stream */
};

/* ---- orders of work ---- */

int64_t exact_launched(const struct exact *x, uint32_t work)
{
    uint32_t launch = x->attribution->launch[work];
    return launch == NO_PLACE ? x->process->works.start[work] : x->process->spans.start[launch];
}

static int by_group(const void *a, const void *b)
{
    const struct ordered *x = a, *y = b;
    return x->group != y->group         ? by_number(x->group, y->group)
           : x->launched != y->launched ? by_number(x->launched, y->launched)
                                        : by_number(x->work, y->work);
}

static int by_end(const void *a, const void *b)
{
    const struct ordered *x = a, *y = b;
    return x->end != y->end ? by_number(x->end, y->end) : by_number(x->work, y->work);
}

/* `group`: by lane. */
static struct order order_of(const struct exact *x, int (*compare)(const void *, const void *), const uint32_t *group)
{
    const struct works *w = &x->process->works;
    struct order order = {mem_zero(w->table.count, sizeof *order.one), 0};
    for (size_t i = 0; i < w->table.count; i++)
        if (x->event_of_work[i] != NO_PLACE)
            order.one[order.count++] = (struct ordered){.launched = exact_launched(x, (uint32_t)i),
                                                        .end = w->end[i],
                                                        .group = group[w->lane[i]],
                                                        .work = (uint32_t)i};
    if (order.count) qsort(order.one, order.count, sizeof *order.one, compare);
    for (size_t i = 0; i < order.count; i++) {
        struct ordered *one = &order.one[i], *before = i ? one - 1 : NULL;
        bool goes_on = before && before->group == one->group && before->best_end > one->end;
        one->best = goes_on ? before->best : one->work;
        one->best_end = goes_on ? before->best_end : one->end;
    }
    return order;
}

/* Orders the works by stream, by device, and by their ends. */
static void make_orders(struct waits *waits)
{
    const struct process *p = waits->x->process;
    uint32_t *lane = mem_zero(p->lanes, sizeof *lane), *device = mem_zero(p->lanes, sizeof *device);
    for (size_t i = 0; i < p->lanes; i++) {
        lane[i] = (uint32_t)i;
        device[i] = (uint32_t)p->lane[i].device;
    }
    waits->by_lane = order_of(waits->x, by_group, lane);
    waits->by_device = order_of(waits->x, by_group, device);
    waits->by_end = order_of(waits->x, by_end, device);
    free(lane);
    free(device);
}

/* Returns the number of works of the group and of earlier ones that were launched no later than `time`. */
static size_t launched_until(const struct order *order, uint32_t group, int64_t time)
{
    size_t low = 0, high = order->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct ordered *one = &order->one[middle];
        if (one->group != group ? one->group < group : one->launched <= time) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Returns the work of a stream or a device, launched no later than `time`, that ends last; NO_PLACE: none. */
static uint32_t last_of(const struct order *order, uint32_t group, int64_t time)
{
    size_t count = launched_until(order, group, time);
    const struct ordered *one = count ? &order->one[count - 1] : NULL;
    return one && one->group == group ? one->best : NO_PLACE;
}

/* Returns the work that ended last within a call or before it, of the work launched before it; NO_PLACE: none. */
static uint32_t last_ended(const struct waits *waits, const struct critical_event *call)
{
    const struct order *order = &waits->by_end;
    size_t low = 0, high = order->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (order->one[middle].end <= call->end) low = middle + 1;
        else high = middle;
    }
    for (size_t i = low; i > 0 && low - i < MOST_LOOKS; i--)
        if (order->one[i - 1].launched < call->start) return order->one[i - 1].work;
    return NO_PLACE;
}

/* ---- what is found ---- */

void exact_after(struct critical_afters *afters, uint32_t after, uint32_t work)
{
    afters->one = mem_grow(afters->one, &afters->capacity, afters->count + 1, sizeof *afters->one);
    afters->one[afters->count++] = (struct critical_after){after, work};
}

void exact_host_waits(struct exact *x, uint32_t event, uint32_t work)
{
    if (event == NO_PLACE) return;
    x->known[event] = true;
    if (work == NO_PLACE) return;
    struct critical_event *call = &x->path->events.event[event];
    if (x->process->works.end[work] <= call->start) return;
    call->waits = true;
    exact_after(&x->hosts, event, work);
}

/* The next work of a stream waits for a work. */
static void lane_waits(struct waits *waits, uint32_t lane, int64_t time, uint32_t work)
{
    size_t next = launched_until(&waits->by_lane, lane, time);
    if (work == NO_PLACE || next >= waits->by_lane.count || waits->by_lane.one[next].group != lane) return;
    if (waits->x->process->works.lane[work] != lane) exact_after(&waits->x->works, waits->by_lane.one[next].work, work);
}

/* ---- the profiler's waits ---- */

/* Returns the last work before the event that a wait names. `places` has the calls by correlation id. */
static uint32_t work_of_wait(const struct waits *waits, const struct map *places, const struct waited *waited,
                             int64_t time)
{
    const struct process *p = waits->x->process;
    int64_t device = p->lane[p->works.lane[waited->work]].device;
    uint32_t record = waited->correlation == NO_ID ? MAP_NONE : map_get(places, waited->correlation);
    if (record != MAP_NONE) time = p->spans.start[record];
    uint32_t lane = map_get(&waits->lane_of_number, hash_numbers((uint64_t)device, (uint64_t)waited->stream));
    return lane == MAP_NONE ? NO_PLACE : last_of(&waits->by_lane, lane, time);
}

static void take_wait(struct waits *waits, const struct map *places, size_t work, const struct waited *waited)
{
    struct exact *x = waits->x;
    const char *name = names_get(x->names, x->process->works.name[work])->text;
    uint32_t span = x->attribution->launch[work], lane = x->process->works.lane[work];
    if (span == NO_PLACE) return;
    int64_t time = x->process->spans.start[span], device = x->process->lane[lane].device;
    uint32_t event = x->event_of_span[span], source = waited ? work_of_wait(waits, places, waited, time) : NO_PLACE;
    if (strstr(name, "Stream Wait")) lane_waits(waits, lane, time, source);
    else if (event == NO_PLACE || x->known[event]) return;
    else if (strstr(name, "Context")) exact_host_waits(x, event, last_of(&waits->by_device, (uint32_t)device, time));
    else if (strstr(name, "Stream")) exact_host_waits(x, event, last_of(&waits->by_lane, lane, time));
    else if (source != NO_PLACE) exact_host_waits(x, event, source);
}

static void take_waits(struct waits *waits)
{
    const struct process *p = waits->x->process;
    struct map places = {0}, waited = {0};
    for (size_t i = 0; i < p->spans.table.count; i++)
        if (p->spans.event_class[i] == CLASS_API && p->spans.id[i] != NO_ID)
            map_put(&places, p->spans.id[i], (uint32_t)i);
    for (size_t i = 0; i < p->lanes; i++)
        map_put(&waits->lane_of_number, hash_numbers((uint64_t)p->lane[i].device, (uint64_t)p->lane[i].stream),
                (uint32_t)i);
    for (size_t i = 0; i < p->waited_count; i++) map_put(&waited, p->waited[i].work, (uint32_t)i);
    for (size_t i = 0; i < p->works.table.count; i++) {
        uint32_t at = map_get(&waited, i);
        if (p->works.event_class[i] == CLASS_SYNC) take_wait(waits, &places, i, at == MAP_NONE ? NULL : &p->waited[at]);
    }
    map_free(&places);
    map_free(&waited);
}

/* ---- the times ---- */

static bool is_synchronous(const struct exact *x, uint32_t work, uint32_t span)
{
    const char *call = names_get(x->names, x->process->spans.name[span])->text;
    const char *copy = names_get(x->names, x->process->works.name[work])->text;
    return !strstr(call, "Async") || (strstr(copy, "DtoH") && strstr(copy, "Pageable"));
}

static void take_copies(struct waits *waits)
{
    struct exact *x = waits->x;
    const struct works *w = &x->process->works;
    for (size_t i = 0; i < w->table.count; i++) {
        uint32_t span = x->attribution->launch[i], event = span == NO_PLACE ? NO_PLACE : x->event_of_span[span];
        bool is_copy = w->event_class[i] == CLASS_MEMCPY || w->event_class[i] == CLASS_MEMSET;
        if (event == NO_PLACE || x->event_of_work[i] == NO_PLACE || !is_copy || x->known[event]) continue;
        if (w->end[i] <= x->path->events.event[event].end && is_synchronous(x, (uint32_t)i, span))
            exact_host_waits(waits->x, event, (uint32_t)i);
    }
}

static void guess(struct waits *waits)
{
    struct exact *x = waits->x;
    struct critical_events *events = &x->path->events;
    for (size_t i = 0; i < events->count; i++) {
        const struct critical_event *event = &events->event[i];
        if (x->known[i] || (event->source != FROM_SPAN && event->source != FROM_CALL)) continue;
        static const char end[] = "Synchronize";
        const char *name = event->source == FROM_CALL ? x->process->func[x->process->calls.func[event->place]].name
                                                      : names_get(x->names, x->process->spans.name[event->place])->text;
        size_t length = strlen(name);
        if (length > sizeof end && strcmp(name + length - (sizeof end - 1), end) == 0)
            exact_host_waits(waits->x, (uint32_t)i, last_ended(waits, event));
    }
}

void exact_waits(struct exact *x)
{
    struct waits waits = {.x = x};
    make_orders(&waits);
    take_waits(&waits);
    take_copies(&waits);
    guess(&waits);
    free(waits.by_lane.one);
    free(waits.by_device.one);
    free(waits.by_end.one);
    map_free(&waits.lane_of_number);
}
