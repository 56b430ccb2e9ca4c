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

static void put_flat(struct text *to, struct slice value, unsigned depth);

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
        put_flat(to, member[i], depth + 1);
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

static bool is_container(struct slice value)
{
    return *value.at == '{' || *value.at == '[';
}

/* Writes a value into the line that has begun. */
static void put_flat(struct text *to, struct slice value, unsigned depth)
{
    struct slice key, item, rest = value;
    const char *comma = "";
    if (!is_container(value)) {
        put_plain(to, value);
    } else if (depth == DEPTH) {
        text_puts(to, "{\"type\": \"value that is nested too deep\"}");
    } else if (*value.at == '[' || !put_tensor(to, value, depth)) {
        text_add(to, value.at, 1);
        for (; json_next(&rest, &key, &item); comma = ", ") {
            text_puts(to, comma);
            if (key.at) put_string(to, key);
            if (key.at) text_puts(to, ": ");
            put_flat(to, item, depth + 1);
        }
        text_puts(to, *value.at == '{' ? "}" : "]");
    }
}

/* Writes a value; one that begins at `column` and does not fit has each item on a line, down to `levels` levels. */
static void put_lines(struct text *to, struct slice value, size_t column, unsigned depth, unsigned levels)
{
    struct slice key, item, rest = value;
    size_t begin = to->length;
    put_flat(to, value, depth);
    bool fits = column + to->length - begin < WIDTH || !is_container(value) || to->data[begin] == 't';
    if (fits || depth == levels) return;
    to->length = begin;
    text_add(to, value.at, 1);
    while (json_next(&rest, &key, &item)) {
        text_format(to, "\n%*s", (int)(depth + 1) * 4, "");
        size_t line = to->length - (depth + 1) * 4;
        if (key.at) put_string(to, key);
        if (key.at) text_puts(to, ": ");
        put_lines(to, item, to->length - line, depth + 1, levels);
        text_puts(to, ",");
    }
    text_format(to, "\n%*s%s", (int)depth * 4, "", *value.at == '{' ? "}" : "]");
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
    const char *line = begin ? memrchr(to->data, '\n', begin) : NULL;
    size_t column = line ? (size_t)(to->data + begin - line - 1) : begin;
    for (unsigned levels = LEVELS; levels-- > 0;) {
        to->length = begin;
        put_lines(to, value, column, 0, levels);
        if (lines_of(to->data + begin) <= lines) break;
    }
}
