/* screen_lines.c - writes the lines of the first screen, cut to its width. */
#include "commands/screen/screen_lines.h"

#include "write/table.h"

enum { WIDTH = 100, LEAST_WIDTH = 60 };

void screen_line(struct out *out, struct text *line)
{
    struct text shown = {0};
    size_t terminal = terminal_width(out), width = terminal ? MAX(MIN(terminal, WIDTH), LEAST_WIDTH) : WIDTH;
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
