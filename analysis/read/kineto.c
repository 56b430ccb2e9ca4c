/* kineto.c - finds the events in the JSON, and the other members of its outermost object.
 *
 * An event is scanned in place in one pass; if the window's end cuts it, it is scanned again once more bytes arrived.
 * An invalid event is left out. The next event begins behind the comma where the brackets of the invalid one close, or
 * behind the next comma that an event with a phase and a time or a name follows, whichever comes first. One value is read; what
 * follows it is counted as lost.
 */
#include "read/kineto.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "read/kineto_ahead.h"
#include "read/kineto_event.h"
#include "read/kineto_parts.h"
#include "read/stream/containers.h"
#include "read/stream/stream.h"

enum { LARGEST_MEMBER = 16 << 20 };
static const size_t LARGEST_EVENT = (size_t)256 << 20;

struct walk {
    struct stream stream;
    const struct kineto_sink *sink;
    struct stream_way way;
    struct kineto_damage *damage;
    struct notes *notes;
    struct kineto_scanner scanner;
    size_t largest;
    uint64_t too_large;  /* events and members */
    uint64_t nonsense;   /* offset + 1 of invalid JSON outside of events */
    uint64_t behind;     /* offset + 1 of what follows the outermost value */
    uint64_t skipped;    /* members before the list of events that were left out as invalid */
    uint64_t skipped_at; /* offset of the first one's fault */
    bool has_events;     /* the list of events has begun */
    bool is_list;        /* the list is the whole file */
    bool has_phase;      /* some event had a phase: it is a list of events */
    bool ended;          /* the outermost value was read to its end */
    bool is_json;
    bool only_look; /* stop at the first event */
    bool is_stage;
    const char *container;  /* what the text is if it is not JSON; NULL: not known */
    uint64_t tried, passed; /* bytes behind invalid events: scanned in vain, and left behind */
};

enum outcome { GOOD, CUT, BAD };

/* Counts an event or another item of the list as invalid. */
static void lose_item(struct walk *r, const char *place)
{
    if (!r->damage->bad++) r->damage->bad_at = stream_offset(&r->stream, place);
}

static __attribute__((noinline)) bool is_impossible(const struct stream_way *way, const struct kineto_event *event)
{
    int64_t end = event->has & HAS_DUR && event->dur > 0 ? add_ns(event->ts, event->dur) : event->ts;
    return event->phase == 'X' && event->has & HAS_TS && (event->ts < way->not_before || end > way->not_after);
}

static inline void send_event(struct walk *r, const struct kineto_event *event)
{
    if (__builtin_expect(r->way.has_limits, 0) && is_impossible(&r->way, event)) {
        if (!r->damage->impossible++) r->damage->impossible_at = stream_offset(&r->stream, event->raw.at);
        return;
    }
    r->damage->events++;
    r->damage->at = stream_offset(&r->stream, event->raw.at);
    if (r->sink->event) r->sink->event(r->sink->context, event);
}

static void give_event_of_part(struct walk *r, const struct kineto_event *event)
{
    struct kineto_event own = *event;
    if (kineto_part(r->way.parts, &own) == r->way.part) send_event(r, &own);
}

static void give_event_to_sink(struct walk *r, const struct kineto_event *event)
{
    bool too_late = (event->has & HAS_TS && (event->ts == INT64_MAX || event->ts == INT64_MIN)) ||
                    (event->has & HAS_DUR && (event->dur == INT64_MAX || event->dur == INT64_MIN));
    if (too_late) {
        lose_item(r, event->raw.at);
        return;
    }
    r->has_phase |= event->phase != 0;
    if (r->way.parts && r->way.part != PART_ALL) give_event_of_part(r, event);
    else send_event(r, event);
}

static enum outcome take_event(struct walk *r, const char **after)
{
    struct stream *s = &r->stream;
    struct kineto_event event;
    const char *stopped, *p = scan_event(&r->scanner, s->at, &event, &stopped);
    *after = p ? p : stopped;
    if (!p) /* a cut number may end in its e */
        return s->end - stopped < 3 ? CUT : BAD;
    give_event_to_sink(r, &event);
    return GOOD;
}

