/* to_chrome.c - reads a dftracer trace again, and rewrites its events one by one as those of a Chrome trace.
 *
 * An event keeps its members and their order; members of its arguments are added. A row that adds up several calls
 * becomes an event of the length of all of them. Nothing but the texts of hashes stays in memory.
 */
#include "write/dftracer/to_chrome.h"

#include <stdlib.h>

#include "base/hash.h"
#include "model/load/load_kineto.h"

/* ---- one event ---- */

/* Rewrites events, one after the other. */
struct to_chrome {
    const struct process *process;
    struct names names; /* texts of hashes, as strings in JSON */
    struct map text_of; /* name, by a hash of the hash */
    struct text raw;    /* the current event */
};

static void to_chrome_init(struct to_chrome *to, const struct process *process)
{
    *to = (struct to_chrome){.process = process};
    names_init(&to->names);
}

static void to_chrome_free(struct to_chrome *to)
{
    names_free(&to->names);
    map_free(&to->text_of);
    text_free(&to->raw);
}

static bool text_is(const struct dftracer_event *event, enum dftracer_text which, const char *text)
{
    return event->text[which].at && slice_is(event->text[which], text);
}

/* Remembers the text of a hash, as a string in JSON. */
static void take_text(struct to_chrome *to, const struct dftracer_event *event)
{
    struct slice hash = event->text[DFT_META_VALUE];
    bool is_hash = text_is(event, DFT_NAME, "FH") || text_is(event, DFT_NAME, "HH");
    struct slice text = is_hash && event->args.at ? json_member(event->args, "name") : (struct slice){0};
    if (hash.at && text.length && *text.at == '"')
        map_put(&to->text_of, hash_text(hash.at, hash.length), names_add(&to->names, text.at, text.length));
}

static void put_us(struct text *raw, int64_t ns)
{
    text_format(raw, "%lld", (long long)(ns / 1000));
    if (ns % 1000) text_format(raw, ".%03lld", (long long)(ns % 1000));
}

/* Adds the text of a hash to the arguments, if the event has the hash alone. */
static void put_text_of(struct to_chrome *to, const struct dftracer_event *event, const char *key,
                        enum dftracer_text text, enum dftracer_text hash)
{
    struct slice written = event->text[hash];
    if (event->text[text].at || !written.at) return;
    uint32_t name = map_get(&to->text_of, hash_text(written.at, written.length));
    if (name == MAP_NONE) return;
    const struct name *found = names_get(&to->names, name);
    text_puts(&to->raw, to->raw.data[to->raw.length - 1] == '{' ? "\"" : ",\"");
    text_puts(&to->raw, key);
    text_puts(&to->raw, "\":");
    text_add(&to->raw, found->text, found->length);
}

static void put_args(struct to_chrome *to, const struct dftracer_event *event, struct slice value)
{
    size_t length = value.length;
    while (length && value.at[length - 1] != '}') length--;
    text_add(&to->raw, value.at, length - 1); /* without the bracket */
    if (event->phase != 'M') {
        put_text_of(to, event, "fname", DFT_FILE, DFT_FILE_HASH);
        put_text_of(to, event, "hostname", DFT_HOST, DFT_HOST_HASH);
    }
    text_puts(&to->raw, "}");
}

static void put_member(struct to_chrome *to, const struct dftracer_event *event, const struct kineto_event *made,
                       struct slice key, struct slice value)
{
    struct text *raw = &to->raw;
    if (json_is_key(key, "ph")) text_format(raw, "\"%c\"", made->phase ? made->phase : '?');
    else if (json_is_key(key, "ts") && made->has & HAS_TS) put_us(raw, made->ts);
    else if (json_is_key(key, "dur") && made->has & HAS_DUR) put_us(raw, made->dur);
    else if (json_is_key(key, "pid") && made->has & HAS_PID) text_format(raw, "%lld", (long long)made->pid);
    else if (json_is_key(key, "tid") && made->has & HAS_TID) text_format(raw, "%lld", (long long)made->tid);
    else if (json_is_key(key, "args") && *value.at == '{') put_args(to, event, value);
    else text_add(raw, value.at, value.length);
}

static void make_kineto_event(struct to_chrome *to, const struct dftracer_event *event, struct kineto_event *made)
{
    struct slice rest = event->raw, key, value;
    to->raw.length = 0;
    text_puts(&to->raw, "{");
    for (bool first = true; json_next(&rest, &key, &value); first = false) {
        text_puts(&to->raw, first ? "\"" : ",\"");
        text_add(&to->raw, key.at, key.length);
        text_puts(&to->raw, "\":");
        put_member(to, event, made, key, value);
    }
    if (made->has & HAS_DUR && !dftracer_has(event, DFT_DUR)) {
        text_puts(&to->raw, ",\"dur\":");
        put_us(&to->raw, made->dur);
    }
    text_puts(&to->raw, "}");
    made->raw = json_padded(&to->raw);
}

