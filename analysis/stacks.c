/* stacks.c - reads call stacks and takes them apart.
 *
 * A stack of a file is one list of frames and cannot contain another, so that nothing a damaged file says makes it longer
 * than TFI_STACK_FRAMES.
 */
#include "stacks.h"

#include <string.h>

/* ---- in a model ---- */

uint32_t stack_add(struct names *names, const uint32_t *frame, size_t count)
{
    return count ? names_add(names, (const char *)frame, count * sizeof *frame) : NAME_NONE;
}

size_t stack_depth(const struct names *names, uint32_t stack)
{
    return names_get(names, stack)->length / sizeof(uint32_t);
}

uint32_t stack_frame(const struct names *names, uint32_t stack, size_t i)
{
    uint32_t frame;
    memcpy(&frame, names_get(names, stack)->text + i * sizeof frame, sizeof frame);
    return frame;
}

void stack_line(const struct names *names, uint32_t stack, struct text *line)
{
    for (size_t i = 0; i < stack_depth(names, stack); i++) {
        text_puts(line, i ? ";" : "");
        frame_text(names_get(names, stack_frame(names, stack, i)), line);
    }
}

/* ---- a frame ---- */

bool frame_parse(struct frame *frame, const char *text, size_t length)
{
    const char *end = text + length, *file = memchr(text, '\t', length);
    const char *line = file ? memchr(file + 1, '\t', (size_t)(end - file - 1)) : NULL;
    if (!line) {
        return false;
    }
    *frame = (struct frame){text, file + 1, line + 1, (size_t)(file - text), (size_t)(line - file - 1)};
    return true;
}

void frame_text(const struct name *name, struct text *text)
{
    struct frame frame;
    if (frame_parse(&frame, name->text, name->length)) {
        text_add(text, frame.file, frame.file_length);
        text_format(text, "(%s): ", frame.line);
        text_add(text, frame.function, frame.function_length);
    } else {
        text_add(text, name->text, name->length);
    }
}

/* ---- in a file ---- */

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "1f 2a 3": false if it is anything else. */
static bool parse_list(const struct string *string, struct stack_list *list)
{
    const char *at = string->text, *end = at + string->length;
    while (at < end && list->count < TFI_STACK_FRAMES) {
        const char *start = at;
        uint32_t number = 0;
        for (; at < end && digit(*at) >= 0 && at - start < 8; at++) {
            number = number << 4 | (uint32_t)digit(*at);
        }
        if (at == start || (at < end && (*at != ' ' || at + 1 == end))) {
            return false;
        }
        list->frame[list->count++] = number;
        at += at < end;
    }
    return list->count && at == end;
}

bool stack_read(const struct strings *strings, uint64_t id, struct stack_list *list)
{
    const struct string *string = strings_get(strings, id);
    struct frame parts;
    bool good = true;
    list->count = 0;
    if (!string || !parse_list(string, list)) {
        list->frame[0] = TFI_STRING_LOST;
        list->count = 1;
        return id == TFI_STRING_LOST;
    }
    for (size_t i = 0; i < list->count; i++) {
        const struct string *frame = strings_get(strings, list->frame[i]);
        if (list->frame[i] != TFI_STRING_LOST && (!frame || !frame_parse(&parts, frame->text, frame->length))) {
            list->frame[i] = TFI_STRING_LOST;
            good = false;
        }
    }
    return good;
}

bool stack_lines(const struct strings *strings, uint64_t id, struct text *text)
{
    struct stack_list list;
    bool good = stack_read(strings, id, &list);
    for (size_t i = 0; i < list.count; i++) {
        const struct string *frame = strings_get(strings, list.frame[i]);
        text_puts(text, i ? "\n" : "");
        text_add(text, frame ? frame->text : "(lost)", frame ? frame->length : strlen("(lost)"));
    }
    return good;
}