/* Takes the events that another thread scanned. The next item begins where it began, so it found the same ones. */
static void take_ahead(struct walk *r)
{
    const struct kineto_scan *scan = r->stream.scan;
    for (size_t i = 0; i < scan->count; i++) give_event_to_sink(r, &scan->event[i]);
    r->stream.scan = NULL;
    r->stream.at = scan->after;
}

/* ---- recovery behind invalid JSON ---- */

static bool more(struct walk *r)
{
    return stream_more(&r->stream);
}

/* Returns the next character that is no space; -1 at the end of the file. */
static inline int peek(struct walk *r)
{
    struct stream *s = &r->stream;
    for (;;) {
        s->at = (char *)json_space(s->at);
        if (s->at < s->end) return (unsigned char)*s->at;
        s->at = s->end;
        if (!more(r)) return -1;
    }
}

/* The window begins with a `{`: tells whether it begins an event that is whole, with a phase and a time or a name. What fails is
 * scanned again by the next try, so there is a limit for it; beyond it, and for what is cut, the first key decides. */
static bool at_event(struct walk *r)
{
    enum { LONGEST = 1 << 20, ALLOWED = 1 << 20, TIMES = 4 };
    struct stream *s = &r->stream;
    struct kineto_event event;
    const char *stopped, *after = NULL;
    bool is_cut = true, escaped = false;
    while (is_cut && r->tried <= ALLOWED + TIMES * r->passed) {
        after = scan_event(&r->scanner, s->at, &event, &stopped);
        if (after && after < s->end) return event.phase && (event.has & HAS_TS || event.name.at);
        r->tried += (uint64_t)((after ? after : stopped) - s->at) + 1;
        is_cut = after || s->end - stopped < 3;
        if (is_cut && (s->end - s->at > LONGEST || !more(r))) break;
    }
    if (!is_cut) return false;
    const char *p = json_space(s->at + 1), *end = *p == '"' ? json_string_end(p + 1, &escaped) : p;
    return *p == '"' && end < s->end && is_event_key(&r->scanner, p + 1, (size_t)(end - p - 1));
}

/* Skips from the start of an invalid item to the start of the next event, or to the end of the list. */
static void resync(struct walk *r, bool is_event)
{
    struct stream *s = &r->stream;
    struct json_skipper skipper = {.depth = !is_event}; /* without its opening bracket it is inside of one */
    char last = 0;                                      /* last character that is no space */
    bool is_behind = false; /* the event's own brackets have closed right before that comma */
    for (; s->at < s->end || more(r); r->passed++) {
        char c = *s->at;
        if (c == '{' && last == ',' && (is_behind || at_event(r))) return;
        c = *s->at; /* at_event may have moved the window */
        bool closed = json_skip_piece(&skipper, s->at, s->at + 1) != NULL;
        is_behind &= (unsigned char)c <= ' ' || (c == ',' && last == '}');
        last = (unsigned char)c > ' ' ? c : last;
        s->at++;
        if (!closed) continue;
        int next = c == '}' ? peek(r) : 0;
        if (next == ']' || next < 0) return;
        is_behind = next == ',';
        skipper = (struct json_skipper){.depth = 1}; /* brackets are unreliable: the pattern decides */
    }
}

/* Skips a value that is too large to hold. */
static bool skip_large(struct walk *r)
{
    struct stream *s = &r->stream;
    struct json_skipper skipper = {0};
    const char *after;
    r->too_large++;
    while (!(after = json_skip_piece(&skipper, s->at, s->end))) {
        s->at = s->end;
        if (!more(r)) return false;
    }
    s->at = (char *)after;
    return true;
}

/* ---- the file ---- */

static void cut(struct walk *r)
{
    r->damage->cut = true;
    r->damage->cut_at = r->stream.total;
    r->stream.at = r->stream.end;
}

static bool too_large(const struct walk *r, size_t largest)
{
    return (size_t)(r->stream.end - r->stream.at) >= largest;
}

