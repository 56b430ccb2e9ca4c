/* event_times.c - takes device times of stages by pooled CUDA events if there is no CUPTI.
 *
 * Method. The functions of the driver that launch kernels and graphs get a detour between our wrapper and the
 * original. The detour knows the arguments, and every call ends there, whichever way it took (symbol, look-up, either
 * runtime). One event precedes a stage's first launch into a stream, and one event follows it, which each later launch
 * records again. Copies and sets alone open nothing, and only the launches of the thread that opened the stage count.
 * The two events give the span of a stage in a stream, gaps included, as a stage_device record. CUDA is not called at a
 * stage's exit: the program may have given up the stream by then.
 *
 * Error. An event costs the device some microseconds. A short stage therefore looks 10 to 30 us longer. The trace says
 * so.
 *
 * Times. Events only give differences. An anchor is an event in an idle stream of ours whose host time is bracketed.
 * It is renewed every second, so that a float of milliseconds stays exact, and without a step as far as the bracket
 * allows. The trace's DEVICE_NS is the host's monotonic clock, shifted to CLOCK_REALTIME, for all devices alike.
 *
 * Restrictions. Nothing is timed in a capture (the driver is asked first) or in the child of a fork (another
 * generation), and nothing blocks. All calls go to the originals, in this thread's relaxed capture mode. Completed
 * items are found by the calling thread, by a launch that finds no free event, before a context is destroyed, and
 * at the exit, before the driver's own handlers.
 *
 * Locks. `lists` is held for a moment; `polling` is held by the thread that looks for completed items. A launch waits
 * for either with a limit.
 */
#include "cuda/event_times.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "base/process.h"
#include "base/raw_dlsym.h"
#include "base/sys.h"
#include "control/config.h"
#include "cuda/cuda_calls.h"
#include "cupti/client.h"
#include "hooks/hooks.h"
#include "record/background.h"
#include "record/chunk.h"
#include "record/clock.h"
#include "record/log.h"
#include "record/strings.h"
#include "stage/watch.h"

#define FIRST_EVENTS 256u
#define POLL_MS 200       /* the longest wait for `polling` at the end of a context or of the process */
#define ANCHOR_NS 2000000 /* the longest wait for an anchor */
#define RENEW_NS 1000000000
#define RELAXED 2

static const char about[] = "device times of stages come from CUDA events before the first and after the last "
                            "launch into a stream: they include gaps and are 10 to 30 us too long";

static struct tfi_thread lane;
uint32_t tfi_event_times_spans;
struct tfi_event_times tfi_event_times;
struct tfi_event_times_driver tfi_event_times_driver;

int tfi_event_times_relaxed(void)
{
    int mode = RELAXED;
    return tfi_event_times_driver.Mode(&mode) == 0 ? mode : -1;
}

void tfi_event_times_restore(int mode)
{
    if (mode >= 0) tfi_event_times_driver.Mode(&mode);
}

/* ---- events and items; with `lists` held ---- */

void tfi_event_times_unuse(struct tfi_event_context *c, uint32_t event)
{
    if (event == TFI_EVENT_TIMES_NONE || --c->pool[event].users) return;
    c->pool[event].next = c->free_event;
    c->free_event = event;
}

uint32_t tfi_event_times_pop(struct tfi_event_context *c)
{
    uint32_t event = c->free_event;
    if (event == TFI_EVENT_TIMES_NONE) return TFI_EVENT_TIMES_NONE;
    c->free_event = c->pool[event].next;
    c->pool[event].users = 1;
    return event;
}

static struct tfi_event_item *new_item(uint32_t *index)
{
    *index = tfi_event_times.free_item;
    if (*index != TFI_EVENT_TIMES_NONE) tfi_event_times.free_item = tfi_event_times.item[*index].next;
    else if (tfi_event_times.nr_items < TFI_EVENT_TIMES_MAX_ITEMS) *index = tfi_event_times.nr_items++;
    else return NULL;
    tfi_event_times.waiting++;
    return &tfi_event_times.item[*index];
}

static void free_item(uint32_t index)
{
    tfi_event_times.item[index].next = tfi_event_times.free_item;
    tfi_event_times.free_item = index;
    tfi_event_times.waiting--;
}

