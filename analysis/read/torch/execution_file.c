/* execution_file.c - finds the nodes of PyTorch's execution trace in a file, one after the other.
 *
 * The window holds one value at a time: a node, or another member of the outermost object. A value above LARGEST is
 * skipped without being kept. Nothing recurses, so the depth of a value does not matter here.
 */
#include "read/torch/execution_file.h"

#include <string.h>

#include "read/torch/json_stream.h"

enum { LARGEST = 64 << 20, LONGEST_KEY = 4096 };

struct walk {
    struct stream stream;
    const struct execution_sink *sink;
    struct execution_damage *damage;
    char key[LONGEST_KEY + STREAM_PAD];
    bool has_nodes;
};

/* ---- values ---- */

enum got { GOT, TOO_LARGE, CUT };

/* Makes the window hold the value at its start. One that is too large is skipped. */
static enum got take(struct stream *s, size_t largest, struct slice *value)
{
    struct json_skipper skipper = {0};
    const char *after;
    size_t seen = 0;
    bool is_large = false;
    while (!(after = json_skip_piece(&skipper, s->at + seen, s->end))) {
        seen = (size_t)(s->end - s->at);
        is_large |= seen > largest;
        if (is_large) {
            s->at = s->end;
            seen = 0;
        }
        if (!stream_more(s)) return CUT;
    }
    size_t length = MAX((size_t)(after - s->at), 1);
    *value = (struct slice){s->at, length};
    s->at += length;
    return is_large || length > largest ? TOO_LARGE : GOT;
}

/* ---- the file ---- */

/* Reads the list of nodes. Returns false if the file ends inside it. */
static bool read_nodes(struct walk *w)
{
    struct stream *s = &w->stream;
    struct slice value;
    w->has_nodes = true;
    s->at++;
    for (char c; (c = json_stream_next(s)) != ']';) {
        if (!c) return false;
        if (c == ',') {
            s->at++;
            continue;
        }
        enum got got = take(s, LARGEST, &value);
        if (got == CUT) return false;
        w->damage->large += got == TOO_LARGE;
        w->damage->nodes += got == GOT;
        if (got == GOT) w->sink->node(w->sink->context, value);
    }
    s->at++;
    w->sink->end_of_nodes(w->sink->context);
    return true;
}

/* Copies a key, as the window moves. Returns false if it is too long. */
static bool keep_key(struct walk *w, enum got got, struct slice key)
{
    if (got != GOT) return false;
    memcpy(w->key, key.at, key.length);
    w->key[key.length] = 0;
    memset(w->key + key.length + 1, '"', STREAM_PAD - 1);
    return true;
}

static bool read_member(struct walk *w)
{
    struct stream *s = &w->stream;
    struct slice key, value;
    enum got got = take(s, LONGEST_KEY, &key);
    size_t length = key.length;
    if (got == CUT) return false;
    bool has_key = keep_key(w, got, key);
    if (json_stream_next(s) != ':') return false;
    s->at++;
    char c = json_stream_next(s);
    bool is_nodes = has_key && length > 2 && json_is_key((struct slice){w->key + 1, length - 2}, "nodes");
    if (is_nodes && c == '[' && !w->has_nodes) return read_nodes(w);
    got = c ? take(s, LARGEST, &value) : CUT;
    if (got == CUT) return false;
    w->damage->large += got == TOO_LARGE;
    w->damage->unread += got == GOT && (!has_key || is_nodes);
    if (got == GOT && has_key && !is_nodes) w->sink->member(w->sink->context, (struct slice){w->key, length}, value);
    return true;
}

static bool read_members(struct walk *w)
{
    struct stream *s = &w->stream;
    if (json_stream_next(s) != '{') return false;
    s->at++;
    for (char c; (c = json_stream_next(s)) != '}';)
        if (c == ',') s->at++;
        else if (c != '"' || !read_member(w)) return false;
    s->at++;
    return true;
}

static bool read_stream(void *context, struct notes *notes)
{
    struct walk *w = context;
    struct execution_damage *d = w->damage;
    w->stream.most = LARGEST;
    d->cut = !read_members(w);
    if (!w->has_nodes) {
        notes_add(notes, UNUSABLE, "is no execution trace of PyTorch: it has no list `nodes`");
        return false;
    }
    if (d->cut)
        notes_add(notes, LOSS, "ends early or is no JSON: the first %llu nodes were read",
                  (unsigned long long)d->nodes);
    if (!d->cut && (json_stream_next(&w->stream) || w->stream.at < w->stream.end))
        notes_add(notes, LOSS, "goes on behind its end: the rest is left out");
    if (d->unread)
        notes_add(notes, LOSS,
                  "%llu members are left out: their key has more than %d bytes, or is `nodes` without a first list",
                  (unsigned long long)d->unread, LONGEST_KEY);
    if (d->large)
        notes_add(notes, LOSS, "%llu values are larger than %d MiB and left out", (unsigned long long)d->large,
                  LARGEST >> 20);
    if (!stream_judge(&w->stream, notes) && w->stream.file.gzip_cut && !d->cut)
        notes_add(notes, LOSS, "its compressed data end early");
    return true;
}

/* Nothing is held beside the stream. */
static void drop(void *context)
{
    (void)context;
}

bool execution_file_read(const char *path, const struct execution_sink *sink, struct execution_damage *damage,
                         struct notes *notes)
{
    struct walk w = {.sink = sink, .damage = damage};
    *damage = (struct execution_damage){0};
    return stream_read(&w.stream, path, &(struct stream_way){.how = FILE_NAMED, .exact = true}, NULL,
                       &(struct stream_reading){read_stream, drop, &w, NULL}, notes);
}
