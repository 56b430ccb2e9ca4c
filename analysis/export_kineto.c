/* export_kineto.c - copies events of a Kineto trace to the outputs they belong to.
 *
 * Operators, calls and device work belong where attribute() says; all else on a thread by the same rules at its
 * beginning. An annotation's shadow on a device begins with the annotation's first kernel there and goes where the
 * annotation goes. An arrow's end belongs to the event it is tied to. What describes rows (M) is in every output; what
 * has no row of a process (the profiler's own marks) only in whole ones.
 */
#include "export_kineto.h"

#include <stdlib.h>
#include <string.h>

#include "dump_choice.h"
#include "load_kineto.h"
#include "stage_at.h"
#include "stage_named.h"
#include "stages.h"
#include "steps.h"

/* Something that begins somewhere: to find it again by where and when it did. */
struct beginning {
    int64_t time;
    uint64_t where; /* a thread, or a lane */
    uint32_t place;
};

struct beginnings {
    struct beginning *item;
    size_t count;
};

struct copy {
    struct targets *targets;
    const struct session *session;
    const struct process *process;
    const struct attribution *attribution;
    struct stage_finder finder;
    struct stage_named named;
    uint64_t *of_stage;        /* by range: the targets of it and of all around it */
    int64_t *all_until;        /* by range: when the first of those around it ends */
    struct stage_paths *paths; /* by target, where it was needed: over the target's stages */
    struct beginnings spans;   /* by thread */
    struct beginnings works;   /* by correlation id */
    struct beginnings lanes;   /* kernels, copies and sets by lane */
    struct threads_by_id {
        struct thread_id {
            int64_t pid, tid;
            uint32_t serial;
        } * item;
        size_t count;
    } threads;
    size_t next[TABLE_FORWARDS + 1]; /* places */
    struct beginnings calls;         /* by thread, time and id */
    uint64_t events;
    uint64_t checked; /* the event of which it is known whether it can be written as it is */
    bool is_safe;
    int64_t base;
    bool parts; /* some target is not whole */
};

/* ---- finding things by where and when they began ---- */

static int by_where_and_time(const void *a, const void *b)
{
    const struct beginning *x = a, *y = b;
    if (x->where != y->where) {
        return x->where < y->where ? -1 : 1;
    }
    if (x->time != y->time) {
        return x->time < y->time ? -1 : 1;
    }
    return (x->place > y->place) - (x->place < y->place);
}

static void sort_beginnings(struct beginnings *b)
{
    if (b->count) {
        qsort(b->item, b->count, sizeof *b->item, by_where_and_time);
    }
}