/* Adds an item, which takes over one use of each event; if there is no room, counts it. */
static void add_item(struct tfi_event_context *c, const struct tfi_event_item *from)
{
    uint32_t index;
    struct tfi_event_item *item = new_item(&index);
    if (!item) {
        tfi_event_times_unuse(c, from->begin);
        tfi_event_times_unuse(c, from->end);
        tfi_count_drop(TFI_DROP_EVENTS, 1);
        return;
    }
    *item = *from;
    item->next = TFI_EVENT_TIMES_NONE;
    if (c->last == TFI_EVENT_TIMES_NONE) c->first = index;
    else tfi_event_times.item[c->last].next = index;
    c->last = index;
}

static void close_span(uint32_t index)
{
    struct tfi_event_span *s = &tfi_event_times.span[index];
    struct tfi_event_item item = {
        .range = s->range, .stream = s->stream, .begin = s->begin, .end = s->end, .launches = s->launches};
    add_item(s->context, &item);
    *s = tfi_event_times.span[tfi_event_times_spans - 1];
    __atomic_store_n(&tfi_event_times_spans, tfi_event_times_spans - 1, __ATOMIC_RELAXED);
}

/* Closes all spans of a range or, if that is 0, of a context. */
static void close_spans(uint64_t range, const struct tfi_event_context *c)
{
    for (uint32_t i = tfi_event_times_spans; i-- > 0;)
        if (range ? tfi_event_times.span[i].range == range : tfi_event_times.span[i].context == c) close_span(i);
}

/* Calls nothing of CUDA. */
static void counted(struct tfi_thread *t, const struct tfi_open *open, int step, bool turned)
{
    (void)t, (void)turned;
    if (step > 0 || TFI_LIKELY(!__atomic_load_n(&tfi_event_times_spans, __ATOMIC_RELAXED))) return;
    if (tfi_event_times.gen != __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED)) return;
    if (!tfi_lock_within(&tfi_event_times.lists, TFI_EVENT_TIMES_LAUNCH_MS)) return;
    close_spans(open->id, NULL);
    tfi_unlock(&tfi_event_times.lists);
}

static const struct tfi_watcher watcher = {.counted = counted};

/* ---- times; with `polling` held, the context current, in relaxed mode ---- */

static bool elapsed(void *from, void *to, int64_t *ns)
{
    float ms = 0;
    int sign = 1, result = tfi_event_times_driver.EventElapsedTime(&ms, from, to);
    if (result != 0 && tfi_event_times_driver.EventElapsedTime(&ms, to, from) == 0) {
        sign = -1; /* in case a driver refuses a difference below zero */
        result = 0;
    }
    double value = (double)ms * 1e6 * sign;
    *ns = (int64_t)(value + (value < 0 ? -0.5 : 0.5));
    return result == 0;
}

static void write_clock(uint64_t from, uint64_t to, uint64_t ns)
{
    struct tfi_rec_clock *rec = TFI_RESERVE(&lane, clock);
    if (!rec) return;
    *rec = (struct tfi_rec_clock){rec->rec, TFI_CLOCK_DEVICE, from + (to - from) / 2, ns, to - from};
    tfi_commit(&lane, sizeof *rec);
}

/* Records an event in our stream and waits a moment until it has completed. Its host time then lies between the
 * two times. */
static bool bracket(struct tfi_event_context *c, void *event, uint64_t ns[2], uint64_t ticks[2])
{
    int result;
    ticks[0] = tfi_ticks();
    ns[0] = tfi_monotonic_ns();
    if (tfi_event_times_driver.EventRecord(event, c->stream) != 0) return false;
    do result = tfi_event_times_driver.EventQuery(event);
    while (result != 0 && tfi_monotonic_ns() - ns[0] < ANCHOR_NS);
    ns[1] = tfi_monotonic_ns();
    ticks[1] = tfi_ticks();
    return result == 0;
}

static uint64_t host_shift(void)
{
    struct tfi_clock_pair now = tfi_clock_read();
    return now.realtime - now.monotonic;
}

