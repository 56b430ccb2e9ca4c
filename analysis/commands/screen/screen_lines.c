/* screen_lines.c - writes the lines of the first screen, cut to its width. */
#include "commands/screen/screen_lines.h"

#include <stdlib.h>
#include <string.h>

#include "write/table.h"

enum { WIDTH = 100, LEAST_WIDTH = 60 };

static size_t screen_width(struct out *out)
{
    size_t terminal = terminal_width(out);
    return terminal ? MAX(MIN(terminal, WIDTH), LEAST_WIDTH) : WIDTH;
}

size_t screen_lines(struct out *out, struct text *text, size_t indent, size_t most)
{
    struct text rest = {0}, line = {0};
    size_t width = screen_width(out), lines = 1;
    text_visible(&rest, text->data ? text->data : "", text->length);
    text_free(text);
    const char *from = rest.data ? rest.data : "";
    for (; lines < most; lines++) {
        size_t length = strlen(from), room = width - (lines > 1 ? indent : 0);
        if (characters(from, length) <= room) break;
        size_t end = characters_bytes(from, length, room);
        while (end && from[end] != ' ') end--;
        if (end <= indent) break; /* one long word */
        text_format(&line, "%*s%.*s", lines > 1 ? (int)indent : 0, "", (int)end, from);
        screen_line(out, &line);
        from += end + 1;
    }
    text_format(&line, "%*s%s", lines > 1 ? (int)indent : 0, "", from);
    screen_line(out, &line);
    text_free(&rest);
    return lines;
}

void screen_line(struct out *out, struct text *line)
{
    struct text shown = {0};
    size_t width = screen_width(out);
    text_visible(&shown, line->data ? line->data : "", line->length);
    bool is_cut = characters(shown.data ? shown.data : "", shown.length) > width;
    out_write(out, shown.data ? shown.data : "",
              is_cut ? characters_bytes(shown.data, shown.length, width - 3) : shown.length);
    out_puts(out, is_cut ? "...\n" : "\n");
    text_free(&shown);
    text_free(line);
}

void screen_gap(struct out *out, struct text *line)
{
    out_puts(out, "\n");
    screen_line(out, line);
}