/* Reads one item of the list. Returns false if the file ends inside it. */
static bool read_item(struct walk *r, int first)
{
    struct stream *s = &r->stream;
    const char *after, *stopped;
    enum outcome outcome;
    for (;;) {
        if (first == '{') {
            outcome = take_event(r, &after);
        } else {
            after = json_skip(s->at, &stopped);
            const char *next = after ? json_space(after) : stopped;
            outcome = next >= s->end ? CUT : after && (*next == ',' || *next == ']') ? GOOD : BAD;
            if (outcome == GOOD) lose_item(r, s->at);
        }
        if (outcome == GOOD) {
            s->at = (char *)after;
            return true;
        }
        if (outcome == BAD) {
            lose_item(r, s->at);
            resync(r, first == '{');
            return true;
        }
        if (too_large(r, r->largest)) {
            lose_item(r, s->at);
            return skip_large(r);
        }
        if (!more(r)) return false;
    }
}

/* Reads the items of the list of events, from behind its opening bracket. */
static bool read_list(struct walk *r)
{
    r->has_events = true;
    for (;;) {
        int c = peek(r);
        if (c == ',') {
            r->stream.at++;
        } else if (r->stream.scan && r->stream.at == r->stream.scan_at) {
            take_ahead(r);
        } else if (c == ']') {
            r->stream.at++;
            return true;
        } else if (c < 0 ? r->is_list : r->only_look && (!r->is_list || r->has_phase || r->damage->bad)) {
            return true; /* a bare list may lack its closing bracket */
        } else if (c < 0 || !read_item(r, c)) {
            cut(r);
            return false;
        }
    }
}

static void no_sense(struct walk *r)
{
    r->nonsense = stream_offset(&r->stream, r->stream.at) + 1;
}

/* Reads a value other than the list of events. Returns false if the file ends inside it, or if it is invalid. */
static bool read_value(struct walk *r, struct slice *value)
{
    struct stream *s = &r->stream;
    const char *after, *stopped;
    *value = (struct slice){0};
    for (;;) {
        after = json_skip(s->at, &stopped);
        if (after && after < s->end) {
            *value = (struct slice){s->at, (size_t)(after - s->at)};
            s->at = (char *)after;
            return true;
        }
        if (!after && stopped < s->end) {
            no_sense(r);
            return false;
        }
        if (too_large(r, LARGEST_MEMBER)) return skip_large(r) || (cut(r), false);
        if (!more(r)) {
            cut(r);
            return false;
        }
    }
}

static bool key_is(struct slice key, const char *text)
{
    return key.length == strlen(text) && memcmp(key.at, text, key.length) == 0;
}

/* Reads a member of the outermost object, starting at its key. */
static bool read_member(struct walk *r, bool is_first)
{
    struct slice key, value;
    char name[256];
    if (!read_value(r, &key)) return false;
    size_t length = MIN(key.length >= 2 ? key.length - 2 : 0, sizeof name);
    length = json_unescape(name, key.at ? key.at + 1 : "", length);
    key = (struct slice){name, length};
    int c = peek(r);
    if (c != ':') {
        c < 0 ? cut(r) : no_sense(r);
        return false;
    }
    r->stream.at++;
    c = peek(r);
    if (key_is(key, "traceEvents") && c == '[') {
        r->stream.at++;
        return read_list(r);
    }
    if (c < 0 || !read_value(r, &value)) return c >= 0 ? false : (cut(r), false);
    const char *next = json_space(r->stream.at);
    if (next < r->stream.end && *next != ',' && *next != '}') { /* a quote inside a string has ended it */
        no_sense(r);
        return false;
    }
    r->is_stage |= is_first && key_is(key, "tfinject") && value.length && *value.at == '{' &&
                   json_member(value, "artefact").length > 0;
    if (value.at && r->sink->member) r->sink->member(r->sink->context, key, value);
    return true;
}

/* Goes on at the next line after invalid JSON before the list of events, if the file ends lines there. torch writes each
 * member on a line of its own, and breaks those whose text has a quote. Returns false if reading ends here. */
static bool next_member(struct walk *r)
{
    enum { MOST_SKIPPED = 1000 };
    struct stream *s = &r->stream;
    if (!r->nonsense || r->has_events || r->skipped == MOST_SKIPPED) return false;
    if (!r->skipped++) r->skipped_at = r->nonsense - 1;
    do {
        while ((s->at < s->end || more(r)) && *s->at != '\n') s->at++;
    } while (peek(r) >= 0 && *s->at != '"'); /* the next line is no member */
    r->nonsense = peek(r) < 0 ? r->nonsense : 0;
    return !r->nonsense;
}

