/* kineto_merge.c - rewrites the events of a Kineto trace for a file that other traces share.
 *
 * An event keeps its members and their order; only times, pids and ids change. An id is a number of the file: the
 * first free one plus the old id. Ids of 2^40 and more become hashes of 52 bits, so that every id is below 2^53 and a
 * reader that keeps numbers as doubles tells all of them apart. The correlation id 0 and the external id 0 mean "none"
 * and stay. Times are shifted by the clock of the process; a duration changes only if that clock drifts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "write/chrome/chrome_merge.h"
#include "write/export/export_tfr.h"
#include "read/json/clean.h"
#include "write/out.h"

enum { MOST_MEMBER_BYTES = 16 << 20, LABEL_HOST = 64 };
static const uint64_t LARGE_ID = UINT64_C(1) << 40, HASHED_ID = UINT64_C(1) << 52;

/* A row of the input: a process or a device. */
struct row {
    int64_t pid; /* in the file */
    bool named, sorted;
};

struct rewriting {
    struct merged *file;
    struct merged_process *one;
    size_t place; /* in the order of writing */
    char *label;  /* "rank 0 on host"; ASCII without quotes */
    struct row *row;
    size_t rows, row_capacity;
    struct map row_of;    /* by the pid in the input */
    struct map named;     /* pids of the input that are texts, by hash */
    uint64_t ids;         /* added to ids */
    uint64_t most;        /* largest id written, without hashed ones */
    struct strict strict; /* the current event, if it had to be cleaned */
};

/* ---- numbers ---- */

/* Mixes without a random seed, so that equal inputs give equal files. */
static uint64_t mixed(uint64_t number)
{
    number = (number ^ number >> 31) * UINT64_C(0x7fb5d329728ea185);
    number = (number ^ number >> 27) * UINT64_C(0x81dadef4bc2dd44d);
    return number ^ number >> 33;
}

static uint64_t id_of(struct rewriting *r, uint64_t id)
{
    uint64_t moved = r->ids + id;
    if (id >= LARGE_ID || moved >= HASHED_ID) return HASHED_ID | (mixed(mixed(r->place + 1) ^ id) & (HASHED_ID - 1));
    r->most = MAX(r->most, moved);
    return moved;
}

static void add_pid(struct text *pids, const char *text, size_t length)
{
    text_puts(pids, pids->length ? ", " : "");
    text_add(pids, text, length);
}

static struct row *row_of(struct rewriting *r, int64_t pid)
{
    uint32_t at = map_number(&r->row_of, (uint64_t)pid);
    if (at == r->rows) {
        char number[24];
        r->row = mem_grow(r->row, &r->row_capacity, r->rows + 1, sizeof *r->row);
        r->row[r->rows++] = (struct row){.pid = pid_in_file(&r->file->pids, pid)};
        int length = snprintf(number, sizeof number, "%lld", (long long)r->row[at].pid);
        add_pid(&r->one->pids, number, (size_t)length);
    }
    return &r->row[at];
}

/* Returns the place of a row: first the host, then devices by number, then the profiler's own rows. Kineto tells them
 * apart by the index: that of a device is above every pid, and those of its own rows are higher still. */
static int64_t sorted_place(const struct rewriting *r, const struct event *event, int64_t index)
{
    enum { KINETO_DEVICES = 5000000, KINETO_SPANS = 536870912 };
    int64_t number = event->has & HAS_PID ? MAX(event->pid, 0) : 0;
    int64_t row = index >= KINETO_SPANS     ? ROWS_OF_PROCESS - 1
                  : index >= KINETO_DEVICES ? ROW_DEVICES + MIN(number, ROW_DEVICES)
                                            : 0;
    return (int64_t)r->place * ROWS_OF_PROCESS + row;
}

/* ---- texts ---- */

static void put(struct rewriting *r, struct slice text)
{
    out_write(r->file->out, text.at, text.length);
}

static bool is_string(struct slice value)
{
    return value.length >= 2 && *value.at == '"';
}

/* Writes a string with the label of the process before it. */
static void put_labelled(struct rewriting *r, struct slice string)
{
    out_puts(r->file->out, "\"");
    out_puts(r->file->out, r->label);
    out_puts(r->file->out, ": ");
    put(r, (struct slice){string.at + 1, string.length - 1});
}

/* ---- values ---- */

/* Rows of the profiler's own marks have a text for a pid. */
static void put_pid(struct rewriting *r, const struct event *event, struct slice value)
{
    if (event->has & HAS_PID || !is_string(value)) {
        out_int(r->file->out, row_of(r, event->has & HAS_PID ? event->pid : -1)->pid);
        return;
    }
    uint64_t hash = hash_numbers(hash_text(value.at, value.length), 0);
    if (map_get(&r->named, hash) == MAP_NONE) {
        map_put(&r->named, hash, 1);
        text_puts(&r->one->pids, r->one->pids.length ? ", \"" : "\"");
        text_puts(&r->one->pids, r->label);
        text_puts(&r->one->pids, ": ");
        text_add(&r->one->pids, value.at + 1, value.length - 1);
    }
    put_labelled(r, value);
}

