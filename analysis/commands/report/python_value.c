/* python_value.c - writes JSON from a trace as Python that a person reads.
 *
 * A text of the trace must never become code. So each string is decoded and escaped anew, numbers are copied as JSON's
 * parser has accepted them, and names of arguments are our own. Brackets that are nested too deep for Python's parser
 * become the description of a value that cannot be made.
 */
#include "commands/report/python_value.h"

#include <stdlib.h>
#include <string.h>

#include "commands/report/signature.h"

enum { WIDTH = 120, LEVELS = 8, DEPTH = 32 };

static void put_string(struct text *to, struct slice inside)
{
    char *text = mem_text(inside.at, inside.length);
    put_json_string(to, text, json_unescape(text, inside.at, inside.length));
    free(text);
}

/* True if the strides of a tensor are those that its shape has without any. */
static bool is_contiguous(struct slice shape, struct slice stride)
{
    struct slice key, size, step;
    int64_t n, s, outer = -1;
    while (json_next(&shape, &key, &size) && json_next(&stride, &key, &step)) {
        if (!json_int(size, &n) || !json_int(step, &s) || s < 0) return false;
        if (outer >= 0 && (uint64_t)outer != (uint64_t)MAX(n, 1) * (uint64_t)s) return false;
        outer = s;
    }
    return outer == 1 || outer == -1;
}

static void put(struct text *to, struct slice value, unsigned depth, unsigned levels);

/* Writes the description of a tensor as a call. Returns false if the object has other members. */
static bool put_tensor(struct text *to, struct slice object, unsigned depth)
{
    enum { SHAPE, DTYPE, DEVICE, GRAD, STRIDE, TYPE, MEMBERS };
    static const char *const names[MEMBERS] = {"shape", "dtype", "device", "requires_grad", "stride", "type"};
    struct slice member[MEMBERS] = {{0}}, key, value;
    while (json_next(&object, &key, &value)) {
        size_t i = 0;
        while (i < MEMBERS && !slice_is(key, names[i])) i++;
        if (i == MEMBERS || member[i].at) return false;
        member[i] = value;
    }
    for (size_t i = SHAPE; i <= STRIDE; i++)
        if (!member[i].at) return false;
    bool implied = slice_is(member[STRIDE], "null") || is_contiguous(member[SHAPE], member[STRIDE]);
    for (size_t i = SHAPE; i < MEMBERS; i++) {
        if (!member[i].at || (i == GRAD && slice_is(member[i], "false")) || (i == STRIDE && implied)) continue;
        text_puts(to, i == SHAPE ? "tensor(" : ", ");
        if (i > DEVICE) text_format(to, "%s=", names[i]);
        put(to, member[i], depth + 1, 0);
    }
    text_puts(to, ")");
    return true;
}

static void put_plain(struct text *to, struct slice value)
{
    switch (*value.at) {
    case '"': put_string(to, (struct slice){value.at + 1, value.length - 2}); break;
    case 't': text_puts(to, "True"); break;
    case 'f': text_puts(to, "False"); break;
    case 'n': text_puts(to, "None"); break;
    default: text_add(to, value.at, value.length);
    }
}

/* Writes the items of a list or an object; with levels, each has a line. */
static void put_items(struct text *to, struct slice value, unsigned depth, unsigned levels)
{
    struct slice key, item, rest = value;
    const char *comma = "";
    text_add(to, value.at, 1);
    for (; json_next(&rest, &key, &item); comma = ", ") {
        if (levels) text_format(to, "\n%*s", (int)(depth + 1) * 4, "");
        else text_puts(to, comma);
        if (key.at) put_string(to, key);
        if (key.at) text_puts(to, ": ");
        put(to, item, depth + 1, levels);
        if (levels) text_puts(to, ",");
    }
    if (levels) text_format(to, "\n%*s", (int)depth * 4, "");
    text_puts(to, *value.at == '{' ? "}" : "]");
}

static size_t line_length(const struct text *to)
{
    const char *line = memrchr(to->data, '\n', to->length);
    return line ? (size_t)(to->data + to->length - line - 1) : to->length;
}

/* Writes a value; one that does not fit into its line has each item on a line, down to `levels` levels. */
static void put(struct text *to, struct slice value, unsigned depth, unsigned levels)
{
    size_t begin = to->length;
    if (*value.at != '{' && *value.at != '[') {
        put_plain(to, value);
    } else if (depth == DEPTH) {
        text_puts(to, "{\"type\": \"value that is nested too deep\"}");
    } else if (*value.at == '[' || !put_tensor(to, value, depth)) {
        put_items(to, value, depth, 0);
        if (depth >= levels || line_length(to) < WIDTH) return;
        to->length = begin;
        put_items(to, value, depth, levels);
    }
}

static size_t lines_of(const char *text)
{
    size_t lines = 1;
    while ((text = strchr(text, '\n')) != NULL) lines++, text++;
    return lines;
}

void python_value(struct text *to, struct slice value, size_t lines)
{
    size_t begin = to->length;
    for (unsigned levels = LEVELS; levels-- > 0;) {
        to->length = begin;
        put(to, value, 0, levels);
        if (lines_of(to->data + begin) <= lines) break;
    }
}
