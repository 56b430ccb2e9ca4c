/* exact_waits.c - finds what calls of the host and pieces of work wait for.
 *
 * In a trace of ours the arguments of the calls tell it: which stream is waited for, which event was recorded in which
 * stream. In a Kineto trace the profiler's waits (cuda_sync) do, where they were recorded. A synchronising call that
 * neither explains waits for the work that ended last before it returned, of the work launched before it. So does a
 * copy that ends within its own call, unless the call is asynchronous and the memory is not pageable.
 * Where a wait is for a stream, it is for the work of that stream launched before it that ends last.
 */
#include <stdlib.h>
#include <string.h>

#include "ask/critical/exact_parts.h"
#include "base/hash.h"

enum { MOST_LOOKS = 64 };

/* A piece of work in the order of launches; `best` is the one up to here that ends last. */
struct ordered {
    int64_t launched, end, best_end;
    uint32_t lane, work, best;
};

struct order {
    struct ordered *one;
    size_t count;
};

struct recorded {
    int64_t time;
    uint32_t lane;
};

struct waits {
    struct exact *x;
    struct order by_lane, by_launch, by_end;
    uint32_t *first_of_span;                      /* by span: its first work, or NO_PLACE */
    bool *known;                                  /* by event: what this call waits for is known */
    struct map lane_of_stream, recorded_of_event; /* by handle */
    struct map lane_of_number;                    /* by device and stream */
    struct recorded *recorded;
    size_t recordeds, recorded_capacity;
};

/* ---- orders of work ---- */

static int by_lane(const void *a, const void *b)
{
    const struct ordered *x = a, *y = b;
    return x->lane != y->lane           ? by_number(x->lane, y->lane)
           : x->launched != y->launched ? by_number(x->launched, y->launched)
                                        : by_number(x->work, y->work);
}

static int by_launch(const void *a, const void *b)
{
    const struct ordered *x = a, *y = b;
    return x->launched != y->launched ? by_number(x->launched, y->launched) : by_number(x->work, y->work);
}

static int by_end(const void *a, const void *b)
{
    const struct ordered *x = a, *y = b;
    return x->end != y->end ? by_number(x->end, y->end) : by_number(x->work, y->work);
}

static struct order order_of(const struct exact *x, int (*compare)(const void *, const void *), bool lanes)
{
    const struct works *w = &x->process->works;
    struct order order = {mem_zero(w->table.count, sizeof *order.one), 0};
    for (size_t i = 0; i < w->table.count; i++)
        if (x->event_of_work[i] != NO_PLACE)
            order.one[order.count++] = (struct ordered){
                .launched = exact_launched(x, (uint32_t)i), .end = w->end[i], .lane = w->lane[i], .work = (uint32_t)i};
    if (order.count) qsort(order.one, order.count, sizeof *order.one, compare);
    for (size_t i = 0; i < order.count; i++) {
        struct ordered *one = &order.one[i], *before = i ? one - 1 : NULL;
        bool goes_on = before && (!lanes || before->lane == one->lane) && before->best_end > one->end;
        one->best = goes_on ? before->best : one->work;
        one->best_end = goes_on ? before->best_end : one->end;
    }
    return order;
}

