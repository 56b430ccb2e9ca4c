/* overlay.c - writes a trace with its critical path, in the form of HTA's overlay_critical_path_analysis.
 *
 * The events pass one by one, as to any receiver of an export. An event of a Kineto trace is recognised by its number in
 * the file. One of ours is recognised by its times and its row, and of several equal ones the first is taken. Arrows
 * follow behind all events, because they need the rows of both ends. HTA draws them to an end on a device one
 * microsecond early, so that viewers attach them to the event.
 */
#include "write/chrome/overlay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "read/json/clean.h"
#include "write/chrome/chrome_file.h"
#include "write/emit.h"
#include "write/export/export.h"
#include "write/export/export_tfr.h"

/* The row of an event of the path, as its trace writes it. */
struct place {
    char *pid, *tid;
    int64_t ts, dur; /* nanoseconds, in the file's time */
    bool on_device;
};

struct overlay {
    struct out out;
    const struct process *process;
    const struct critical_path *path;
    struct map critical; /* event of the path, by number in the file or by times and row */
    struct place *place; /* by event of the path */
    struct map index;    /* index in `place`, by event */
    size_t events, written, unplaced;
    struct out printed; /* an event of ours */
    struct text changed;
    struct strict strict;
    struct text members; /* of a Kineto trace, beside its events */
    uint64_t left_out;   /* members that are too large */
    int64_t base;        /* of the file's times, in the model's */
};

enum { MOST_MEMBER_BYTES = 64 << 20 };

/* ---- recognising events ---- */

static uint64_t key_of(int64_t start, int64_t end, uint64_t row)
{
    return hash_numbers(hash_numbers((uint64_t)start, (uint64_t)end), row);
}

static uint64_t row_of(const struct process *p, const struct critical_event *event)
{
    if (event->source == FROM_WORK) return (uint64_t)p->lane[p->works.lane[event->place]].stream;
    uint32_t serial = event->source == FROM_SPAN    ? p->spans.thread[event->place]
                      : event->source == FROM_RANGE ? p->ranges.thread[event->place]
                                                    : p->calls.thread[event->place];
    const struct thread *thread = find_thread(p, serial);
    return thread ? thread->tid : 0;
}

static void add_critical(struct overlay *o, uint32_t number)
{
    const struct process *p = o->process;
    const struct critical_event *event = &o->path->events.event[number];
    const uint32_t *numbers = event->source == FROM_SPAN   ? p->numbers.span
                              : event->source == FROM_WORK ? p->numbers.work
                                                           : NULL;
    if (map_get(&o->index, number) != MAP_NONE) return;
    map_put(&o->index, number, (uint32_t)o->index.count);
    uint64_t key = numbers ? numbers[event->place] : key_of(event->start, event->end, row_of(p, event));
    if (map_get(&o->critical, key) == MAP_NONE) map_put(&o->critical, key, number);
}

static void find_critical(struct overlay *o)
{
    const struct critical_path *path = o->path;
    for (size_t i = 0; i < path->steps; i++) {
        add_critical(o, NODE_EVENT(path->graph.edge[path->path[i]].from));
        add_critical(o, NODE_EVENT(path->graph.edge[path->path[i]].to));
    }
    o->place = mem_zero(o->index.count, sizeof *o->place);
}

/* Returns the event of the path that this one is; MAP_NONE: none. */
static uint32_t recognise(const struct overlay *o, const struct event *event)
{
    if (event->phase != 'X') return MAP_NONE;
    if (is_of_kineto(o->process)) return map_get(&o->critical, o->events);
    return map_get(&o->critical, key_of(event->ts, add_ns(event->ts, event->dur), (uint64_t)event->tid));
}

/* ---- writing ---- */

static void put_separator(struct overlay *o)
{
    out_puts(&o->out, o->written++ ? ",\n" : "\n");
}

static void put_raw(struct overlay *o, struct slice raw)
{
    struct slice valid = strict_json(&o->strict, raw);
    out_write(&o->out, valid.at, valid.length);
}

