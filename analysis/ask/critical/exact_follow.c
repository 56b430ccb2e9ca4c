/* exact_follow.c - follows the streams of a trace of ours through its calls, as the device does.
 *
 * A stream has a point: the work that ends last of all that its next work has to wait for. A launch, an event that is
 * recorded and a wait for an event start from the stream's point, and from those of the streams that it is ordered
 * behind (exact_streams.h). An executable graph also waits for its own launch before. A call that waits for a stream
 * waits for its point, and one that waits for a device for the points of all its streams.
 */
#include <stdlib.h>
#include <string.h>

#include "ask/critical/exact_parts.h"
#include "ask/critical/exact_streams.h"

#define ALL_DEVICES UINT64_MAX /* the key of the last of all points */

struct follow {
    struct exact *x;
    struct streams streams;
    uint32_t *call, *work;                  /* all calls, by start; the works in the window, by launch */
    size_t works, next;                     /* next: the first work that is not launched yet */
    uint32_t *first_of_span, *sync_of_span; /* NO_PLACE: none */
    uint32_t *point;                        /* by lane: a work, or NO_PLACE */
    struct map device, blocking, legacy; /* by device: the last of the points of all, of blocking, of legacy streams */
    struct map event, graph;             /* by handle, and by number: a point */
};

/* ---- points ---- */

/* Returns the work that ends last; either may be NO_PLACE. */
static uint32_t later(const struct follow *f, uint32_t a, uint32_t b)
{
    const int64_t *end = f->x->process->works.end;
    if (a == NO_PLACE || b == NO_PLACE) return a == NO_PLACE ? b : a;
    return end[b] > end[a] ? b : a;
}

static void move(const struct follow *f, struct map *points, uint64_t key, uint32_t work)
{
    map_put(points, key, later(f, map_get(points, key), work));
}

static void set_point(struct follow *f, uint32_t lane, uint32_t work)
{
    uint64_t device = (uint64_t)f->x->process->lane[lane].device;
    if (work == NO_PLACE) return;
    f->point[lane] = later(f, f->point[lane], work);
    move(f, &f->device, device, work);
    move(f, &f->device, ALL_DEVICES, work);
    if (f->streams.sort[lane] == STREAM_BLOCKING) move(f, &f->blocking, device, work);
    if (f->streams.sort[lane] == STREAM_LEGACY) move(f, &f->legacy, device, work);
}

/* Returns what the next work of a stream waits for. */
static uint32_t point_of(const struct follow *f, uint32_t lane)
{
    uint64_t device = (uint64_t)f->x->process->lane[lane].device;
    if (f->streams.sort[lane] == STREAM_BLOCKING) return later(f, f->point[lane], map_get(&f->legacy, device));
    if (f->streams.sort[lane] == STREAM_LEGACY) return later(f, f->point[lane], map_get(&f->blocking, device));
    return f->point[lane];
}

/* ---- launches ---- */

/* All works of one launch wait for the same points. Their times give the order among them. */
static void take_launch(struct follow *f, size_t count)
{
    const struct works *w = &f->x->process->works;
    const uint32_t *work = &f->work[f->next];
    for (size_t i = 0; i < count; i++) {
        uint32_t graph = w->detail ? w->detail[work[i]].graph : 0;
        uint32_t before = point_of(f, w->lane[work[i]]);
        if (graph) before = later(f, before, map_get(&f->graph, graph));
        if (before != NO_PLACE && w->lane[before] != w->lane[work[i]]) exact_after(&f->x->works, work[i], before);
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t graph = w->detail ? w->detail[work[i]].graph : 0;
        set_point(f, w->lane[work[i]], later(f, point_of(f, w->lane[work[i]]), work[i]));
        if (graph) move(f, &f->graph, graph, work[i]);
    }
    f->next += count;
}

static void take_launches(struct follow *f, int64_t until)
{
    const uint32_t *launch = f->x->attribution->launch;
    while (f->next < f->works && exact_launched(f->x, f->work[f->next]) <= until) {
        size_t end = f->next + 1;
        while (end < f->works && launch[f->work[end]] != NO_PLACE && launch[f->work[end]] == launch[f->work[f->next]])
            end++;
        take_launch(f, end - f->next);
    }
}

/* ---- other calls ---- */

/* Returns the lane of a call's stream: the device library's record of it knows, else its arguments. */
static uint32_t lane_of(const struct follow *f, size_t call, bool *has_record)
{
    const struct process *p = f->x->process;
    uint32_t span = p->calls.span[call], sync = span == NO_PLACE ? NO_PLACE : f->sync_of_span[span];
    *has_record = sync != NO_PLACE;
    return *has_record ? p->works.lane[sync] : streams_lane(&f->streams, call);
}