/* Renews the anchor if it is old; false if there is none at all. */
static bool anchor(struct tfi_event_context *c)
{
    uint64_t ns[2], ticks[2];
    int64_t since;
    bool had = c->anchored != 0, ok = false;
    uint32_t next = had ? !c->current : 0;
    if (had && tfi_monotonic_ns() - c->anchored < RENEW_NS) return true;
    if (!c->stream && tfi_event_times_driver.StreamCreate(&c->stream, 1 /* non-blocking */) != 0) c->stream = NULL;
    if (!c->stream) return false;
    if (!c->anchor[next] && tfi_event_times_driver.EventCreate(&c->anchor[next], 0) != 0) c->anchor[next] = NULL;
    for (int i = 0; c->anchor[next] && i < 4; i++) {
        ok = bracket(c, c->anchor[next], ns, ticks);
        if (!ok || ns[1] - ns[0] < 20000) break;
    }
    if (!ok) return had;
    if (!tfi_event_times.shift) tfi_event_times.shift = host_shift();
    uint64_t middle = ns[0] + (ns[1] - ns[0]) / 2 + tfi_event_times.shift, at = middle;
    if (had && elapsed(c->anchor[c->current], c->anchor[next], &since)) {
        at = c->anchor_ns + (uint64_t)since;
        if (at < ns[0] + tfi_event_times.shift) at = ns[0] + tfi_event_times.shift;
        if (at > ns[1] + tfi_event_times.shift) at = ns[1] + tfi_event_times.shift;
    }
    c->current = next;
    c->anchor_ns = at;
    c->anchored = ns[1];
    write_clock(ticks[0], ticks[1], middle);
    return true;
}

/* ---- records; with `polling` held ---- */

static bool open_lane(void)
{
    if (!tfi_event_times.gen) return false;
    if (!tfi_lane_open(&lane, tfi_event_times.gen)) return true;
    tfi_cupti_devices_restart();
    for (uint32_t i = 0; i < TFI_EVENT_TIMES_MAX_CONTEXTS; i++)
        if (tfi_event_times.context[i].anchored)
            tfi_event_times.context[i].anchored = 1; /* the new trace needs a clock pair of its own */
    return true;
}

static void tell(void)
{
    if (tfi_event_times.told == tfi_event_times.gen) return;
    tfi_event_times.told = tfi_event_times.gen;
    tfi_log(TFI_LOG_INFO, "%s", about);
    uint32_t string = tfi_string(about, strlen(about));
    struct tfi_rec_message *rec = TFI_RESERVE(&lane, message);
    if (!rec) return;
    *rec = (struct tfi_rec_message){rec->rec, string, TFI_LOG_INFO, 0, tfi_ticks()};
    tfi_commit(&lane, sizeof *rec);
}

static void write_item(const struct tfi_event_context *c, const struct tfi_event_item *i, uint64_t start,
                       uint64_t duration)
{
    uint32_t flags = tfi_cupti_device(&lane, c->device, true) | TFI_DEVICE_BY_EVENTS;
    tell();
    TFI_WRITE(&lane, stage_device, .id = i->range, .start = start, .duration = duration, .device = c->device,
              .context = (uint32_t)c->id, .stream = i->stream, .launches = i->launches, .flags = flags);
}

/* ---- completed items; with `polling` held ---- */

/* True if the item has completed. A context that answers with an error is not asked again. */
static bool finished(struct tfi_event_context *c, const struct tfi_event_item *i)
{
    enum { NOT_READY = 600 };
    int64_t since, duration;
    void *begin = c->pool[i->begin].handle, *end = c->pool[i->end].handle;
    int result = tfi_event_times_driver.EventQuery(end);
    if (result == NOT_READY) return false;
    if (result == 0 && elapsed(c->anchor[c->current], begin, &since) && elapsed(begin, end, &duration)) {
        write_item(c, i, c->anchor_ns + (uint64_t)since, duration > 0 ? (uint64_t)duration : 0);
        return true;
    }
    if (result == 0) return false; /* recorded again in between */
    c->state = TFI_EVENT_CONTEXT_BROKEN;
    return false;
}

static uint32_t detach(struct tfi_event_context *c)
{
    if (!tfi_lock(&tfi_event_times.lists)) return TFI_EVENT_TIMES_NONE;
    uint32_t first = c->first;
    c->first = c->last = TFI_EVENT_TIMES_NONE;
    tfi_unlock(&tfi_event_times.lists);
    return first;
}