/* Returns the text of an event, which can be scanned. */
static struct slice text_of(struct overlay *o, const struct event *event)
{
    struct emit e = {.out = &o->printed, .format = FORMAT_JSON};
    if (!event->values) return event->raw;
    o->printed.used = 0;
    out_puts(&o->printed, "{");
    for (size_t i = 0; i < event->values->count;) i += value_print(&e, &event->values->value[i]);
    out_puts(&o->printed, "}");
    char *end = out_room(&o->printed, STREAM_PAD);
    *end = 0;
    memset(end + 1, '"', STREAM_PAD - 1);
    return (struct slice){o->printed.buffer, o->printed.used};
}

/* Returns the event with the argument `critical`. */
static struct slice mark(struct overlay *o, struct slice raw)
{
    static const char inside[] = "\"critical\": 1", member[] = ", \"args\": {\"critical\": 1}}";
    struct slice args = json_member(raw, "args"), rest = args, key, value;
    bool has_args = args.at && args.length > 1 && *args.at == '{';
    size_t until = has_args ? (size_t)(args.at - raw.at) + 1 : raw.length - 1;
    o->changed.length = 0;
    text_add(&o->changed, raw.at, until);
    if (has_args) {
        text_puts(&o->changed, inside);
        if (json_next(&rest, &key, &value)) text_puts(&o->changed, ", ");
        text_add(&o->changed, raw.at + until, raw.length - until);
    } else {
        text_puts(&o->changed, member);
    }
    return (struct slice){o->changed.data, o->changed.length};
}

static char *member_text(struct slice raw, const char *key)
{
    struct slice value = json_member(raw, key);
    return value.at ? mem_text(value.at, value.length) : NULL;
}

static bool is_on_device(const struct event *event)
{
    int64_t device = event->has & HAS_DEVICE ? event->device : -1;
    if (event->values) value_int(event_argument(event, "device"), &device);
    return device >= 0;
}

/* Remembers where an event of the path is drawn. */
static void note_place(struct overlay *o, uint32_t number, const struct event *event, struct slice raw)
{
    struct place *place = &o->place[map_get(&o->index, number)];
    if (place->pid) return;
    *place = (struct place){.pid = member_text(raw, "pid"),
                            .tid = member_text(raw, "tid"),
                            .ts = event->ts - o->base,
                            .dur = event->dur,
                            .on_device = is_on_device(event)};
}

static void put_event_under_path(void *context, const struct event *event)
{
    struct overlay *o = context;
    uint32_t number = recognise(o, event);
    struct slice raw = text_of(o, event);
    o->events++;
    put_separator(o);
    if (number == MAP_NONE) {
        put_raw(o, raw);
        return;
    }
    note_place(o, number, event, raw);
    put_raw(o, mark(o, raw));
}

static void on_begin(void *context, const struct process *process, int64_t pid)
{
    (void)context;
    (void)process;
    (void)pid;
}

static void on_end(void *context)
{
    (void)context;
}

/* Keeps a member of a Kineto trace, as it may stand behind the events. */
static void on_member(void *context, struct slice key, struct slice value)
{
    struct overlay *o = context;
    struct out member;
    if (slice_is(key, "tfinject")) return;
    if (o->members.length + key.length + value.length > MOST_MEMBER_BYTES) {
        o->left_out++;
        return;
    }
    out_memory(&member);
    out_puts(&member, ",\n");
    out_json_string(&member, key.at, key.length);
    out_puts(&member, ": ");
    struct slice valid = strict_json(&o->strict, value);
    out_write(&member, valid.at, valid.length);
    text_add(&o->members, member.buffer, member.used);
    out_discard(&member);
}

/* ---- arrows ---- */

