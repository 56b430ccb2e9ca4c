/* dftracer.c - finds the events in a dftracer trace, line by line, and tells such a trace from a PyTorch trace.
 *
 * An event stands in one line. While a line is scanned, the bytes behind it hold the stream's terminator instead, so
 * that a damaged line cannot make the scanner read on: each byte is scanned once. A line that is no event is counted
 * and left out. A last line without its newline counts as an event if it is complete.
 */
#include "read/dftracer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "read/dftracer_event.h"
#include "read/stream/stream.h"

enum { LOOKED_AT = 65536, LONGEST_LINE = 16 << 20 };

struct walk {
    struct stream stream;
    const struct dftracer_sink *sink;
    struct dftracer_damage *damage;
    struct dftracer_scanner scanner;
    size_t longest;
    uint64_t line;     /* number of the current one */
    uint64_t too_long; /* lines */
};

/* ---- units ---- */

int64_t dftracer_ns(int64_t number, unsigned unit)
{
    static const int64_t factors[] = {[UNIT_NS] = 1, [UNIT_US] = 1000, [UNIT_MS] = 1000000, [UNIT_SEC] = 1000000000};
    int64_t ns;
    return __builtin_mul_overflow(number, factors[unit], &ns) ? (number < 0 ? INT64_MIN : INT64_MAX) : ns;
}

