/* kineto_places.c - maps each event of a Kineto trace, in file order, to its row in the model and its stage.
 *
 * attribute() places operators, calls and device work. Other events of a thread follow the same rules at their start.
 * An annotation's shadow on a device begins with the annotation's first kernel there and belongs with the annotation.
 * An arrow's end belongs to the event it is tied to.
 */
#include "ask/kineto_places.h"

#include <stdlib.h>
#include <string.h>

#include "ask/stages/stage_at.h"
#include "ask/stages/same_name.h"
#include "base/runs.h"
#include "base/sets/finger_search.h"
#include "model/load/load_kineto.h"
#include "model/ranges/step_ranges.h"

/* The start of a row, as the key to find the row again. */
struct beginning {
    int64_t time;
    uint64_t where; /* a thread, a correlation id or a lane */
    uint32_t place;
};

struct beginnings {
    struct beginning *item;
    size_t count;
    size_t found; /* the place looked up last */
};

struct kineto_places {
    const struct names *names;
    const struct process *process;
    const struct attribution *attribution;
    struct stage_named named;
    struct beginnings spans; /* by thread */
    struct beginnings works; /* by correlation id */
    struct beginnings lanes; /* kernels, copies and sets by lane */
    struct threads_by_id {
        struct thread_id {
            int64_t pid, tid;
            uint32_t serial;
        } * item;
        size_t count;
    } threads;
    size_t next[TABLE_FORWARDS + 1]; /* by table: index of the next row */
    struct beginnings calls;         /* by thread, time and id */
    int64_t base;
};

/* ---- rows by thread or lane and start ---- */

