/* memory_rows.c - finds the rows of torch's memory timeline in a file, one after the other.
 *
 * A row has at most LONGEST bytes, so a window of that size holds it. Anything else in the list is skipped without being
 * kept, however long or deeply nested it is, and counted.
 */
#include "read/torch/memory_rows.h"

#include <string.h>

#include "read/json/json.h"
#include "read/torch/json_stream.h"

enum { LONGEST = 512, LOOKED_AT = 4096 };

struct walk {
    struct stream stream;
    const struct memory_rows_sink *sink;
    struct memory_rows_damage *damage;
};

/* ---- one row ---- */

/* Reads a whole number without a point or an exponent. Returns NULL if there is none. */
static const char *read_int(const char *p, int64_t *value)
{
    struct number number;
    p = json_space(p);
    if (*p != '-' && (*p < '0' || *p > '9')) return NULL;
    p = json_number(p, 0, &number);
    if (number.state != NUMBER_GOOD || number.is_float || number.magnitude > INT64_MAX) return NULL;
    *value = number.negative ? -(int64_t)number.magnitude : (int64_t)number.magnitude;
    return p;
}

static bool is_row(const int64_t value[4])
{
    return value[0] >= -1 && value[1] >= ACTION_PREEXISTING && value[1] < NR_ACTIONS && value[3] >= 0 &&
           value[3] < MEMORY_CATEGORIES;
}

/* Reads the row that begins at `p`. Returns the position behind it, or NULL if it is none. */
static const char *read_row(const char *p, struct memory_row *row)
{
    int64_t value[4];
    if (*p != '[') return NULL;
    for (int i = 0; i < 4; i++) {
        p = read_int(p + 1, &value[i]);
        p = p ? json_space(p) : NULL;
        if (!p || *p != (i < 3 ? ',' : ']')) return NULL;
    }
    if (!is_row(value)) return NULL;
    *row = (struct memory_row){value[0], value[2], (uint8_t)value[1], (uint8_t)value[3]};
    return p + 1;
}

/* ---- the list ---- */

/* Makes the window hold `size` bytes, or all that are left. */
static void fill(struct stream *s, size_t size)
{
    bool more = true;
    while ((size_t)(s->end - s->at) < size && more) more = stream_more(s);
}

/* Skips an item that is no row. Returns false if the file ends inside it. */
static bool skip_item(struct stream *s)
{
    struct json_skipper skipper = {0};
    const char *after;
    while (!(after = json_skip_piece(&skipper, s->at, s->end))) {
        s->at = s->end;
        if (!stream_more(s)) return false;
    }
    s->at += MAX(after - s->at, 1);
    return true;
}

static bool read_item(struct walk *w)
{
    struct stream *s = &w->stream;
    struct memory_row row;
    fill(s, LONGEST);
    const char *after = read_row(s->at, &row);
    if (after && after <= s->end) {
        s->at += after - s->at;
        w->damage->rows++;
        w->sink->row(w->sink->context, &row);
        return true;
    }
    if (!skip_item(s)) return false;
    w->damage->bad++;
    return true;
}

static void read_list(struct walk *w)
{
    struct stream *s = &w->stream;
    bool good = json_stream_next(s) == '[';
    s->at += good;
    while (good) {
        char c = json_stream_next(s);
        if (c == ']') {
            s->at++;
            return;
        }
        if (c == ',') s->at++;
        else good = c && read_item(w);
    }
    w->damage->cut = true;
}

static void judge(const struct walk *w, struct notes *notes)
{
    const struct stream *s = &w->stream;
    const struct memory_rows_damage *d = w->damage;
    unsigned long long rows = d->rows;
    if (d->cut)
        notes_add(notes, LOSS, "ends early: the first %llu rows were read; the file is cut, or still being written",
                  rows);
    if (d->bad)
        notes_add(notes, LOSS, "%llu items are no rows [time, action, bytes, category] and were left out",
                  (unsigned long long)d->bad);
    if (!stream_judge(s, notes) && s->file.gzip_cut && !d->cut)
        notes_add(notes, LOSS, "its compressed data end early; the %llu rows before the cut were read", rows);
}

static bool read_stream(void *context, struct notes *notes)
{
    struct walk *w = context;
    const struct stream *s = &w->stream;
    struct memory_rows_damage *d = w->damage;
    w->stream.most = LONGEST;
    read_list(w);
    d->broken = s->file.error || s->file.gzip_damaged || s->file.gzip_checksum || s->file.gzip_cut;
    judge(w, notes);
    if (d->rows || !(d->bad || d->cut)) return true;
    notes_add(notes, UNUSABLE, "has no rows of torch's memory timeline, [time, action, bytes, category]");
    return false;
}

/* Nothing is held beside the stream. */
static void drop(void *context)
{
    (void)context;
}

bool memory_rows_read(const char *path, enum file_how how, const struct memory_rows_sink *sink,
                      struct memory_rows_damage *damage, struct notes *notes, atomic_ullong *done)
{
    struct walk w = {.sink = sink, .damage = damage};
    *damage = (struct memory_rows_damage){0};
    return stream_read(&w.stream, path, &(struct stream_way){.how = how, .exact = true}, done,
                       &(struct stream_reading){read_stream, drop, &w, NULL}, notes);
}

/* ---- detection ---- */

static bool has_name(const char *path)
{
    static const char *const ends[] = {".raw.json", ".raw.json.gz", ".raw.gz"};
    size_t length = strlen(path);
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        size_t end = strlen(ends[i]);
        if (length > end && strcmp(path + length - end, ends[i]) == 0) return true;
    }
    return false;
}

bool is_memory_rows_file(const char *path, enum file_how how)
{
    char text[LOOKED_AT + STREAM_PAD];
    struct memory_row row;
    size_t length = stream_head(path, how, text, LOOKED_AT);
    text[length] = 0;
    memset(text + length + 1, '"', STREAM_PAD - 1);
    const char *p = json_space(text);
    if (*p != '[') return false;
    p = json_space(p + 1);
    if (has_name(path)) return *p == '[' || *p == ']' || !*p;
    const char *after = read_row(p, &row);
    if (!after || after > text + length) return false;
    after = json_space(after);
    return *after == ']' || (*after == ',' && *json_space(after + 1) == '[' && json_space(after + 1)[1] != '[');
}