static void read_object(struct walk *r)
{
    for (bool is_first = true;; is_first = false) {
        int c = peek(r);
        if (c == ',' && !is_first) {
            r->stream.at++;
            c = peek(r);
        }
        if (c == '}') {
            r->stream.at++;
            r->ended = true;
            return;
        }
        if (c < 0) cut(r);
        else if (c != '"') no_sense(r);
        bool good = c == '"' && read_member(r, is_first);
        if ((!good && !next_member(r)) || (r->only_look && r->has_events)) return;
    }
}

/* ---- notes ---- */

static void judge_file(const struct walk *r, struct notes *notes)
{
    if (!stream_judge(&r->stream, notes) && r->stream.file.gzip_cut && !r->damage->cut)
        notes_add(notes, LOSS, "is cut at its end: the JSON is complete, but its checksum is missing");
}

static void judge_text(const struct walk *r, struct notes *notes)
{
    const struct kineto_damage *d = r->damage;
    unsigned long long events = d->events;
    if (d->cut) {
        notes_add(notes, LOSS,
                  "ends early, at byte %llu of its JSON: the first %llu events were read; the file is cut, or still "
                  "being written",
                  (unsigned long long)d->cut_at, events);
    }
    if (r->nonsense) {
        notes_add(notes, LOSS, "its JSON is not valid from byte %llu on; %llu events were read",
                  (unsigned long long)r->nonsense - 1, events);
    }
    if (r->skipped) {
        notes_add(notes, LOSS,
                  "members before its events that are not valid JSON and were left out: %llu (the first at byte %llu)",
                  (unsigned long long)r->skipped, (unsigned long long)r->skipped_at);
    }
    if (d->bad) {
        notes_add(notes, LOSS, "%llu of %llu events are not valid and were left out (the first at byte %llu)",
                  (unsigned long long)d->bad, events + d->bad, (unsigned long long)d->bad_at);
    }
    if (d->impossible) {
        notes_add(notes, LOSS,
                  "%llu events have impossible times, zero or far from all others, and were left out (the first at "
                  "byte %llu)",
                  (unsigned long long)d->impossible, (unsigned long long)d->impossible_at);
    }
    if (r->behind) {
        notes_add(notes, LOSS,
                  "goes on behind the end of its JSON, at byte %llu, as several traces in one file do: only the first "
                  "was read; give each a file of its own",
                  (unsigned long long)r->behind - 1);
    }
    if (r->too_large)
        notes_add(notes, NOTE, "%llu of its values are too large and were not read", (unsigned long long)r->too_large);
    if (!events && !d->bad && !d->cut && !r->nonsense) notes_add(notes, NOTE, "contains no events");
}

static bool judge(const struct walk *r, struct notes *notes)
{
    const char *empty = r->stream.total ? "" : " (it is empty)";
    if (!r->is_json) {
        judge_file(r, notes);
        if (r->container) notes_add(notes, UNUSABLE, "unpacks to what is %s", r->container);
        else notes_add(notes, UNUSABLE, "is not a trace: it is not JSON%s", empty);
        return false;
    }
    if (!r->has_events || (r->is_list && !r->has_phase && r->damage->events + r->damage->bad)) {
        judge_file(r, notes);
        notes_add(notes, UNUSABLE, "is not a trace: its JSON %s",
                  r->damage->cut  ? "is cut before the list of events (traceEvents)"
                  : r->nonsense   ? "is not valid"
                  : r->has_events ? "is a list, but not of events"
                                  : "has no list of events (traceEvents)");
        return false;
    }
    judge_text(r, notes);
    judge_file(r, notes);
    return true;
}

/* ---- reading ---- */