/* Returns the number of works of the lane and of earlier ones that were launched no later than `time`. */
static size_t launched_until(const struct order *order, uint32_t lane, int64_t time)
{
    size_t low = 0, high = order->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct ordered *one = &order->one[middle];
        if (one->lane != lane ? one->lane < lane : one->launched <= time) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Returns the work of a stream, launched no later than `time`, that ends last; NO_PLACE: none. */
static uint32_t last_of_lane(const struct waits *waits, uint32_t lane, int64_t time)
{
    size_t count = launched_until(&waits->by_lane, lane, time);
    const struct ordered *one = count ? &waits->by_lane.one[count - 1] : NULL;
    return one && one->lane == lane ? one->best : NO_PLACE;
}

static uint32_t last_of_all(const struct waits *waits, int64_t time)
{
    size_t low = 0, high = waits->by_launch.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (waits->by_launch.one[middle].launched <= time) low = middle + 1;
        else high = middle;
    }
    return low ? waits->by_launch.one[low - 1].best : NO_PLACE;
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

static void add_after(struct critical_afters *afters, uint32_t after, uint32_t work)
{
    afters->one = mem_grow(afters->one, &afters->capacity, afters->count + 1, sizeof *afters->one);
    afters->one[afters->count++] = (struct critical_after){after, work};
}

/* A call of the host waits for a work. It has waited if that ended after the call's start. */
static void host_waits(struct waits *waits, uint32_t event, uint32_t work)
{
    if (event == NO_PLACE) return;
    waits->known[event] = true;
    if (work == NO_PLACE) return;
    struct critical_event *call = &waits->x->path->events.event[event];
    if (waits->x->process->works.end[work] <= call->start) return;
    call->waits = true;
    add_after(&waits->x->hosts, event, work);
}

/* The next work of a stream waits for a work. */
static void lane_waits(struct waits *waits, uint32_t lane, int64_t time, uint32_t work)
{
    size_t next = launched_until(&waits->by_lane, lane, time);
    if (work == NO_PLACE || next >= waits->by_lane.count || waits->by_lane.one[next].lane != lane) return;
    if (waits->x->process->works.lane[work] != lane) add_after(&waits->x->works, waits->by_lane.one[next].work, work);
}

/* ---- our own calls ---- */

static bool argument(const struct process *p, size_t call, const char *name, uint64_t *value)
{
    const struct func *func = &p->func[p->calls.func[call]];
    uint64_t first = p->calls.first_arg ? p->calls.first_arg[call] : 0;
    uint64_t count = p->calls.first_arg ? p->calls.first_arg[call + 1] - first : 0;
    for (unsigned i = 0; i < func->args && i < count; i++) {
        if (strcmp(func->arg[i], name) != 0) continue;
        *value = p->args[first + i];
        return true;
    }
    return false;
}

static void take_record(struct waits *waits, int64_t time, uint64_t handle, uint64_t stream)
{
    uint32_t lane = map_get(&waits->lane_of_stream, stream);
    map_put(&waits->recorded_of_event, handle, (uint32_t)waits->recordeds);
    waits->recorded =
        mem_grow(waits->recorded, &waits->recorded_capacity, waits->recordeds + 1, sizeof *waits->recorded);
    waits->recorded[waits->recordeds++] = (struct recorded){time, lane};
}

/* Returns the last work before the event was last recorded; NO_PLACE: none. */
static uint32_t work_of_event(const struct waits *waits, uint64_t handle)
{
    uint32_t at = map_get(&waits->recorded_of_event, handle);
    if (at == MAP_NONE || waits->recorded[at].lane == MAP_NONE) return NO_PLACE;
    return last_of_lane(waits, waits->recorded[at].lane, waits->recorded[at].time);
}

static void take_sync(struct waits *waits, size_t call, const char *name, uint64_t stream, uint64_t event)
{
    const struct calls *c = &waits->x->process->calls;
    uint32_t of = waits->x->event_of_call[call], lane = map_get(&waits->lane_of_stream, stream);
    if (strstr(name, "EventSynchronize")) host_waits(waits, of, work_of_event(waits, event));
    else if (strstr(name, "StreamSynchronize") && lane != MAP_NONE)
        host_waits(waits, of, last_of_lane(waits, lane, c->start[call]));
    else if (strstr(name, "DeviceSynchronize") || strstr(name, "CtxSynchronize"))
        host_waits(waits, of, last_of_all(waits, c->start[call]));
}

static void take_call(struct waits *waits, size_t call)
{
    const struct process *p = waits->x->process;
    const struct func *func = &p->func[p->calls.func[call]];
    uint64_t stream = 0, event = 0;
    int64_t time = p->calls.start[call];
    uint32_t span = p->calls.span[call], work = span == NO_PLACE ? NO_PLACE : waits->first_of_span[span];
    bool has_stream = argument(p, call, "stream", &stream), has_event = argument(p, call, "event", &event);
    if (has_stream && work != NO_PLACE) map_put(&waits->lane_of_stream, stream, p->works.lane[work]);
    else if (strcmp(func->call_class, "RECORD") == 0 && has_event) take_record(waits, time, event, stream);
    else if (strcmp(func->call_class, "SYNC") == 0) take_sync(waits, call, func->name, stream, event);
    else if (strcmp(func->call_class, "WAIT") == 0 && has_event) {
        uint32_t lane = map_get(&waits->lane_of_stream, stream), source = work_of_event(waits, event);
        if (lane != MAP_NONE) lane_waits(waits, lane, time, source);
    }
}

static int by_start(const void *a, const void *b, void *context)
{
    const struct calls *c = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return c->start[x] != c->start[y] ? by_number(c->start[x], c->start[y]) : by_number(x, y);
}

/* Learns the stream of each handle that launches later, for waits before its first launch. */
static void learn_streams(struct waits *waits)
{
    const struct process *p = waits->x->process;
    uint64_t stream;
    for (size_t i = p->calls.table.count; i > 0; i--) {
        uint32_t span = p->calls.span[i - 1], work = span == NO_PLACE ? NO_PLACE : waits->first_of_span[span];
        if (work != NO_PLACE && argument(p, i - 1, "stream", &stream))
            map_put(&waits->lane_of_stream, stream, p->works.lane[work]);
    }
}

static void take_calls(struct waits *waits)
{
    const struct process *p = waits->x->process;
    size_t count = p->calls.table.count;
    uint32_t *order = mem_zero(count, sizeof *order);
    for (size_t i = 0; i < count; i++) order[i] = (uint32_t)i;
    if (count) qsort_r(order, count, sizeof *order, by_start, (void *)&p->calls);
    learn_streams(waits);
    for (size_t i = 0; i < count; i++) take_call(waits, order[i]);
    free(order);
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
    return lane == MAP_NONE ? NO_PLACE : last_of_lane(waits, lane, time);
}

static void take_wait(struct waits *waits, const struct map *places, size_t work, const struct waited *waited)
{
    const struct exact *x = waits->x;
    const char *name = names_get(x->names, x->process->works.name[work])->text;
    uint32_t span = x->attribution.launch[work];
    if (span == NO_PLACE) return;
    int64_t time = x->process->spans.start[span];
    uint32_t event = x->event_of_span[span], source = waited ? work_of_wait(waits, places, waited, time) : NO_PLACE;
    if (strstr(name, "Stream Wait")) lane_waits(waits, x->process->works.lane[work], time, source);
    else if (event == NO_PLACE || waits->known[event]) return;
    else if (strstr(name, "Context")) host_waits(waits, event, last_of_all(waits, time));
    else if (strstr(name, "Stream")) host_waits(waits, event, last_of_lane(waits, x->process->works.lane[work], time));
    else if (source != NO_PLACE) host_waits(waits, event, source);
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
    const struct exact *x = waits->x;
    const struct works *w = &x->process->works;
    for (size_t i = 0; i < w->table.count; i++) {
        uint32_t span = x->attribution.launch[i], event = span == NO_PLACE ? NO_PLACE : x->event_of_span[span];
        bool is_copy = w->event_class[i] == CLASS_MEMCPY || w->event_class[i] == CLASS_MEMSET;
        if (event == NO_PLACE || x->event_of_work[i] == NO_PLACE || !is_copy || waits->known[event]) continue;
        if (w->end[i] <= x->path->events.event[event].end && is_synchronous(x, (uint32_t)i, span))
            host_waits(waits, event, (uint32_t)i);
    }
}

static void guess(struct waits *waits)
{
    const struct exact *x = waits->x;
    struct critical_events *events = &x->path->events;
    for (size_t i = 0; i < events->count; i++) {
        const struct critical_event *event = &events->event[i];
        if (waits->known[i] || (event->source != FROM_SPAN && event->source != FROM_CALL)) continue;
        static const char end[] = "Synchronize";
        const char *name = event->source == FROM_CALL ? x->process->func[x->process->calls.func[event->place]].name
                                                      : names_get(x->names, x->process->spans.name[event->place])->text;
        size_t length = strlen(name);
        if (length > sizeof end && strcmp(name + length - (sizeof end - 1), end) == 0)
            host_waits(waits, (uint32_t)i, last_ended(waits, event));
    }
}

void exact_waits(struct exact *x)
{
    struct waits waits = {.x = x};
    waits.by_lane = order_of(x, by_lane, true);
    waits.by_launch = order_of(x, by_launch, false);
    waits.by_end = order_of(x, by_end, false);
    waits.known = mem_zero(x->path->events.count, sizeof *waits.known);
    waits.first_of_span = no_places(x->process->spans.table.count);
    for (size_t i = x->process->works.table.count; i > 0; i--) {
        uint32_t span = x->attribution.launch[i - 1];
        if (span != NO_PLACE && IS_WORK(x->process->works.event_class[i - 1]))
            waits.first_of_span[span] = (uint32_t)(i - 1);
    }
    take_calls(&waits);
    take_waits(&waits);
    take_copies(&waits);
    guess(&waits);
    free(waits.by_lane.one);
    free(waits.by_launch.one);
    free(waits.by_end.one);
    free(waits.known);
    free(waits.first_of_span);
    free(waits.recorded);
    map_free(&waits.lane_of_stream);
    map_free(&waits.lane_of_number);
    map_free(&waits.recorded_of_event);
}