/* Puts the remaining items before those that were added since. */
static void attach(struct tfi_event_context *c, uint32_t first, uint32_t last)
{
    if (first == TFI_EVENT_TIMES_NONE || !tfi_lock(&tfi_event_times.lists)) return;
    tfi_event_times.item[last].next = c->first;
    if (c->first == TFI_EVENT_TIMES_NONE) c->last = last;
    c->first = first;
    tfi_unlock(&tfi_event_times.lists);
}

static void drop_item(struct tfi_event_context *c, uint32_t index, bool lost)
{
    if (lost) tfi_count_drop(TFI_DROP_EVENTS_LOST, 1);
    if (!tfi_lock(&tfi_event_times.lists)) return;
    tfi_event_times_unuse(c, tfi_event_times.item[index].begin);
    tfi_event_times_unuse(c, tfi_event_times.item[index].end);
    free_item(index);
    tfi_unlock(&tfi_event_times.lists);
}

/* Writes at most `most` records; `lose` counts the items that have not completed as lost. A stream found busy is
 * not asked for again: later items in it have not completed either. */
uint32_t tfi_event_times_resolve(struct tfi_event_context *c, uint32_t most, bool lose)
{
    uint32_t busy[16], nr_busy = 0, done = 0, first = TFI_EVENT_TIMES_NONE, last = TFI_EVENT_TIMES_NONE, next;
    if (c->state == TFI_EVENT_CONTEXT_USED && !__atomic_load_n(&tfi_event_times.quiet, __ATOMIC_ACQUIRE) &&
        c->first != TFI_EVENT_TIMES_NONE && open_lane() && !anchor(c) && !lose)
        return 0;
    bool ask = c->anchored && lane.gen && !__atomic_load_n(&tfi_event_times.quiet, __ATOMIC_ACQUIRE);
    for (uint32_t i = detach(c); i != TFI_EVENT_TIMES_NONE; i = next) {
        const struct tfi_event_item *item = &tfi_event_times.item[i];
        bool over = ask && c->state == TFI_EVENT_CONTEXT_USED && done < most;
        next = item->next;
        for (uint32_t k = 0; k < nr_busy; k++) over = over && busy[k] != item->stream;
        if (over && !(over = finished(c, item)) && nr_busy < TFI_COUNT(busy)) busy[nr_busy++] = item->stream;
        if (over || lose || c->state != TFI_EVENT_CONTEXT_USED) {
            drop_item(c, i, !over);
            done += over;
            continue;
        }
        if (first == TFI_EVENT_TIMES_NONE) first = i;
        else tfi_event_times.item[last].next = i;
        last = i;
    }
    attach(c, first, last);
    return done;
}

/* Calls tfi_event_times_resolve() in a thread in which another context, or none, may be current. */
static uint32_t resolve_elsewhere(struct tfi_event_context *c, bool lose)
{
    void *popped;
    uint32_t done = 0;
    bool call = !__atomic_load_n(&tfi_event_times.quiet, __ATOMIC_ACQUIRE) && c->first != TFI_EVENT_TIMES_NONE;
    int mode = call ? tfi_event_times_relaxed() : -1;
    bool pushed = call && tfi_event_times_driver.CtxPush(c->handle) == 0;
    if (pushed || lose) done = tfi_event_times_resolve(c, TFI_EVENT_TIMES_MAX_ITEMS, lose);
    if (pushed) tfi_event_times_driver.CtxPop(&popped);
    tfi_event_times_restore(mode);
    return done;
}

static bool work(void)
{
    uint32_t done = 0;
    if (!tfi_event_times.waiting || tfi_event_times.gen != __atomic_load_n(&tfi_process->gen, __ATOMIC_ACQUIRE))
        return false;
    if (!tfi_lock_within(&tfi_event_times.polling, 0)) return false;
    for (uint32_t i = 0; i < TFI_EVENT_TIMES_MAX_CONTEXTS && tfi_event_times.gen; i++)
        if (tfi_event_times.context[i].state == TFI_EVENT_CONTEXT_USED)
            done += resolve_elsewhere(&tfi_event_times.context[i], false);
        else if (tfi_event_times.context[i].state == TFI_EVENT_CONTEXT_BROKEN)
            tfi_event_times_resolve(&tfi_event_times.context[i], TFI_EVENT_TIMES_MAX_ITEMS, true);
    tfi_unlock(&tfi_event_times.polling);
    return done != 0;
}

