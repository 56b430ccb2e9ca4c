/* dftracer_event.c - scans an event in place in one pass, member by member.
 *
 * Keys may come in any order. If a member appears twice, the last one counts. Members that are not known are skipped.
 */
#include "read/dftracer_event.h"

#include <string.h>

/* Place of a member: a number, a text, or one of these. */
enum { PLACE_NUMBER = 1, PLACE_TEXT = 64, PLACE_PHASE = 128, PLACE_ARGS };

static const struct {
    const char *text;
    uint8_t place;
    bool in_args;
} key_rows[] = {
    {"ph", PLACE_PHASE, false},
    {"args", PLACE_ARGS, false},
    {"id", PLACE_NUMBER + DFT_ID, false},
    {"type", PLACE_NUMBER + DFT_TYPE, false},
    {"pid", PLACE_NUMBER + DFT_PID, false},
    {"tid", PLACE_NUMBER + DFT_TID, false},
    {"ts", PLACE_NUMBER + DFT_TS, false},
    {"dur", PLACE_NUMBER + DFT_DUR, false},
    {"name", PLACE_TEXT + DFT_NAME, false},
    {"cat", PLACE_TEXT + DFT_CATEGORY, false},
    {"ret", PLACE_NUMBER + DFT_RET, true},
    {"count", PLACE_NUMBER + DFT_COUNT, true},
    {"size", PLACE_NUMBER + DFT_SIZE, true},
    {"offset", PLACE_NUMBER + DFT_OFFSET, true},
    {"fd", PLACE_NUMBER + DFT_FD, true},
    {"dft_cnt", PLACE_NUMBER + DFT_CALLS, true},
    {"dur", PLACE_NUMBER + DFT_ARG_DUR, true},
    {"dur_sum", PLACE_NUMBER + DFT_DUR_SUM, true},
    {"dur_min", PLACE_NUMBER + DFT_DUR_MIN, true},
    {"dur_max", PLACE_NUMBER + DFT_DUR_MAX, true},
    {"ret_sum", PLACE_NUMBER + DFT_RET_SUM, true},
    {"ret_min", PLACE_NUMBER + DFT_RET_MIN, true},
    {"ret_max", PLACE_NUMBER + DFT_RET_MAX, true},
    {"count_sum", PLACE_NUMBER + DFT_COUNT_SUM, true},
    {"fname", PLACE_TEXT + DFT_FILE, true},
    {"hostname", PLACE_TEXT + DFT_HOST, true},
    {"fhash", PLACE_TEXT + DFT_FILE_HASH, true},
    {"hhash", PLACE_TEXT + DFT_HOST_HASH, true},
    {"name", PLACE_TEXT + DFT_META_NAME, true},
    {"value", PLACE_TEXT + DFT_META_VALUE, true},
};

void dftracer_scanner_init(struct dftracer_scanner *s)
{
    for (size_t i = 0; i < ARRAY_SIZE(key_rows); i++)
        keys_add(&s->keys[key_rows[i].in_args], key_rows[i].text, key_rows[i].place);
}

/* Reads a number, bare or in a string. Returns `p` itself if the value is no number. */
static inline const char *scan_line_number(struct dftracer_event *event, enum dftracer_number which, const char *p)
{
    struct number number;
    const char *after = json_number(p, 0, &number);
    event->has &= ~(1u << which);
    if (number.state == NUMBER_GOOD && number.magnitude <= INT64_MAX) {
        event->number[which] = number.negative ? -(int64_t)number.magnitude : (int64_t)number.magnitude;
        event->has |= 1u << which;
    }
    return after;
}

/* Reads a string, or a number or word as it is written; its escapes are resolved once the event is complete. Returns
 * `p` itself for another value. */
static inline const char *scan_line_text(struct dftracer_scanner *s, struct dftracer_event *event,
                                         enum dftracer_text which, const char *p)
{
    struct slice *text = &event->text[which];
    bool escaped = false;
    *text = (struct slice){0};
    s->escaped &= ~(1u << which);
    if (*p == '"') {
        const char *quote = json_string_end(p + 1, &escaped);
        *text = (struct slice){p + 1, (size_t)(quote - p - 1)};
        s->escaped |= (uint32_t)escaped << which;
        return quote + 1;
    }
    if (*p == '{' || *p == '[') return p;
    const char *stopped, *after = json_skip(p, &stopped);
    if (after) *text = (struct slice){p, (size_t)(after - p)};
    return after ? after : p;
}