static void take_sync(struct follow *f, size_t call, const char *name, uint32_t lane, bool has_record, uint64_t event)
{
    uint32_t of = f->x->event_of_call[call];
    int64_t device = has_record ? f->x->process->lane[lane].device : streams_device(&f->streams, call);
    if (strstr(name, "EventSynchronize")) exact_host_waits(f->x, of, map_get(&f->event, event));
    else if (strstr(name, "StreamSynchronize") && lane != MAP_NONE)
        exact_host_waits(f->x, of, f->streams.sort[lane] == STREAM_LEGACY ? point_of(f, lane) : f->point[lane]);
    else if (strstr(name, "DeviceSynchronize") || strstr(name, "CtxSynchronize"))
        exact_host_waits(f->x, of, map_get(&f->device, device < 0 ? ALL_DEVICES : (uint64_t)device));
}

static void take_call(struct follow *f, size_t call)
{
    const struct process *p = f->x->process;
    const struct func *func = &p->func[p->calls.func[call]];
    uint64_t stream, event = 0;
    bool has_event = call_argument(p, call, "event", &event), has_stream = call_argument(p, call, "stream", &stream);
    bool has_record;
    streams_take(&f->streams, call);
    take_launches(f, p->calls.start[call]);
    if (p->calls.result[call] != 0) return;
    uint32_t lane = lane_of(f, call, &has_record);
    if (strcmp(func->call_class, "SYNC") == 0) take_sync(f, call, func->name, lane, has_record, event);
    if (!has_event || !has_stream || lane == MAP_NONE) return;
    if (strcmp(func->call_class, "WAIT") == 0)
        set_point(f, lane, later(f, point_of(f, lane), map_get(&f->event, event)));
    if (strcmp(func->call_class, "RECORD") == 0) {
        set_point(f, lane, point_of(f, lane));
        map_put(&f->event, event, f->point[lane]);
    }
}

/* ---- orders ---- */

static int works_by_start(const void *a, const void *b, void *context)
{
    const struct calls *c = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return c->start[x] != c->start[y] ? by_number(c->start[x], c->start[y]) : by_number(x, y);
}

static int by_launch(const void *a, const void *b, void *context)
{
    const struct exact *e = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int64_t p = exact_launched(e, x), q = exact_launched(e, y);
    uint32_t launch_x = e->attribution->launch[x], launch_y = e->attribution->launch[y];
    return p != q ? by_number(p, q) : launch_x != launch_y ? by_number(launch_x, launch_y) : by_number(x, y);
}

static void make_orders(struct follow *f)
{
    const struct process *p = f->x->process;
    size_t calls = p->calls.table.count;
    f->call = mem_zero(calls, sizeof *f->call);
    for (size_t i = 0; i < calls; i++) f->call[i] = (uint32_t)i;
    qsort_r(f->call, calls, sizeof *f->call, works_by_start, (void *)&p->calls);
    f->work = mem_zero(p->works.table.count, sizeof *f->work);
    f->first_of_span = no_places(p->spans.table.count);
    f->sync_of_span = no_places(p->spans.table.count);
    for (size_t i = p->works.table.count; i > 0; i--) {
        uint32_t work = (uint32_t)(i - 1), span = f->x->attribution->launch[work];
        bool is_work = IS_WORK(p->works.event_class[work]);
        if (f->x->event_of_work[work] != NO_PLACE) f->work[f->works++] = work;
        if (span != NO_PLACE && is_work) f->first_of_span[span] = work;
        if (span != NO_PLACE && p->works.event_class[work] == CLASS_SYNC) f->sync_of_span[span] = work;
    }
    if (f->works) qsort_r(f->work, f->works, sizeof *f->work, by_launch, f->x);
}

void exact_follow(struct exact *x)
{
    struct follow f = {.x = x};
    struct map *const maps[] = {&f.device, &f.blocking, &f.legacy, &f.event, &f.graph};
    if (!x->process->calls.table.count) return;
    make_orders(&f);
    f.point = no_places(x->process->lanes);
    streams_init(&f.streams, x->process, f.call, f.first_of_span);
    for (size_t i = 0; i < x->process->calls.table.count; i++) take_call(&f, f.call[i]);
    take_launches(&f, INT64_MAX);
    for (size_t i = 0; i < ARRAY_SIZE(maps); i++) map_free(maps[i]);
    streams_free(&f.streams);
    free(f.call);
    free(f.work);
    free(f.point);
    free(f.first_of_span);
    free(f.sync_of_span);
}