/* Returns the time that the calls of an event took. */
static int64_t duration_of(const struct dftracer_event *event, unsigned unit)
{
    int64_t calls = dftracer_has(event, DFT_CALLS) ? event->number[DFT_CALLS] : 1, ns;
    if (dftracer_has(event, DFT_DUR_SUM)) return dftracer_ns(event->number[DFT_DUR_SUM], unit);
    int64_t each = dftracer_has(event, DFT_DUR)       ? event->number[DFT_DUR]
                   : dftracer_has(event, DFT_ARG_DUR) ? event->number[DFT_ARG_DUR]
                                                      : 0;
    return __builtin_mul_overflow(dftracer_ns(each, unit), calls, &ns) ? INT64_MAX : ns;
}

/* Returns the event with numbers for strings, letters for phases, times in microseconds, and the texts of the hashes
 * that it names (fname, hostname) beside them. It is valid until the next call. */
static struct kineto_event to_chrome_event(struct to_chrome *to, const struct dftracer_event *event)
{
    struct kineto_event made = {.category = event->text[DFT_CATEGORY], .name = event->text[DFT_NAME]};
    unsigned unit = to->process->time_unit;
    bool is_sum = dftracer_has(event, DFT_CALLS);
    made.phase = event->phase == 'A' || (is_sum && event->phase == 'C') ? 'X' : event->phase;
    if (dftracer_has(event, DFT_TS)) {
        made.ts = dftracer_ns(event->number[DFT_TS], unit);
        made.has |= HAS_TS | (made.ts % 1000 ? HAS_FLOAT_TS : 0);
    }
    if (dftracer_has(event, DFT_DUR) || (is_sum && made.phase == 'X')) {
        made.dur = duration_of(event, unit);
        made.has |= HAS_DUR;
    }
    if (dftracer_has(event, DFT_PID)) {
        made.pid = event->number[DFT_PID];
        made.has |= HAS_PID;
    }
    if (dftracer_has(event, DFT_TID)) {
        made.tid = event->number[DFT_TID];
        made.has |= HAS_TID;
    }
    if (event->phase == 'M') take_text(to, event);
    make_kineto_event(to, event, &made);
    struct slice args = json_member(made.raw, "args");
    made.args = args.length && *args.at == '{' ? args : (struct slice){0};
    return made;
}

/* ---- the whole trace ---- */

struct copy {
    struct to_chrome to;
    struct targets *targets;
    struct map serial_of; /* of a thread, by a hash of pid and tid */
};

static bool is_chosen(const struct copy *copy, const struct kineto_event *event)
{
    if (event->phase == 'M' || !copy->targets->filter) return true;
    uint64_t place = hash_numbers((uint64_t)(event->has & HAS_PID ? event->pid : -1),
                                  (uint64_t)(event->has & HAS_TID ? event->tid : 0));
    uint32_t thread = map_get(&copy->serial_of, place);
    return thread != MAP_NONE &&
           dump_choice_has(
               copy->targets->filter,
               &(struct dumped){.kind = TFI_KIND_mark, .thread = thread, .has_time = true, .time = event->ts});
}

static void take_event(void *context, const struct dftracer_event *event)
{
    struct copy *copy = context;
    struct kineto_event made = to_chrome_event(&copy->to, event);
    const struct event given = event_of_file(&made);
    if (is_chosen(copy, &made)) targets_event(copy->targets, &given, kineto_is_kept(&made), NULL);
}

bool export_dftracer(struct targets *targets, struct notes *notes)
{
    const struct process *process = targets->process;
    struct copy copy = {.targets = targets};
    const struct dftracer_sink sink = {&copy, take_event};
    struct dftracer_damage damage;
    atomic_ullong done = 0;
    to_chrome_init(&copy.to, process);
    for (size_t i = 0; i < process->threads && targets->filter; i++)
        map_put(&copy.serial_of, hash_numbers((uint64_t)process->thread[i].pid, process->thread[i].tid),
                process->thread[i].serial);
    bool read = dftracer_read(process->path, process->way.how, &sink, &damage, notes, &done);
    map_free(&copy.serial_of);
    to_chrome_free(&copy.to);
    return read;
}