/* Reads the phase: a letter, or in newer traces a number. */
static const char *scan_line_phase(struct dftracer_event *event, const char *p)
{
    static const char letters[] = {0, 'X', 'C', 'A', 'M'};
    struct number number;
    bool escaped = false;
    const char *after = json_number(p, 0, &number);
    event->phase = '?';
    if (number.state == NUMBER_GOOD) {
        if (!number.negative && number.magnitude < ARRAY_SIZE(letters)) event->phase = letters[number.magnitude];
        return after;
    }
    if (*p != '"') return p;
    const char *quote = json_string_end(p + 1, &escaped);
    if (quote == p + 2) event->phase = p[1];
    return quote + 1;
}

static inline __attribute__((always_inline)) const char *
scan_line_members(struct dftracer_scanner *s, struct dftracer_event *event, const char *p, const bool in_args);

static __attribute__((noinline)) const char *scan_line_args(struct dftracer_scanner *s, struct dftracer_event *event,
                                                            const char *p)
{
    const char *start = p, *stopped;
    if (*p != '{') return json_skip(p, &stopped);
    p = scan_line_members(s, event, p, true);
    if (p) event->args = (struct slice){start, (size_t)(p - start)};
    return p;
}

static inline const char *scan_line_member(struct dftracer_scanner *s, struct dftracer_event *event, unsigned place,
                                           const char *p)
{
    if (place == PLACE_PHASE) return scan_line_phase(event, p);
    unsigned number = place - PLACE_NUMBER, text = place - PLACE_TEXT;
    if (number < NR_DFT_NUMBERS) return scan_line_number(event, (enum dftracer_number)number, p);
    return text < NR_DFT_TEXTS ? scan_line_text(s, event, (enum dftracer_text)text, p) : p;
}

static inline const char *scan_line_members(struct dftracer_scanner *s, struct dftracer_event *event, const char *p,
                                            const bool in_args)
{
    const char *stopped;
    p = json_space(p + 1);
    if (*p == '}') return p + 1;
    for (;;) {
        bool escaped = false;
        if (*p != '"') return NULL;
        const char *text = p + 1, *quote = json_string_end(text, &escaped);
        p = json_space(quote + 1);
        if (*p != ':') return NULL;
        p = json_space(p + 1);
        size_t length = (size_t)(quote - text);
        unsigned place = __builtin_expect(escaped, 0) ? keys_find_escaped(&s->keys[in_args], text, length)
                                                      : keys_find(&s->keys[in_args], text, length);
        const char *after = p;
        if (!in_args && place == PLACE_ARGS) after = scan_line_args(s, event, p);
        else if (place) after = scan_line_member(s, event, place, p);
        if (after == p) after = json_skip(p, &stopped);
        if (!after) return NULL;
        p = json_space(after);
        if (*p != ',') return *p == '}' ? p + 1 : NULL;
        p = json_space(p + 1);
    }
}

/* Resolves all texts of an event at once, because growing the scratch buffer moves it. */
static void resolve_escapes(struct dftracer_scanner *s, struct dftracer_event *event)
{
    size_t need = 0;
    for (size_t i = 0; i < NR_DFT_TEXTS; i++) need += s->escaped >> i & 1 ? event->text[i].length : 0;
    s->scratch.data = mem_grow(s->scratch.data, &s->scratch.capacity, need + 1, 1);
    char *to = s->scratch.data;
    for (size_t i = 0; i < NR_DFT_TEXTS; i++) {
        struct slice *text = &event->text[i];
        if (!(s->escaped >> i & 1)) continue;
        text->length = json_unescape(to, text->at, text->length);
        text->at = to;
        to += text->length;
    }
}

const char *dftracer_scan(struct dftracer_scanner *s, const char *p, struct dftracer_event *event)
{
    const char *start = p;
    memset(event->text, 0, sizeof event->text);
    event->args = (struct slice){0};
    event->has = 0; /* numbers without a bit are never read */
    event->phase = 0;
    s->escaped = 0;
    p = scan_line_members(s, event, p, false);
    if (p && __builtin_expect(s->escaped != 0, 0)) resolve_escapes(s, event);
    if (p) event->raw = (struct slice){start, (size_t)(p - start)};
    return p;
}

void dftracer_scanner_free(struct dftracer_scanner *s)
{
    text_free(&s->scratch);
}