static void read_all(struct walk *r)
{
    int c = peek(r);
    while (c == 0xef && r->stream.end - r->stream.at < 3 && more(r)) continue;
    if (c == 0xef && r->stream.end - r->stream.at >= 3) { /* a byte order mark */
        r->stream.at += 3;
        c = peek(r);
    }
    r->is_json = c == '{' || c == '[';
    if (!r->is_json && c >= 0) r->container = container_in(r->stream.at, (size_t)(r->stream.end - r->stream.at));
    if (r->is_json) r->stream.at++;
    if (c == '{') {
        read_object(r);
    } else if (c == '[') {
        r->is_list = true;
        r->ended = read_list(r);
    }
    if (r->ended && !r->only_look && !r->damage->cut && peek(r) >= 0)
        r->behind = stream_offset(&r->stream, r->stream.at) + 1;
    do { /* reads on to find faults behind the part that was understood */
        r->stream.at = r->stream.end;
    } while (!r->only_look && more(r));
}

static bool read_stream(void *context, struct notes *notes)
{
    struct walk *r = context;
    r->stream.most = MAX(r->largest, LARGEST_MEMBER);
    *r->damage = (struct kineto_damage){0};
    scanner_init(&r->scanner);
    read_all(r);
    const struct unpack *file = &r->stream.file;
    r->damage->broken =
        r->nonsense || r->behind || file->error || file->gzip_damaged || file->gzip_checksum || file->gzip_cut;
    r->damage->in_doubt = stream_in_doubt(&r->stream);
    scanner_free(&r->scanner);
    return notes && !r->damage->in_doubt && judge(r, notes);
}

static void drop(void *context)
{
    struct walk *r = context;
    scanner_free(&r->scanner);
}

bool kineto_read(const char *path, const struct stream_way *way, const struct kineto_sink *sink,
                 struct kineto_damage *damage, struct notes *notes, atomic_ullong *done)
{
    struct walk r = {.sink = sink, .damage = damage, .largest = LARGEST_EVENT, .way = *way};
    struct kineto_scanner scanner = {0};
    scanner_init(&scanner);
    scanner.ask_clean = sink->ask_clean;
    struct stream_ahead ahead = kineto_ahead(&scanner);
    return stream_read(&r.stream, path, way, done, &(struct stream_reading){read_stream, drop, &r, &ahead}, notes);
}

bool kineto_read_bytes(const struct kineto_bytes *bytes, const struct kineto_sink *sink, struct kineto_damage *damage,
                       struct notes *notes)
{
    struct walk r = {.sink = sink, .damage = damage, .largest = bytes->largest};
    stream_open_memory(&r.stream, bytes->at, bytes->length, bytes->piece);
    bool usable = read_stream(&r, notes);
    stream_close(&r.stream);
    return usable;
}

/* ---- detection ---- */

enum kineto_look kineto_look(const char *path, enum file_how how)
{
    unsigned char bytes[64];
    struct stat status;
    const char *why;
    int fd = file_open(path, how, &status, &why);
    ssize_t got = fd >= 0 ? read(fd, bytes, sizeof bytes) : 0;
    ssize_t i = got >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (i < got && bytes[i] && bytes[i] <= ' ') i++;
    bool is_json = i < got && (bytes[i] == '{' || bytes[i] == '[' || (got > 1 && bytes[0] == 0x1f && bytes[1] == 0x8b));
    if (fd >= 0) close(fd);
    return is_json ? LOOK_JSON : LOOK_OTHER;
}

enum kineto_kind kineto_probe(const char *path, enum file_how how)
{
    const char *why;
    struct kineto_damage damage = {0};
    static const struct kineto_sink none;
    struct walk r = {.sink = &none, .damage = &damage, .largest = LARGEST_MEMBER, .only_look = true};
    bool open = stream_open(&r.stream, path, &(struct stream_way){.how = how, .exact = true}, NULL, &why);
    if (open) read_stream(&r, NULL);
    stream_close(&r.stream);
    bool has_begun = !open || !r.stream.total || (damage.cut && !r.has_events); /* reading it later reports the cut */
    bool is_trace = has_begun || (r.has_events && (!r.is_list || r.has_phase));
    if (!is_trace) return !r.is_json || r.nonsense ? KINETO_UNREADABLE : KINETO_NONE;
    return r.is_stage ? KINETO_STAGE : KINETO_TRACE;
}