/* Writes an id in the form it had: a number, or a string with a hexadecimal number. Another text gets the place of the
 * process before it. */
static void put_id(struct rewriting *r, struct slice value)
{
    struct number number;
    bool hex = value.length > 4 && value.at[0] == '"' && value.at[1] == '0' && value.at[2] == 'x';
    char digits[20] = {0}, *end = digits;
    uint64_t id = 0;
    if (hex && value.length - 4 <= 16) {
        memcpy(digits, value.at + 3, value.length - 4);
        id = strtoull(digits, &end, 16);
    }
    if (end > digits && !*end) {
        out_format(r->file->out, "\"0x%llx\"", (unsigned long long)id_of(r, id));
        return;
    }
    json_number(value.at, 0, &number);
    if (number.state == NUMBER_GOOD && !number.negative && !number.is_float) {
        bool quoted = is_string(value);
        out_puts(r->file->out, quoted ? "\"" : "");
        out_number(r->file->out, id_of(r, number.magnitude));
        out_puts(r->file->out, quoted ? "\"" : "");
    } else if (is_string(value)) {
        out_format(r->file->out, "\"%llu:", (unsigned long long)r->place);
        put(r, (struct slice){value.at + 1, value.length - 1});
    } else {
        put(r, value);
    }
}

/* Ids in arguments: 0 and negative ones mean "none". */
static void put_argument_id(struct rewriting *r, struct slice value)
{
    struct number number;
    json_number(value.at, 0, &number);
    bool is_id = number.state == NUMBER_GOOD && !number.negative && !number.is_float && number.magnitude;
    if (is_id) put_id(r, value);
    else put(r, value);
}

static int64_t shifted(const struct rewriting *r, int64_t time)
{
    return clock_shifted(&r->one->clock.shift, time);
}

static void put_time(struct rewriting *r, const struct event *event)
{
    int64_t time = MAX(add_ns(shifted(r, event->ts), -r->file->base), 0); /* only descriptions lie before the base */
    if (!(event->has & HAS_FLOAT_TS) && time % 1000 == 0) out_int(r->file->out, time / 1000);
    else out_us(r->file->out, time);
}

static void put_duration(struct rewriting *r, const struct event *event, struct slice value)
{
    bool drifts = r->one->clock.shift.drift != 0 && (event->has & (HAS_TS | HAS_DUR)) == (HAS_TS | HAS_DUR);
    if (drifts) out_us(r->file->out, shifted(r, add_ns(event->ts, event->dur)) - shifted(r, event->ts));
    else put(r, value);
}

/* ---- members ---- */

enum part { OTHER, PID, TIME, DURATION, ID, IDS, ARGUMENTS, ARGUMENT_ID, NAME, SORT };

static const struct {
    const char *key;
    enum part part;
} event_parts[] = {{"pid", PID}, {"ts", TIME},    {"dur", DURATION},  {"id", ID},
                   {"id2", IDS}, {"bind_id", ID}, {"args", ARGUMENTS}},
  argument_parts[] = {{"correlation", ARGUMENT_ID}, {"External id", ARGUMENT_ID},
                      {"external id", ARGUMENT_ID}, {"wait_on_cuda_event_record_corr_id", ARGUMENT_ID},
                      {"Python id", ARGUMENT_ID},   {"Python parent id", ARGUMENT_ID}};

static enum part event_part(struct slice key)
{
    for (size_t i = 0; i < ARRAY_SIZE(event_parts); i++)
        if (json_is_key(key, event_parts[i].key)) return event_parts[i].part;
    return OTHER;
}

static enum part argument_part(const struct event *event, struct slice key)
{
    if (event->phase == 'M') {
        bool is_name = slice_is(event->name, "process_name") && json_is_key(key, "name");
        bool is_sort = slice_is(event->name, "process_sort_index") && json_is_key(key, "sort_index");
        return is_name ? NAME : is_sort ? SORT : OTHER;
    }
    for (size_t i = 0; i < ARRAY_SIZE(argument_parts); i++)
        if (json_is_key(key, argument_parts[i].key)) return argument_parts[i].part;
    return OTHER;
}

static void put_key(struct rewriting *r, struct slice key, bool first)
{
    out_puts(r->file->out, first ? "\"" : ", \"");
    put(r, key);
    out_puts(r->file->out, "\": ");
}

static void put_ids(struct rewriting *r, struct slice object)
{
    struct slice key, value;
    out_puts(r->file->out, "{");
    for (bool first = true; json_next(&object, &key, &value); first = false) {
        put_key(r, key, first);
        put_id(r, value);
    }
    out_puts(r->file->out, "}");
}

static void put_argument(struct rewriting *r, const struct event *event, struct slice key, struct slice value)
{
    enum part part = argument_part(event, key);
    int64_t index;
    if (part == ARGUMENT_ID) {
        put_argument_id(r, value);
    } else if (part == NAME && is_string(value)) {
        if (event->has & HAS_PID) row_of(r, event->pid)->named = true;
        put_labelled(r, value);
    } else if (part == SORT && json_int(value, &index)) {
        if (event->has & HAS_PID) row_of(r, event->pid)->sorted = true;
        out_int(r->file->out, sorted_place(r, event, index));
    } else {
        put(r, value);
    }
}