static unsigned wait_at_most(unsigned most)
{
    unsigned wait = tfi_event_times.waiting && tfi_config.flush_ms > 50 ? 50 : (unsigned)tfi_config.flush_ms;
    return tfi_event_times.on && wait < most ? wait : most;
}

const struct tfi_job tfi_event_times_job = {.work = work, .wait = wait_at_most};

/* ---- contexts ---- */

/* With `lists` held; adds one event to the pool. */
uint32_t tfi_event_times_make(struct tfi_event_context *c)
{
    struct tfi_event *e = &c->pool[c->nr_events];
    if (c->nr_events == TFI_EVENT_TIMES_MAX_EVENTS || tfi_event_times_driver.EventCreate(&e->handle, 0) != 0)
        return TFI_EVENT_TIMES_NONE;
    e->users = 1;
    return c->nr_events++;
}

static void at_exit(void);

static struct tfi_event_context *open_context(void *handle, uint64_t id)
{
    uint32_t device = 0;
    static bool registered;
    struct tfi_event_context *c = NULL;
    for (uint32_t i = 0; i < TFI_EVENT_TIMES_MAX_CONTEXTS && !c; i++)
        if (tfi_event_times.context[i].state == TFI_EVENT_CONTEXT_FREE) c = &tfi_event_times.context[i];
    if (!c || tfi_event_times_driver.CtxGetDevice((int *)&device) != 0) return NULL;
    struct tfi_event *room = c->pool ? c->pool : tfi_map(TFI_EVENT_TIMES_MAX_EVENTS * sizeof *room);
    if (!room) return NULL;
    *c = (struct tfi_event_context){.handle = handle, .id = id, .device = device, .pool = room};
    c->free_event = c->first = c->last = TFI_EVENT_TIMES_NONE;
    while (c->nr_events < FIRST_EVENTS) {
        uint32_t event = tfi_event_times_make(c);
        if (event == TFI_EVENT_TIMES_NONE) break;
        tfi_event_times_unuse(c, event);
    }
    if (!registered) registered = atexit(at_exit) == 0; /* by now the driver has registered its own handler */
    c->state = TFI_EVENT_CONTEXT_USED;
    return c;
}

/* With `polling` held: gives up a context. Our events and stream are destroyed here if it is `alive`, otherwise
 * with it. */
static void forget(struct tfi_event_context *c, bool alive)
{
    if (!tfi_lock(&tfi_event_times.lists)) return;
    close_spans(0, c);
    tfi_unlock(&tfi_event_times.lists);
    if (!alive) c->anchored = 0;
    tfi_event_times_resolve(c, TFI_EVENT_TIMES_MAX_ITEMS, true);
    for (uint32_t i = 0; alive && i < c->nr_events; i++) tfi_event_times_driver.EventDestroy(c->pool[i].handle);
    for (uint32_t i = 0; alive && i < 2; i++)
        if (c->anchor[i]) tfi_event_times_driver.EventDestroy(c->anchor[i]);
    if (alive && c->stream) tfi_event_times_driver.StreamDestroy(c->stream);
    c->state = TFI_EVENT_CONTEXT_FREE;
}

/* With `lists` held. */
struct tfi_event_context *tfi_event_times_context(const struct tfi_event_place *p)
{
    for (uint32_t i = 0; i < TFI_EVENT_TIMES_MAX_CONTEXTS; i++) {
        struct tfi_event_context *c = &tfi_event_times.context[i];
        if (c->state == TFI_EVENT_CONTEXT_FREE || c->handle != p->context) continue;
        if (c->id == p->id) return c->state == TFI_EVENT_CONTEXT_USED ? c : NULL;
        c->state = TFI_EVENT_CONTEXT_BROKEN; /* destroyed by a call that we do not see, and its events with it */
        c->handle = NULL;
    }
    return open_context(p->context, p->id);
}

/* In relaxed capture mode. */
static void leave(struct tfi_event_context *c)
{
    void *popped;
    bool pushed = !tfi_event_times.quiet && c->handle && tfi_event_times_driver.CtxPush(c->handle) == 0;
    forget(c, pushed && c->state == TFI_EVENT_CONTEXT_USED);
    if (pushed) tfi_event_times_driver.CtxPop(&popped);
}