int dftracer_unit(struct slice text)
{
    static const struct {
        const char *name;
        int unit;
    } rows[] = {{"NS", UNIT_NS}, {"US", UNIT_US}, {"MS", UNIT_MS}, {"SEC", UNIT_SEC}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (text.at && slice_is(text, rows[i].name)) return rows[i].unit;
    return -1;
}

/* ---- lines ---- */

/* Takes a line that begins at `p` and ends before `end`, which holds the terminator. Returns false if the line, or its
 * rest, is no event. */
static bool take_line(struct walk *w, const char *p, const char *end)
{
    struct dftracer_event event;
    for (;;) {
        p = json_space(p);
        if (p >= end) return true;
        if (*p == '[' || *p == ']' || *p == ',') {
            p++;
            continue;
        }
        if (*p != '{') return false;
        p = dftracer_scan(&w->scanner, p, &event);
        if (!p || p > end || (!event.text[DFT_NAME].at && !event.text[DFT_CATEGORY].at && !event.phase)) return false;
        w->damage->events++;
        if (w->sink->event) w->sink->event(w->sink->context, &event);
    }
}

static void count_bad(struct walk *w)
{
    if (!w->damage->bad++) w->damage->bad_line = w->line;
}

/* Scans the line before `end` with a terminator behind it. */
static bool scan_line(struct walk *w, char *end)
{
    char kept[STREAM_PAD];
    memcpy(kept, end, STREAM_PAD);
    end[0] = 0;
    memset(end + 1, '"', STREAM_PAD - 1);
    bool good = take_line(w, w->stream.at, end);
    memcpy(end, kept, STREAM_PAD);
    return good;
}

/* Skips the rest of a line that is too long. */
static void skip_line(struct walk *w)
{
    struct stream *s = &w->stream;
    char *newline;
    w->too_long++;
    count_bad(w);
    while (!(newline = memchr(s->at, '\n', (size_t)(s->end - s->at)))) {
        s->at = s->end;
        if (!stream_more(s)) return;
    }
    s->at = newline + 1;
}

static void skip_mark(struct stream *s)
{
    bool more = true;
    while (s->end - s->at < 3 && more) more = stream_more(s);
    if (s->end - s->at >= 3 && memcmp(s->at, "\xef\xbb\xbf", 3) == 0) s->at += 3;
}

static void read_lines(struct walk *w)
{
    struct stream *s = &w->stream;
    size_t searched = 0; /* bytes of the line that hold no newline */
    skip_mark(s);
    for (w->line = 1;;) {
        size_t length = (size_t)(s->end - s->at);
        char *newline = memchr(s->at + searched, '\n', length - searched);
        if (newline) {
            if (!scan_line(w, newline)) count_bad(w);
            s->at = newline + 1;
            w->line++;
            searched = 0;
        } else if (length >= w->longest) {
            skip_line(w);
            w->line++;
            searched = 0;
        } else {
            searched = length;
            if (!stream_more(s)) break;
        }
    }
    if (!take_line(w, s->at, s->end)) w->damage->cut = true;
}

/* ---- notes ---- */

static void judge(const struct walk *w, struct notes *notes)
{
    const struct stream *s = &w->stream;
    const struct dftracer_damage *d = w->damage;
    unsigned long long events = d->events, line = w->line;
    if (d->cut)
        notes_add(notes, LOSS,
                  "ends early, in line %llu: the first %llu events were read; the file is cut, or still being written",
                  line, events);
    if (d->bad)
        notes_add(notes, LOSS, "%llu lines are not valid events and were left out%s; the first one is line %llu",
                  (unsigned long long)d->bad, w->too_long ? ", some of them because they are too long" : "",
                  (unsigned long long)d->bad_line);
    if (!stream_judge(s, notes) && s->file.gzip_cut && !d->cut)
        notes_add(notes, LOSS, "its compressed data end early; the %llu events before the cut were read", events);
    if (!events && !d->bad && !d->cut) notes_add(notes, NOTE, "contains no events");
}

static bool read_stream(void *context, struct notes *notes)
{
    struct walk *w = context;
    const struct stream *s = &w->stream;
    struct dftracer_damage *d = w->damage;
    w->stream.most = w->longest;
    dftracer_scanner_init(&w->scanner);
    read_lines(w);
    dftracer_scanner_free(&w->scanner);
    d->broken = s->file.error || s->file.gzip_damaged || s->file.gzip_checksum || s->file.gzip_cut;
    judge(w, notes);
    if (!d->events && (d->bad || d->cut || !s->total)) {
        notes_add(notes, UNUSABLE, "is not a dftracer trace: %s",
                  s->total ? "none of its lines is an event" : "it is empty");
        return false;
    }
    return true;
}

static void drop(void *context)
{
    struct walk *w = context;
    dftracer_scanner_free(&w->scanner);
}

bool dftracer_read(const char *path, enum file_how how, const struct dftracer_sink *sink,
                   struct dftracer_damage *damage, struct notes *notes, atomic_ullong *done)
{
    struct walk w = {.sink = sink, .damage = damage, .longest = LONGEST_LINE};
    *damage = (struct dftracer_damage){0};
    return stream_read(&w.stream, path, &(struct stream_way){.how = how, .exact = true}, done,
                       &(struct stream_reading){read_stream, drop, &w, NULL}, notes);
}

bool dftracer_read_bytes(const void *bytes, size_t length, size_t piece, size_t longest,
                         const struct dftracer_sink *sink, struct dftracer_damage *damage, struct notes *notes)
{
    struct walk w = {.sink = sink, .damage = damage, .longest = longest};
    *damage = (struct dftracer_damage){0};
    stream_open_memory(&w.stream, bytes, length, piece);
    bool usable = read_stream(&w, notes);
    stream_close(&w.stream);
    return usable;
}

/* ---- detection ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), n = strlen(end);
    return length > n && strcmp(text + length - n, end) == 0;
}

bool is_dftracer_name(const char *name)
{
    return ends_with(name, ".pfw") || ends_with(name, ".pfw.gz");
}

static bool is_event(struct slice object)
{
    return json_member(object, "name").length && json_member(object, "cat").length &&
           json_member(object, "pid").length && json_member(object, "ph").length;
}

/* Recognises dftracer's own metadata events (hosts, files, processes). The text after the first event decides for
 * other events. */
static bool is_described(struct slice object)
{
    struct slice category = json_member(object, "cat");
    return is_event(object) && category.length == 10 && memcmp(category.at, "\"dftracer\"", 10) == 0;
}

bool is_dftracer_file(const char *path, enum file_how how)
{
    static _Thread_local char text[LOOKED_AT + STREAM_PAD];
    const char *stopped, *at = text, *end;
    size_t length = stream_head(path, how, text, LOOKED_AT);
    text[length] = 0;
    memset(text + length + 1, '"', STREAM_PAD - 1);
    at = json_space(strncmp(at, "\xef\xbb\xbf", 3) == 0 ? at + 3 : at);
    at = *at == '[' ? json_space(at + 1) : at;
    end = *at == '{' ? json_skip(at, &stopped) : NULL;
    if (!end || end > text + length) return false;
    struct slice first = {.at = at, .length = (size_t)(end - at)};
    return is_described(first) || (is_event(first) && *json_space(end) == '{');
}
