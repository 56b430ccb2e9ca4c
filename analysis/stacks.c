/* stacks.c - takes call stacks apart. */
#include "stacks.h"

#include <string.h>

bool stack_next(const char **at, struct text *frame)
{
    const char *from = *at, *end = from + strcspn(from, "\n");
    if (!*from) {
        return false;
    }
    *at = *end ? end + 1 : end;
    const char *file = memchr(from, '\t', (size_t)(end - from));
    const char *line = file ? memchr(file + 1, '\t', (size_t)(end - file - 1)) : NULL;
    if (line) {
        text_format(frame, "%.*s(%.*s): %.*s", (int)(line - file - 1), file + 1, (int)(end - line - 1), line + 1,
                    (int)(file - from), from);
    } else {
        text_add(frame, from, (size_t)(end - from));
    }
    return true;
}

void stack_line(const char *stack, struct text *line)
{
    struct text frame = {0};
    while (stack_next(&stack, &frame)) {
        text_puts(line, line->length ? ";" : "");
        text_puts(line, frame.data ? frame.data : "");
        text_free(&frame);
    }
}