void tfi_event_times_leave(void *handle, int device)
{
    int error = errno, cancel = tfi_cancel_off();
    bool mine = tfi_event_times.on && tfi_event_times.pid == tfi_getpid(),
         locked = mine && tfi_lock_within(&tfi_event_times.polling, POLL_MS);
    int mode = locked ? tfi_event_times_relaxed() : -1;
    for (uint32_t i = 0; mine && i < TFI_EVENT_TIMES_MAX_CONTEXTS; i++) {
        struct tfi_event_context *c = &tfi_event_times.context[i];
        if (c->state == TFI_EVENT_CONTEXT_FREE || (handle ? c->handle != handle : c->device != (uint32_t)device))
            continue;
        if (locked) leave(c);
        else c->state = TFI_EVENT_CONTEXT_BROKEN; /* the polling thread hangs in the driver */
    }
    tfi_event_times_restore(mode);
    if (locked) tfi_unlock(&tfi_event_times.polling);
    tfi_cancel_on(cancel);
    errno = error;
}

void tfi_event_times_device_reset(void)
{
    void *current = NULL;
    if (!tfi_event_times.on || tfi_event_times.pid != tfi_getpid()) return;
    if (tfi_event_times_driver.CtxGetCurrent(&current) == 0 && current) tfi_event_times_leave(current, 0);
}

/* ---- beginning and end ---- */

static bool find_functions(void *driver)
{
    bool all = true;
#define API(name, symbol, params)                                                                                      \
    all &= (tfi_event_times_driver.name = (int(*) params)tfi_dlsym(driver, symbol)) != NULL;
    TFI_EVENT_TIMES_FUNCTIONS
#undef API
    return all;
}

void tfi_event_times_begin(void)
{
    int error = errno;
    void *driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    if (tfi_event_times.on || !driver || !find_functions(driver)) {
        errno = error;
        return;
    }
    tfi_event_times.item = tfi_map(TFI_EVENT_TIMES_MAX_ITEMS * sizeof *tfi_event_times.item);
    tfi_event_times.span = tfi_map(TFI_EVENT_TIMES_MAX_SPANS * sizeof *tfi_event_times.span);
    tfi_event_times.free_item = TFI_EVENT_TIMES_NONE;
    tfi_event_times.pid = tfi_getpid();
    if (tfi_event_times.item && tfi_event_times.span) {
        atexit(at_exit);
        tfi_watch(&watcher);
        tfi_event_times_put_before(driver);
        __atomic_store_n(&tfi_event_times.on, 1, __ATOMIC_RELEASE);
    }
    errno = error;
}

/* With `polling` held. */
static void resolve_all(bool lose)
{
    if (!tfi_lock(&tfi_event_times.lists)) return;
    while (lose && tfi_event_times_spans) close_span(0);
    tfi_unlock(&tfi_event_times.lists);
    for (uint32_t i = 0; i < TFI_EVENT_TIMES_MAX_CONTEXTS; i++)
        if (tfi_event_times.context[i].state != TFI_EVENT_CONTEXT_FREE)
            resolve_elsewhere(&tfi_event_times.context[i], lose);
}

/* Runs at exit: stages that are still open have had all their launches, except those of other exit handlers. */
static void at_exit(void)
{
    int error = errno;
    if (tfi_event_times.on && tfi_event_times.gen && tfi_event_times.pid == tfi_getpid() &&
        tfi_lock_within(&tfi_event_times.polling, POLL_MS)) {
        if (!tfi_event_times.quiet) resolve_all(true);
        tfi_unlock(&tfi_event_times.polling);
    }
    __atomic_store_n(&tfi_event_times.quiet, 1, __ATOMIC_SEQ_CST);
    errno = error;
}

bool tfi_event_times_finish(void)
{
    if (!tfi_event_times.on || !tfi_event_times.gen || tfi_event_times.pid != tfi_getpid()) return true;
    if (!tfi_lock_within(&tfi_event_times.polling, POLL_MS)) return false;
    resolve_all(true);
    if (lane.gen == tfi_event_times.gen) tfi_chunk_close(&lane);
    lane.gen = 0;
    __atomic_store_n(&tfi_event_times.gen, 0, __ATOMIC_RELEASE);
    tfi_unlock(&tfi_event_times.polling);
    return true;
}