static void put_arguments(struct rewriting *r, const struct event *event, struct slice object)
{
    struct slice key, value;
    out_puts(r->file->out, "{");
    for (bool first = true; json_next(&object, &key, &value); first = false) {
        put_key(r, key, first);
        put_argument(r, event, key, value);
    }
    out_puts(r->file->out, "}");
}

static void put_member(struct rewriting *r, const struct event *event, enum part part, struct slice value)
{
    bool is_object = value.length && *value.at == '{';
    if (part == PID) put_pid(r, event, value);
    else if (part == TIME && event->has & HAS_TS) put_time(r, event);
    else if (part == DURATION) put_duration(r, event, value);
    else if (part == ID) put_id(r, value);
    else if (part == IDS && is_object) put_ids(r, value);
    else if (part == ARGUMENTS && is_object) put_arguments(r, event, value);
    else put(r, value);
}

/* ---- events ---- */

static void begin_event(struct rewriting *r)
{
    out_puts(r->file->out, r->file->events++ ? ",\n{" : "\n{");
}

static void take_event(void *context, const struct event *event)
{
    struct rewriting *r = context;
    struct slice rest = strict_clean(&r->strict, event->raw), key, value;
    bool has_pid = false;
    if (!rest.at) {
        r->one->invalid++;
        return;
    }
    begin_event(r);
    for (bool first = true; json_next(&rest, &key, &value); first = false) {
        enum part part = event_part(key);
        put_key(r, key, first);
        put_member(r, event, part, value);
        has_pid |= part == PID;
    }
    if (!has_pid) {
        out_puts(r->file->out, ", \"pid\": ");
        out_int(r->file->out, row_of(r, -1)->pid);
    }
    out_puts(r->file->out, "}");
    r->one->events += event->phase != 'M';
}

static void put_description(struct rewriting *r, const struct row *row, const char *name, const char *key)
{
    struct out *out = r->file->out;
    begin_event(r);
    out_format(out, "\"ph\": \"M\", \"name\": \"%s\", \"pid\": %lld, \"tid\": 0, \"ts\": 0, \"args\": {\"%s\": ", name,
               (long long)row->pid, key);
    if (strcmp(key, "name") == 0) out_json_string(out, r->label, strlen(r->label));
    else out_int(r->file->out, (int64_t)r->place * ROWS_OF_PROCESS);
    out_puts(out, "}}");
}

/* ---- a trace ---- */

/* Hosts come from traces, so only harmless characters of them are used. */
static char *make_label(const struct process *p)
{
    char host[LABEL_HOST] = "";
    for (size_t i = 0; p->host && p->host[i] && i + 1 < sizeof host; i++) {
        char c = p->host[i], lower = (char)(c | 0x20);
        bool plain = (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
        host[i] = c;
        if (!plain) host[i] = '_';
    }
    char *rank = p->rank >= 0 ? string_format("rank %lld", (long long)p->rank) : string_format("no rank");
    char *label = string_format("%s%s%s", rank, *host ? " on " : "", host);
    free(rank);
    return label;
}

static void begin_trace(void *context, const struct process *process, int64_t pid)
{
    struct rewriting *r = context;
    r->label = make_label(process);
    r->ids = r->most = r->file->ids;
    (void)pid; /* a row's pid is found when its first event comes */
}

static void keep_member_of_trace(void *context, struct slice key, struct slice value)
{
    struct rewriting *r = context;
    struct merged_process *one = r->one;
    if (slice_is(key, "tfinject")) return;
    struct slice strict = strict_clean(&r->strict, value);
    if (!strict.at || r->file->member_bytes + key.length + strict.length > MOST_MEMBER_BYTES ||
        memchr(key.at, 0, key.length)) {
        r->file->lost_members++;
        return;
    }
    r->file->member_bytes += key.length + strict.length;
    one->member = mem_grow(one->member, &one->member_capacity, one->members + 1, sizeof *one->member);
    one->member[one->members++] =
        (struct merged_member){mem_text(key.at, key.length), mem_text(strict.at, strict.length), strict.length};
}

static void end_trace(void *context)
{
    struct rewriting *r = context;
    for (size_t i = 0; i < r->rows; i++) {
        if (!r->row[i].named) put_description(r, &r->row[i], "process_name", "name");
        if (!r->row[i].sorted) put_description(r, &r->row[i], "process_sort_index", "sort_index");
    }
    r->file->ids = r->most + 1;
    map_free(&r->row_of);
    map_free(&r->named);
    strict_free(&r->strict);
    free(r->label);
    free(r->row);
    free(r);
}

struct event_taker rewriting_taker(struct merged *file, size_t place)
{
    struct rewriting *r = mem_zero(1, sizeof *r);
    *r = (struct rewriting){.file = file, .one = &file->one[place], .place = place};
    return (struct event_taker){.context = r,
                                .begin = begin_trace,
                                .event = take_event,
                                .end = end_trace,
                                .member = keep_member_of_trace,
                                .only_kept = true};
}