/* Where those are that began there at this time or later. */
static size_t since(const struct beginnings *b, uint64_t where, int64_t time)
{
    struct beginning key = {time, where, 0};
    size_t low = 0, high = b->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (by_where_and_time(&b->item[middle], &key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The first of those that began there and then; NULL if there is none. */
static const struct beginning *first_at(const struct beginnings *b, uint64_t where, int64_t time)
{
    size_t at = since(b, where, time);
    bool found = at < b->count && b->item[at].where == where && b->item[at].time == time;
    return found ? &b->item[at] : NULL;
}

static int by_thread_time_and_id(const void *a, const void *b, void *context)
{
    const struct beginning *x = a, *y = b;
    const struct spans *s = context;
    if (x->where != y->where || x->time != y->time || s->id[x->place] == s->id[y->place]) {
        return by_where_and_time(x, y);
    }
    return s->id[x->place] < s->id[y->place] ? -1 : 1;
}

/* The last call that begins on a thread then and has this id; NULL if there is none. */
static const struct beginning *call_at(const struct copy *copy, uint32_t thread, int64_t time, uint64_t id)
{
    const struct beginning *item = copy->calls.item;
    const uint64_t *ids = copy->process->spans.id;
    size_t low = 0, high = copy->calls.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct beginning *b = &item[middle];
        bool after = b->where != thread ? b->where > thread : b->time != time ? b->time > time : ids[b->place] > id;
        if (after) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    const struct beginning *last = low ? &item[low - 1] : NULL;
    return last && last->where == thread && last->time == time && ids[last->place] == id ? last : NULL;
}

/* A lane, whether its events name their stream or their row does. */
static uint64_t lane_key(const struct process *process, uint32_t lane)
{
    return (uint64_t)process->lane[lane].device << 48 ^ (uint64_t)process->lane[lane].stream;
}

static void index_model(struct copy *copy)
{
    const struct process *p = copy->process;
    const struct spans *s = &copy->process->spans;
    const struct works *w = &copy->process->works;
    copy->spans.item = mem_zero(s->table.count, sizeof *copy->spans.item);
    copy->calls.item = mem_zero(s->table.count, sizeof *copy->calls.item);
    copy->works.item = mem_zero(w->table.count, sizeof *copy->works.item);
    copy->lanes.item = mem_zero(w->table.count, sizeof *copy->lanes.item);
    for (size_t i = 0; i < s->table.count; i++) {
        struct beginning begins = {s->start[i], s->thread[i], (uint32_t)i};
        copy->spans.item[copy->spans.count++] = begins;
        if (s->class[i] == CLASS_API) {
            copy->calls.item[copy->calls.count++] = begins;
        }
    }
    for (size_t i = 0; i < w->table.count; i++) {
        if (w->correlation[i] != NO_ID) {
            copy->works.item[copy->works.count++] = (struct beginning){w->start[i], w->correlation[i], (uint32_t)i};
        }
        if (IS_WORK(w->class[i])) {
            copy->lanes.item[copy->lanes.count++] =
                (struct beginning){w->start[i], lane_key(p, w->lane[i]), (uint32_t)i};
        }
    }
    sort_beginnings(&copy->spans);
    if (copy->calls.count) {
        qsort_r(copy->calls.item, copy->calls.count, sizeof *copy->calls.item, by_thread_time_and_id, (void *)s);
    }
    sort_beginnings(&copy->works);
    sort_beginnings(&copy->lanes);
}

static int by_id(const void *a, const void *b)
{
    const struct thread_id *x = a, *y = b;
    if (x->pid != y->pid) {
        return x->pid < y->pid ? -1 : 1;
    }
    return (x->tid > y->tid) - (x->tid < y->tid);
}

static void index_threads(struct copy *copy)
{
    const struct process *p = copy->process;
    copy->threads.item = mem_zero(p->threads, sizeof *copy->threads.item);
    for (size_t i = 0; i < p->threads; i++) {
        const struct thread *t = &p->thread[i];
        copy->threads.item[i] = (struct thread_id){t->pid >= 0 ? t->pid : p->pid, (int64_t)t->tid, t->serial};
    }
    copy->threads.count = p->threads;
    if (p->threads) {
        qsort(copy->threads.item, p->threads, sizeof *copy->threads.item, by_id);
    }
}

static uint32_t thread_of(const struct copy *copy, const struct kineto_event *event)
{
    struct thread_id key = {event->pid, event->tid, 0}, *found = NULL;
    if (event->has & HAS_TID && copy->threads.count) {
        found = bsearch(&key, copy->threads.item, copy->threads.count, sizeof key, by_id);
    }
    return found ? found->serial : NO_THREAD;
}

int64_t kineto_base(const struct process *process)
{
    uint64_t base;
    bool has_base = process->metadata && pairs_number(process->metadata, "baseTimeNanoseconds", &base);
    return has_base ? (int64_t)base : 0;
}

/* ---- writing ---- */

void put_writer(struct out *out, const char *artefact, const struct name *stage, int64_t rank)
{
    out_puts(out, "\"tfinject\": {\"artefact\": ");
    out_json_string(out, artefact, strlen(artefact));
    if (stage) {
        out_puts(out, ", \"stage\": ");
        out_json_string(out, stage->text, stage->length);
    }
    out_puts(out, ", \"rank\": ");
    if (rank >= 0) {
        out_number(out, (uint64_t)rank);
    } else {
        out_puts(out, "null");
    }
    out_puts(out, ", \"writer\": \"tfanalyze " TFI_VERSION "\"}");
}

static void write_event(struct copy *copy, struct target *target, const struct kineto_event *event)
{
    if (target->seen == copy->events) {
        return;
    }
    target->seen = copy->events;
    if (!target->in_events) {
        out_puts(&target->out, ",\n\"traceEvents\": [");
        target->in_events = true;
    }
    out_puts(&target->out, target->written++ ? ",\n" : "\n");
    if (copy->checked != copy->events) { /* once, however many targets have it */
        copy->checked = copy->events;
        copy->is_safe = json_is_safe(event->raw.at, event->raw.length);
    }
    if (copy->is_safe) {
        out_write(&target->out, event->raw.at, event->raw.length);
    } else {
        out_json_raw(&target->out, event->raw.at, event->raw.length);
    }
    target->events += event->phase != 'M';
}

/* Which targets stages of this name have: one bit a target. */
static uint64_t bit_of(const struct copy *copy, uint32_t stage)
{
    uint32_t target = copy->targets->of_name[copy->process->ranges.name[stage]];
    return target == NO_PLACE ? 0 : UINT64_C(1) << target;
}

static void find_targets(struct copy *copy)
{
    const struct attribution *a = copy->attribution;
    const struct ranges *r = &copy->process->ranges;
    copy->of_stage = mem_zero(r->table.count, sizeof *copy->of_stage);
    copy->all_until = mem_zero(r->table.count, sizeof *copy->all_until);
    for (size_t i = 0; i < r->table.count; i++) {
        copy->of_stage[i] = bit_of(copy, (uint32_t)i);
        copy->all_until[i] = INT64_MAX;
    }
    for (size_t i = 0; i < a->stages; i++) { /* those around a stage come before it */
        size_t at = a->order[i];
        uint32_t outer = a->paths.outer[at];
        if (outer != NO_PLACE) {
            copy->of_stage[at] |= copy->of_stage[outer];
            copy->all_until[at] = MIN(copy->all_until[outer], r->end[outer]);
        }
    }
    copy->paths = mem_zero(copy->targets->count, sizeof *copy->paths);
}

/* A stage around this one may end before it does: ranges may cross. */
static bool is_inside(struct copy *copy, uint32_t target, uint32_t stage, int64_t time)
{
    struct stage_paths *paths = &copy->paths[target];
    if (!paths->ranges) {
        *paths = chosen_paths(copy->attribution, copy->targets->of_name, target);
    }
    return stage_or_around(paths, stage, time) != NO_PLACE;
}

/* To the targets of a stage and of those around it that were open at the time. */
static void write_for_stage(struct copy *copy, uint32_t stage, int64_t time, const struct kineto_event *event)
{
    uint64_t targets = stage == NO_PLACE ? 0 : copy->of_stage[stage];
    for (; targets; targets &= targets - 1) {
        uint32_t target = (uint32_t)__builtin_ctzll(targets);
        if (copy->all_until[stage] > time || is_inside(copy, target, stage, time)) {
            write_event(copy, &copy->targets->target[target], event);
        }
    }
}

/* ---- to which stage ---- */

struct belongs {
    uint32_t stage;
    int64_t time;
};

static struct belongs to_span(const struct copy *copy, uint32_t place)
{
    return (struct belongs){copy->attribution->span[place].stage, copy->attribution->span[place].time};
}

static struct belongs to_work(const struct copy *copy, uint32_t place)
{
    return (struct belongs){copy->attribution->work[place].stage, copy->attribution->work[place].time};
}

/* The name that annotations of this shadow have in the model. */
static uint32_t annotation_name(const struct copy *copy, const struct kineto_event *event)
{
    uint64_t number;
    bool is_step = step_number(event->name, &number);
    struct slice name = is_step ? (struct slice){ANY_STEP, sizeof ANY_STEP - 1} : event->name;
    return name.at ? names_find(&copy->session->model.names, name.at, name.length) : NO_PLACE;
}

/* The annotation that the shadow is of: around the kernel that the shadow begins with. Kineto rounds their times apart,
 * by a nanosecond or two, and in traces of whole microseconds several kernels begin at once. */
static struct belongs to_shadow(const struct copy *copy, uint32_t place, const struct kineto_event *event)
{
    const struct works *w = &copy->process->works;
    uint64_t lane = lane_key(copy->process, w->lane[place]);
    uint32_t name = annotation_name(copy, event);
    size_t at = since(&copy->lanes, lane, w->start[place] - 2);
    for (int tries = 16; tries && at < copy->lanes.count && copy->lanes.item[at].where == lane; at++, tries--) {
        struct belongs b = to_work(copy, copy->lanes.item[at].place);
        if (b.stage != NO_PLACE) {
            b.stage = stage_named_at(&copy->named, copy->process->ranges.thread[b.stage], name, b.time);
        }
        if (b.stage != NO_PLACE) {
            return b;
        }
    }
    return (struct belongs){NO_PLACE, 0};
}

/* What an arrow is tied to: the device work with its id that begins there, else what begins there on its thread. */
static struct belongs to_end(const struct copy *copy, const struct kineto_event *event)
{
    uint32_t thread = thread_of(copy, event);
    const struct beginning *work = event->has & HAS_ID ? first_at(&copy->works, event->id, event->ts) : NULL;
    const struct beginning *span = thread == NO_THREAD ? NULL : first_at(&copy->spans, thread, event->ts);
    if (span) {
        const struct beginning *call = event->has & HAS_ID ? call_at(copy, thread, event->ts, event->id) : NULL;
        return to_span(copy, call ? call->place : span->place);
    }
    if (work) {
        return to_work(copy, work->place);
    }
    return (struct belongs){stage_at(&copy->finder, thread, event->ts), event->ts};
}

static struct belongs to_place(const struct copy *copy, enum kineto_table table, uint32_t place,
                               const struct kineto_event *event)
{
    const struct process *p = copy->process;
    if (table == TABLE_RANGES && place < p->ranges.table.count) {
        return (struct belongs){place, p->ranges.start[place]};
    }
    if (table == TABLE_SPANS && place < p->spans.table.count) {
        return to_span(copy, place);
    }
    if (table == TABLE_WORKS && place < p->works.table.count) {
        bool is_shadow = p->works.class[place] == CLASS_DEVICE_ANNOTATION;
        return is_shadow ? to_shadow(copy, place, event) : to_work(copy, place);
    }
    return (struct belongs){NO_PLACE, 0};
}

/* ---- the second pass ---- */

static bool in_window(const struct copy *copy, const struct kineto_event *event)
{
    const struct targets *t = copy->targets;
    if (event->phase == 'M' || (t->from == INT64_MIN && t->to == INT64_MAX)) {
        return true;
    }
    int64_t end = event->ts;
    if (event->has & HAS_DUR && __builtin_add_overflow(event->ts, event->dur, &end)) {
        end = INT64_MAX;
    }
    return event->has & HAS_TS && event->ts < t->to && end >= t->from;
}

static struct belongs to_stage(const struct copy *copy, const struct kineto_event *event, enum kineto_table table,
                               uint32_t place)
{
    if (event->phase && strchr("stf", event->phase)) {
        return to_end(copy, event);
    }
    if (table != TABLE_NONE) {
        return to_place(copy, table, place, event);
    }
    uint32_t stage = event->has & HAS_PID ? stage_at(&copy->finder, thread_of(copy, event), event->ts) : NO_PLACE;
    return (struct belongs){stage, event->ts};
}

static void copy_for_stages(struct copy *copy, const struct kineto_event *event, enum kineto_table table,
                            uint32_t place)
{
    struct belongs b = to_stage(copy, event, table, place);
    write_for_stage(copy, b.stage, b.time, event);
}

static void copy_event(void *context, const struct kineto_event *in_file)
{
    struct copy *copy = context;
    struct kineto_event own = *in_file, *event = &own;
    enum kineto_table table = kineto_table(event, kineto_class(event->category, event->name));
    uint32_t place = (uint32_t)copy->next[table]++;
    struct dump_choice *chosen = copy->targets->chosen;
    bool wanted = !chosen || dump_choice_has_event(chosen, in_file) || event->phase == 'M';
    copy->events++;
    event->ts += copy->base; /* as in the model */
    if (!wanted || !in_window(copy, event)) {
        return;
    }
    for (size_t i = 0; i < copy->targets->count; i++) {
        if (copy->targets->target[i].whole || event->phase == 'M') {
            write_event(copy, &copy->targets->target[i], event);
        }
    }
    if (copy->parts && event->phase != 'M' && event->has & HAS_TS) {
        copy_for_stages(copy, event, table, place);
    }
}

static void copy_member(void *context, struct slice key, struct slice value)
{
    struct copy *copy = context;
    if (key.length == strlen("tfinject") && memcmp(key.at, "tfinject", key.length) == 0) {
        return;
    }
    for (size_t i = 0; i < copy->targets->count; i++) {
        struct target *target = &copy->targets->target[i];
        out_puts(&target->out, target->in_events ? "\n],\n" : ",\n");
        target->in_events = false;
        out_json_string(&target->out, key.at, key.length);
        out_puts(&target->out, ": ");
        out_json_raw(&target->out, value.at, value.length);
    }
}

static void begin_targets(struct copy *copy)
{
    for (size_t i = 0; i < copy->targets->count; i++) {
        struct target *target = &copy->targets->target[i];
        out_puts(&target->out, "{");
        put_writer(&target->out, target->artefact, target->stage, copy->process->rank);
        copy->parts |= !target->whole;
    }
}

/* A reader expects events, be it none. */
static void end_targets(struct copy *copy)
{
    for (size_t i = 0; i < copy->targets->count; i++) {
        struct target *target = &copy->targets->target[i];
        if (!target->written) {
            out_puts(&target->out, ",\n\"traceEvents\": [");
            target->in_events = true;
        }
        out_puts(&target->out, target->in_events ? "\n]}\n" : "}\n");
    }
}

static void index_all(struct copy *copy)
{
    index_model(copy);
    index_threads(copy);
    stage_finder_init(&copy->finder, copy->process, copy->attribution);
    stage_named_init(&copy->named, copy->attribution);
}

static void free_index(struct copy *copy)
{
    stage_finder_free(&copy->finder);
    stage_named_free(&copy->named);
    free(copy->spans.item);
    free(copy->calls.item);
    free(copy->works.item);
    free(copy->lanes.item);
    free(copy->threads.item);
}

/* ---- without copying ---- */

struct kineto_places {
    struct copy copy;
};

struct kineto_places *kineto_places_open(const struct session *session, const struct process *process,
                                         const struct attribution *attribution)
{
    struct kineto_places *places = mem_zero(1, sizeof *places);
    places->copy = (struct copy){.session = session, .process = process, .attribution = attribution};
    places->copy.base = kineto_base(process);
    index_all(&places->copy);
    return places;
}

bool kineto_places_next(struct kineto_places *places, const struct kineto_event *in_file, struct kineto_place *place)
{
    struct copy *copy = &places->copy;
    struct kineto_event event = *in_file;
    enum kineto_table table = kineto_table(&event, kineto_class(event.category, event.name));
    uint32_t at = (uint32_t)copy->next[table]++;
    event.ts += copy->base;
    if (event.phase == 'M' || !(event.has & HAS_TS)) {
        return false;
    }
    struct belongs b = to_stage(copy, &event, table, at);
    *place = (struct kineto_place){{b.time, b.stage, 0}, NO_PLACE, NO_PLACE};
    place->span = table == TABLE_SPANS && at < copy->process->spans.table.count ? at : NO_PLACE;
    place->work = table == TABLE_WORKS && at < copy->process->works.table.count ? at : NO_PLACE;
    return true;
}

void kineto_places_close(struct kineto_places *places)
{
    if (places) {
        free_index(&places->copy);
    }
    free(places);
}

bool export_kineto(struct targets *targets, const struct session *session, const struct process *process,
                   const struct attribution *attribution)
{
    struct copy copy = {.targets = targets, .session = session, .process = process, .attribution = attribution};
    copy.base = kineto_base(process);
    struct kineto_sink sink = {&copy, copy_event, copy_member};
    struct kineto_damage damage;
    struct notes notes = {0};
    atomic_ullong done = 0;
    begin_targets(&copy);
    if (copy.parts) {
        index_all(&copy);
        find_targets(&copy);
    }
    bool read = kineto_read(process->path, process->how, &sink, &damage, &notes, &done);
    if (!read && !notes_have(&session->inputs.input[process->input].notes, UNUSABLE)) {
        complain(process->path, "can't be read a second time");
    }
    end_targets(&copy);
    notes_free(&notes);
    for (size_t i = 0; copy.paths && i < targets->count; i++) {
        stage_paths_free(&copy.paths[i]);
    }
    free_index(&copy);
    free(copy.paths);
    free(copy.of_stage);
    free(copy.all_until);
    return read;
}

uint64_t export_kineto_whole(const struct session *session, const struct process *process, struct out *out,
                             const char *artefact, const uint32_t *of_name)
{
    struct attribution attribution = {0};
    struct dump_choice chosen;
    struct target target = {.out = *out, .artefact = artefact};
    struct targets targets = {.target = &target, .count = 1, .of_name = of_name};
    session_window(session, &targets.from, &targets.to);
    target.whole = !of_name || (!has_stages(process) && of_name[NAME_RUN] == 0);
    if (!target.whole) {
        attribute(&attribution, process, true);
    }
    dump_choice_init(&chosen, session, process);
    targets.chosen = chosen.asked ? &chosen : NULL;
    export_kineto(&targets, session, process, &attribution);
    dump_choice_free(&chosen);
    attribution_free(&attribution);
    *out = target.out;
    return target.events;
}