static int by_row_and_time(const void *a, const void *b, void *unused)
{
    const struct beginning *x = a, *y = b;
    (void)unused;
    if (x->where != y->where) return x->where < y->where ? -1 : 1;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

static void sort_beginnings(struct beginnings *b)
{
    sort_runs(b->item, b->count, sizeof *b->item, by_row_and_time, NULL);
}

struct beginning_search {
    const struct beginning *item;
    const uint64_t *ids; /* of spans; NULL: the id does not count */
    uint64_t where, id;
    int64_t time;
};

static bool is_since(const void *context, size_t place)
{
    const struct beginning_search *search = context;
    const struct beginning *b = &search->item[place];
    return b->where > search->where || (b->where == search->where && b->time >= search->time);
}

/* Returns the index of the first row of `where` that began at `time` or later. */
static size_t since(struct beginnings *b, uint64_t where, int64_t time)
{
    const struct beginning_search search = {.item = b->item, .where = where, .time = time};
    return b->found = place_near(b->found, b->count, is_since, &search);
}

/* Returns the first row of `where` that began at exactly `time`; NULL if there is none. */
static const struct beginning *first_at(struct beginnings *b, uint64_t where, int64_t time)
{
    size_t at = since(b, where, time);
    bool found = at < b->count && b->item[at].where == where && b->item[at].time == time;
    return found ? &b->item[at] : NULL;
}

static int by_thread_time_and_id(const void *a, const void *b, void *context)
{
    const struct beginning *x = a, *y = b;
    const struct spans *s = context;
    if (x->where != y->where || x->time != y->time || s->id[x->place] == s->id[y->place])
        return by_row_and_time(x, y, NULL);
    return s->id[x->place] < s->id[y->place] ? -1 : 1;
}

static bool is_call_behind(const void *context, size_t place)
{
    const struct beginning_search *search = context;
    const struct beginning *b = &search->item[place];
    if (b->where != search->where) return b->where > search->where;
    return b->time != search->time ? b->time > search->time : search->ids[b->place] > search->id;
}

/* Returns the last call with this id that begins on a thread at `time`; NULL if there is none. */
static const struct beginning *call_at(struct kineto_places *places, uint32_t thread, int64_t time, uint64_t id)
{
    const struct beginning *item = places->calls.item;
    const uint64_t *ids = places->process->spans.id;
    const struct beginning_search search = {item, ids, thread, id, time};
    size_t behind = places->calls.found = place_near(places->calls.found, places->calls.count, is_call_behind, &search);
    const struct beginning *last = behind ? &item[behind - 1] : NULL;
    return last && last->where == thread && last->time == time && ids[last->place] == id ? last : NULL;
}

/* Returns one key per device and stream, whether the events or their row name the stream. */
static uint64_t lane_key(const struct process *process, uint32_t lane)
{
    return (uint64_t)process->lane[lane].device << 48 ^ (uint64_t)process->lane[lane].stream;
}

static void index_model(struct kineto_places *places)
{
    const struct process *p = places->process;
    const struct spans *s = &places->process->spans;
    const struct works *w = &places->process->works;
    places->spans.item = mem_zero(s->table.count, sizeof *places->spans.item);
    places->calls.item = mem_zero(s->table.count, sizeof *places->calls.item);
    places->works.item = mem_zero(w->table.count, sizeof *places->works.item);
    places->lanes.item = mem_zero(w->table.count, sizeof *places->lanes.item);
    for (size_t i = 0; i < s->table.count; i++) {
        struct beginning begins = {s->start[i], s->thread[i], (uint32_t)i};
        places->spans.item[places->spans.count++] = begins;
        if (s->event_class[i] == CLASS_API) places->calls.item[places->calls.count++] = begins;
    }
    for (size_t i = 0; i < w->table.count; i++) {
        if (w->correlation[i] != NO_ID)
            places->works.item[places->works.count++] = (struct beginning){w->start[i], w->correlation[i], (uint32_t)i};
        if (IS_WORK(w->event_class[i])) {
            places->lanes.item[places->lanes.count++] =
                (struct beginning){w->start[i], lane_key(p, w->lane[i]), (uint32_t)i};
        }
    }
    sort_beginnings(&places->spans);
    sort_runs(places->calls.item, places->calls.count, sizeof *places->calls.item, by_thread_time_and_id, (void *)s);
    sort_beginnings(&places->works);
    sort_beginnings(&places->lanes);
}

static int by_id(const void *a, const void *b)
{
    const struct thread_id *x = a, *y = b;
    if (x->pid != y->pid) return x->pid < y->pid ? -1 : 1;
    return (x->tid > y->tid) - (x->tid < y->tid);
}

static void index_threads(struct kineto_places *places)
{
    const struct process *p = places->process;
    places->threads.item = mem_zero(p->threads, sizeof *places->threads.item);
    for (size_t i = 0; i < p->threads; i++) {
        const struct thread *t = &p->thread[i];
        places->threads.item[i] = (struct thread_id){t->pid >= 0 ? t->pid : p->pid, (int64_t)t->tid, t->serial};
    }
    places->threads.count = p->threads;
    if (p->threads) qsort(places->threads.item, p->threads, sizeof *places->threads.item, by_id);
}

static uint32_t thread_of(const struct kineto_places *places, const struct kineto_event *event)
{
    struct thread_id key = {event->pid, event->tid, 0}, *found = NULL;
    if (event->has & HAS_TID && places->threads.count)
        found = bsearch(&key, places->threads.item, places->threads.count, sizeof key, by_id);
    return found ? found->serial : NO_THREAD;
}

/* ---- the stage of an event ---- */

struct belongs {
    uint32_t stage;
    int64_t time;
};

static struct belongs to_span(const struct kineto_places *places, uint32_t place)
{
    return (struct belongs){places->attribution->span[place].stage, places->attribution->span[place].time};
}

static struct belongs to_work(const struct kineto_places *places, uint32_t place)
{
    return (struct belongs){places->attribution->work[place].stage, places->attribution->work[place].time};
}

/* Returns the model's name for the annotation of this shadow. */
static uint32_t annotation_name(const struct kineto_places *places, const struct kineto_event *event)
{
    uint64_t number;
    bool is_step = step_number(event->name, &number);
    bool is_any = is_step && !places->names->full_stages;
    struct slice name = is_any ? (struct slice){ANY_STEP, sizeof ANY_STEP - 1} : event->name;
    uint32_t found = name.at ? names_find(places->names, name.at, name.length) : NO_PLACE;
    uint32_t folded = map_get(&places->process->folded, found);
    return folded == MAP_NONE ? found : folded;
}

/* Finds the annotation of a shadow: the one around the kernel that the shadow begins with. Kineto's rounding can
 * separate their times by a nanosecond or two, and in traces of whole microseconds several kernels begin at once. */
static struct belongs to_shadow(struct kineto_places *places, uint32_t place, const struct kineto_event *event)
{
    const struct works *w = &places->process->works;
    uint64_t lane = lane_key(places->process, w->lane[place]);
    uint32_t name = annotation_name(places, event);
    size_t at = since(&places->lanes, lane, w->start[place] - 2);
    for (int tries = 16; tries && at < places->lanes.count && places->lanes.item[at].where == lane; at++, tries--) {
        struct belongs b = to_work(places, places->lanes.item[at].place);
        if (b.stage != NO_PLACE)
            b.stage = stage_named_at(&places->named, places->process->ranges.thread[b.stage], name, b.time);
        if (b.stage != NO_PLACE) return b;
    }
    return (struct belongs){NO_PLACE, 0};
}

/* Finds the event that an arrow is tied to. It begins at the arrow's time. Preference: the call with the arrow's id on
 * its thread, any other span on that thread, the device work with the arrow's id. */
static struct belongs to_end(struct kineto_places *places, const struct kineto_event *event)
{
    uint32_t thread = thread_of(places, event);
    const struct beginning *span = thread == NO_THREAD ? NULL : first_at(&places->spans, thread, event->ts);
    if (span) {
        const struct beginning *call = event->has & HAS_ID ? call_at(places, thread, event->ts, event->id) : NULL;
        return to_span(places, call ? call->place : span->place);
    }
    const struct beginning *work = event->has & HAS_ID ? first_at(&places->works, event->id, event->ts) : NULL;
    if (work) return to_work(places, work->place);
    return (struct belongs){stage_at(&places->attribution->finder, thread, event->ts), event->ts};
}

static struct belongs to_place(struct kineto_places *places, enum kineto_table table, uint32_t place,
                               const struct kineto_event *event)
{
    const struct process *p = places->process;
    if (table == TABLE_RANGES && place < p->ranges.table.count) return (struct belongs){place, p->ranges.start[place]};
    if (table == TABLE_SPANS && place < p->spans.table.count) return to_span(places, place);
    if (table == TABLE_WORKS && place < p->works.table.count) {
        bool is_shadow = p->works.event_class[place] == CLASS_DEVICE_ANNOTATION;
        return is_shadow ? to_shadow(places, place, event) : to_work(places, place);
    }
    return (struct belongs){NO_PLACE, 0};
}

static struct belongs to_stage(struct kineto_places *places, const struct kineto_event *event, enum kineto_table table,
                               uint32_t place)
{
    if (event->phase && strchr("stf", event->phase)) return to_end(places, event);
    if (table != TABLE_NONE) return to_place(places, table, place, event);
    uint32_t stage =
        event->has & HAS_PID ? stage_at(&places->attribution->finder, thread_of(places, event), event->ts) : NO_PLACE;
    return (struct belongs){stage, event->ts};
}

/* ---- events in file order ---- */

struct kineto_places *kineto_places_open(const struct names *names, const struct process *process,
                                         const struct attribution *attribution)
{
    struct kineto_places *places = mem_zero(1, sizeof *places);
    *places = (struct kineto_places){.names = names, .process = process, .attribution = attribution};
    places->base = kineto_base(process);
    index_model(places);
    index_threads(places);
    stage_named_init(&places->named, attribution);
    return places;
}

bool kineto_places_next(struct kineto_places *places, const struct kineto_event *in_file, struct kineto_place *place)
{
    struct kineto_event event = *in_file;
    enum kineto_table table = kineto_table(&event, kineto_class(event.category, event.name));
    uint32_t at = (uint32_t)places->next[table]++;
    event.ts += places->base;
    if (event.phase == 'M' || !(event.has & HAS_TS)) return false;
    struct belongs b = to_stage(places, &event, table, at);
    *place = (struct kineto_place){{b.time, b.stage, 0}, NO_PLACE, NO_PLACE};
    place->span = table == TABLE_SPANS && at < places->process->spans.table.count ? at : NO_PLACE;
    place->work = table == TABLE_WORKS && at < places->process->works.table.count ? at : NO_PLACE;
    return true;
}

void kineto_places_close(struct kineto_places *places)
{
    if (!places) return;
    stage_named_free(&places->named);
    free(places->spans.item);
    free(places->calls.item);
    free(places->works.item);
    free(places->lanes.item);
    free(places->threads.item);
    free(places);
}
