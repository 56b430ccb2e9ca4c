/* dump_kineto.c - prints the events of a Kineto trace as stored in the file, one per row. Those of a dftracer trace have the
 * form of a Chrome trace, with the files that their hashes stand for.
 *
 * An event's members that are not keys of the row go to its values. Numbers keep their digits. Profilers write some
 * text that is not JSON: NaN and the like become null, bytes that are not UTF-8 become U+FFFD (read/json/clean.h).
 */
#include "commands/dump/dump_kineto.h"

#include <stdlib.h>
#include <string.h>

#include "ask/dump_choice.h"
#include "read/json/clean.h"
#include "read/kineto.h"
#include "write/dftracer/to_chrome.h"
#include "write/export/export.h"

struct dump {
    struct session *session;
    const struct process *process;
    int64_t from, to;
    uint64_t top, *rows;
    int64_t base;
    struct text clean;
    struct strict strict;
    struct dump_choice chosen;
};

/* ---- values ---- */

/* Returns valid JSON without line breaks; what cannot be made valid is null. */
static const struct text *clean(struct dump *dump, struct slice json)
{
    struct slice valid = strict_json(&dump->strict, json);
    struct text *text = &dump->clean;
    text->length = 0;
    text_puts(text, "");
    for (size_t i = 0; i < valid.length; i++) /* a string in valid JSON has no such character */
        if ((unsigned char)valid.at[i] >= 0x20) text_add(text, valid.at + i, 1);
    return text;
}

/* True for a member that is already a key of the row. */
static bool is_shown(const struct event *event, struct slice key)
{
    return (slice_is(key, "ts") && event->has & HAS_TS) || (slice_is(key, "pid") && event->has & HAS_PID) ||
           (slice_is(key, "tid") && event->has & HAS_TID) || (slice_is(key, "cat") && event->category.length);
}

static void emit_values(struct dump *dump, const struct event *event)
{
    struct emit *e = &dump->session->emit;
    struct slice at = event->raw, key, value;
    while (json_next(&at, &key, &value)) {
        if (is_shown(event, key)) continue;
        if (slice_is(key, "dur") && event->has & HAS_DUR) {
            emit_us(e, "dur_us", event->dur);
            continue;
        }
        char *name = mem_text(key.at ? key.at : "", key.length);
        name[json_unescape(name, name, key.length)] = 0;
        const struct text *json = clean(dump, value);
        emit_json(e, name, json->data, json->length);
        free(name);
    }
}

/* ---- rows ---- */

static void emit_kind(struct emit *e, const struct event *event)
{
    static const struct {
        char phase;
        const char *name;
    } names[] = {{'M', "metadata"}, {'X', "complete"}, {'B', "begin"}, {'E', "end"},   {'i', "instant"},
                 {'I', "instant"},  {'C', "counter"},  {'s', "flow"},  {'t', "flow"},  {'f', "flow"},
                 {'b', "async"},    {'e', "async"},    {'n', "async"}, {'N', "object"}};
    const char *kind = "event";
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) kind = names[i].phase == event->phase ? names[i].name : kind;
    if (event->category.length) emit_bytes_text(e, "kind", event->category.at, event->category.length);
    else emit_text(e, "kind", kind);
}

static bool in_window(const struct dump *dump, const struct event *event, int64_t time)
{
    if (dump->from == INT64_MIN && dump->to == INT64_MAX) return true;
    return event->has & HAS_TS && time >= dump->from && time < dump->to;
}

static void dump_event(void *context, const struct event *event)
{
    struct dump *dump = context;
    struct emit *e = &dump->session->emit;
    int64_t time = add_ns(event->ts, dump->base);
    if ((dump->top && *dump->rows >= dump->top) || !in_window(dump, event, time)) return;
    emit_row(e);
    emit_known(e, "rank", dump->process->rank);
    if (event->has & HAS_PID) emit_int(e, "pid", event->pid);
    else emit_null(e, "pid");
    if (event->has & HAS_TID) emit_int(e, "tid", event->tid);
    else emit_null(e, "tid");
    emit_kind(e, event);
    if (event->has & HAS_TS) emit_us(e, "time_us", add_ns(time, -dump->session->model.start));
    else emit_null(e, "time_us");
    emit_bool(e, "live", false);
    emit_open(e, "values", false);
    emit_values(dump, event);
    emit_close(e);
    emit_row_end(e);
    ++*dump->rows;
}

static void dump_chosen(void *context, const struct kineto_event *event)
{
    struct dump *dump = context;
    const struct event given = event_of_file(event);
    if (dump_choice_has_event(&dump->chosen, event)) dump_event(dump, &given);
}

void dump_kineto(struct session *session, const struct process *process, int64_t from, int64_t to, uint64_t top,
                 uint64_t *rows)
{
    struct dump dump = {.session = session, .process = process, .from = from, .to = to, .top = top, .rows = rows};
    dump.base = kineto_base(process);
    dump_choice_init(&dump.chosen, &session->chosen, process);
    struct kineto_sink sink = {.context = &dump, .event = dump_chosen};
    struct kineto_damage damage;
    struct notes notes = {0};
    atomic_ullong done = 0;
    kineto_read(process->path, &process->way, &sink, &damage, &notes, &done); /* the first pass reported the damage */
    notes_free(&notes);
    dump_choice_free(&dump.chosen);
    text_free(&dump.clean);
    strict_free(&dump.strict);
}

void dump_dftracer(struct session *session, const struct process *process, uint64_t top, uint64_t *rows)
{
    struct dump dump = {.session = session, .process = process, .from = INT64_MIN, .to = INT64_MAX, .top = top};
    const struct event_taker taker = {.context = &dump, .event = dump_event};
    uint64_t events = 0;
    dump.rows = rows;
    export_events(&session->chosen, process, "dump", &taker, &events);
    text_free(&dump.clean);
    strict_free(&dump.strict);
}