static void put_arrow(struct overlay *o, const struct critical_edge *edge, uint32_t node, uint64_t id, bool begins)
{
    const struct place *place = &o->place[map_get(&o->index, NODE_EVENT(node))];
    int64_t early = place->on_device ? MIN(1000, place->dur) : 0;
    put_separator(o);
    out_format(&o->out, "{\"ph\": \"%s\", \"id\": %llu, \"pid\": ", begins ? "s" : "f", (unsigned long long)id);
    put_raw(o, (struct slice){place->pid, strlen(place->pid)});
    out_puts(&o->out, ", \"tid\": ");
    put_raw(o, (struct slice){place->tid, strlen(place->tid)});
    out_puts(&o->out, ", \"ts\": ");
    out_us(&o->out, NODE_IS_END(node) ? place->ts + place->dur - early : place->ts);
    out_format(&o->out, ", \"cat\": \"%s\", \"name\": \"critical_path\", \"args\": {\"weight\": ",
               critical_type_names[edge->type]);
    out_us(&o->out, edge->weight);
    out_format(&o->out, ", \"critical\": true}%s}", begins ? "" : ", \"bp\": \"e\"");
}

static void put_arrows(struct overlay *o)
{
    uint64_t id = 0;
    for (size_t i = 0; i < o->path->steps; i++) {
        const struct critical_edge *edge = &o->path->graph.edge[o->path->path[i]];
        bool drawn = edge->type == EDGE_DEPENDENCY || edge->type == EDGE_LAUNCH || edge->type == EDGE_SYNC;
        const struct place *from = &o->place[map_get(&o->index, NODE_EVENT(edge->from))];
        const struct place *to = &o->place[map_get(&o->index, NODE_EVENT(edge->to))];
        if (!drawn) continue;
        if (!from->pid || !from->tid || !to->pid || !to->tid) {
            o->unplaced++;
            continue;
        }
        put_arrow(o, edge, edge->from, id, true);
        put_arrow(o, edge, edge->to, id++, false);
    }
}

/* ---- the file ---- */

/* Lets all events of the trace pass, whatever the filters of the question. */
static bool pass_events(struct overlay *o, const struct selection *chosen)
{
    struct options all = {.from = NAN, .to = NAN};
    struct selection whole = {0};
    const struct event_taker taker = {o, on_begin, put_event_under_path, on_end, on_member, false, false};
    uint64_t events = 0;
    selection_init(&whole, &all, chosen->inputs, chosen->model);
    bool read = export_events(&whole, o->process, "critical-path", &taker, &events);
    selection_free(&whole);
    return read;
}

static void put_own_members(struct overlay *o, const struct selection *chosen)
{
    out_puts(&o->out, ", ");
    export_tfr_metadata(&o->out, o->process, chosen);
    out_format(&o->out, ", \"displayTimeUnit\": \"ms\", \"baseTimeNanoseconds\": %lld", (long long)o->base);
}

bool overlay_write(const char *file, const struct selection *chosen, const struct process *process,
                   const struct critical_path *path)
{
    struct overlay o = {.process = process, .path = path};
    o.base = is_of_kineto(process) ? kineto_base(process) : export_base(MAX(chosen->model->start, 0));
    if (!out_open(&o.out, file)) return false;
    find_critical(&o);
    out_memory(&o.printed);
    out_puts(&o.out, "{");
    put_writer(&o.out, "critical-path", NULL, process->rank);
    if (!is_of_kineto(process)) put_own_members(&o, chosen);
    out_puts(&o.out, ",\n\"traceEvents\": [");
    bool good = pass_events(&o, chosen);
    put_arrows(&o);
    out_puts(&o.out, "\n]");
    out_write(&o.out, o.members.data ? o.members.data : "", o.members.length);
    out_puts(&o.out, "}\n");
    if (o.left_out)
        complain(process->path, "%llu members beside its events are too large and left out",
                 (unsigned long long)o.left_out);
    if (o.unplaced)
        complain(process->path, "%zu arrows of the path are left out: their events are not in the export", o.unplaced);
    if (good) good = out_close(&o.out);
    else out_discard(&o.out);
    for (size_t i = 0; i < o.index.count; i++) {
        free(o.place[i].pid);
        free(o.place[i].tid);
    }
    free(o.place);
    map_free(&o.critical);
    map_free(&o.index);
    out_discard(&o.printed);
    text_free(&o.changed);
    strict_free(&o.strict);
    text_free(&o.members);
    return good;
}
