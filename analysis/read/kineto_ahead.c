/* kineto_ahead.c - guesses where an event begins, and scans on from there. */
#include "read/kineto_ahead.h"

#include <string.h>

#include "read/json/clean.h"

/* Returns the last character before `at` that is no space; 0 if there is none. */
static const char *before(const char *from, const char *at)
{
    while (at > from && (unsigned char)at[-1] <= ' ') at--;
    return at > from ? at - 1 : NULL;
}

/* Tells whether the `{` at `p` seems to begin an event: it follows `},`, and a key of events follows it. */
static bool begins_event(const struct kineto_scanner *scanner, const char *from, const char *p, const char *end)
{
    const char *comma = before(from, p), *close = comma ? before(from, comma) : NULL, *quote;
    if (!close || *comma != ',' || *close != '}') return false;
    for (p++; p < end && (unsigned char)*p <= ' ';) p++;
    if (p >= end || *p != '"' || !(quote = memchr(p + 1, '"', (size_t)(end - p - 1)))) return false;
    return end - quote > 8 && is_event_key(scanner, p + 1, (size_t)(quote - p - 1));
}

static char *last_start(const void *shared, char *at, const char *end)
{
    for (char *p = (char *)end; (p = memrchr(at, '{', (size_t)(p - at))) != NULL;)
        if (begins_event(shared, at, p, end)) return p;
    return NULL;
}

static void scan(const void *shared, char *at, const char *end, void *found)
{
    struct kineto_scan *scan = found;
    struct kineto_scanner scanner = *(const struct kineto_scanner *)shared;
    const char *stopped, *p = at;
    scanner.scratch = (struct text){.data = scan->texts, .capacity = sizeof scan->texts};
    scan->count = 0;
    scan->after = at;
    while (scan->count < KINETO_AHEAD && p < end && *p == '{') {
        struct kineto_event *event = &scan->event[scan->count];
        if (!(p = scan_event(&scanner, p, event, &stopped)) || p > end) break;
        if (scanner.ask_clean && json_is_clean(event->raw)) event->has |= HAS_CLEAN;
        scanner.scratch.data += scanner.scratch.length;
        scanner.scratch.capacity -= scanner.scratch.length;
        scanner.scratch.length = 0;
        scan->count++;
        scan->after = (char *)p;
        p = json_space(p);
        if (p < end && *p == ',') p = json_space(p + 1);
    }
}

struct stream_ahead kineto_ahead(const struct kineto_scanner *scanner)
{
    return (struct stream_ahead){sizeof(struct kineto_scan), scanner, last_start, scan};
}
