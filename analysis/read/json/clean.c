/* clean.c - makes the text of a trace valid JSON, for files that other programs read.
 *
 * Nearly all texts are valid and stay where they are. In a text that is not valid, the usual differences from JSON are
 * mended first. A text that is still invalid is taken apart into its members: those of the event, and those of its
 * arguments.
 */
#include "read/json/clean.h"

#include "read/json/strict.h"

enum { MOST_LEVELS = 2 };

/* Mends the usual differences in a value; false if it is still invalid. */
static bool clean(struct strict *s, struct text *to, struct slice json)
{
    s->clean.length = 0;
    text_strict_json(&s->clean, json.at, json.length);
    size_t before = to->length;
    text_json(to, s->clean.data ? s->clean.data : "", s->clean.length);
    bool good = to->data && json_is_strict((struct slice){to->data + before, to->length - before});
    if (!good) to->length = before;
    return good;
}

bool json_is_clean(struct slice json)
{
    return json_is_safe(json.at, json.length) && json_is_strict(json);
}

struct slice strict_clean(struct strict *s, struct slice json)
{
    if (json_is_clean(json)) return json;
    s->valid.length = 0;
    return clean(s, &s->valid, json) ? json_padded(&s->valid) : (struct slice){0};
}

/* Adds an object member by member, and anything else as null. */
static void add_parts(struct strict *s, struct slice json, unsigned levels)
{
    struct slice key, value;
    bool first = true;
    if (!json.length || *json.at != '{' || !levels) {
        text_puts(&s->valid, "null");
        return;
    }
    text_puts(&s->valid, "{");
    while (json_next(&json, &key, &value)) {
        s->key.length = 0;
        text_puts(&s->key, "\"");
        text_add(&s->key, key.at ? key.at : "", key.at ? key.length : 0);
        text_puts(&s->key, "\"");
        text_puts(&s->valid, first ? "" : ",");
        if (!clean(s, &s->valid, (struct slice){s->key.data, s->key.length})) text_puts(&s->valid, "\"?\"");
        text_puts(&s->valid, ":");
        if (!clean(s, &s->valid, value)) add_parts(s, value, levels - 1);
        first = false;
    }
    text_puts(&s->valid, "}");
}

struct slice strict_json(struct strict *s, struct slice json)
{
    struct slice done = strict_clean(s, json);
    if (done.at) return done;
    s->source.length = s->valid.length = 0;
    text_add(&s->source, json.at, json.length);
    add_parts(s, json_padded(&s->source), MOST_LEVELS);
    return json_padded(&s->valid);
}

void strict_free(struct strict *s)
{
    text_free(&s->clean);
    text_free(&s->valid);
    text_free(&s->key);
    text_free(&s->source);
}
