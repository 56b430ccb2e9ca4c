/* table.c - prints cells as columns.
 *
 * All rows are known, so a column is as wide as its widest cell. On a terminal the widest text column is cut until the
 * table fits; then the next widest. Texts are cut in the middle, as names differ at both ends. Numbers are never cut: of
 * a table of too many numbers the last columns are left out, and a line below it names them. In a pipe or a file nothing is
 * cut.
 */
#include "write/table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "pattern.h"

enum { GAP = 2, LEAST_WIDTH = 8 };

size_t terminal_width(const struct out *out)
{
    struct winsize size;
    uint64_t columns;
    const char *wanted = getenv("COLUMNS");
    if (out->path || !isatty(out->fd)) return 0;
    if (wanted && tfi_whole_number(wanted, 0, UINT64_MAX, &columns) && columns && columns <= INT32_MAX)
        return (size_t)columns;
    return ioctl(out->fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

struct column {
    size_t width, head; /* head: width of the cell in the first row */
    bool right;
};

/* Measures the columns. A column and its head are aligned like its values. A column without known values has width 0
 * and is not shown. */
static void measure(const struct cell *cell, size_t cells, struct column *column, size_t columns)
{
    for (size_t i = columns; i < cells; i++) {
        struct column *c = &column[i % columns];
        bool known = strcmp(cell[i].text, "-") != 0;
        c->width = MAX(c->width, known ? characters(cell[i].text, strlen(cell[i].text)) : 0);
        c->right |= cell[i].right;
    }
    for (size_t i = 0; i < columns; i++) {
        bool shown = column[i].width || cells == columns;
        column[i].head = characters(cell[i].text, strlen(cell[i].text));
        column[i].width = shown ? MAX(column[i].width, column[i].head) : 0;
    }
}

static size_t least_width(const struct column *column)
{
    return MAX(column->head, LEAST_WIDTH);
}

static size_t total_width(const struct column *column, size_t columns)
{
    size_t total = 0;
    for (size_t i = 0; i < columns; i++) total += column[i].width ? column[i].width + (total ? GAP : 0) : 0;
    return total;
}

static bool may_be_cut(const struct column *column)
{
    return !column->right && column->width > least_width(column);
}

/* Narrows the widest text column until another one is the widest. Repeats until the table fits or no text column can be
 * cut. */
static void fit(struct column *column, size_t columns, size_t width)
{
    size_t total = total_width(column, columns);
    while (width && total > width) {
        struct column *widest = NULL;
        size_t next = 0;
        for (size_t i = 0; i < columns; i++) {
            struct column *c = &column[i];
            if (may_be_cut(c) && (!widest || c->width > widest->width)) {
                next = widest ? widest->width : 0;
                widest = c;
            } else if (may_be_cut(c)) {
                next = MAX(next, c->width);
            }
        }
        if (!widest) return;
        size_t to = MIN(MAX(next, least_width(widest)), widest->width - 1),
               less = MIN(total - width, widest->width - to);
        widest->width -= less;
        total -= less;
    }
}

/* Leaves out columns from the right until the table fits. The first two stay. Returns the first that is left out. */
static size_t leave_out(struct column *column, size_t columns, size_t width)
{
    enum { KEPT = 2 };
    size_t last = columns;
    while (width && last > KEPT && total_width(column, columns) > width) column[--last].width = 0;
    return last;
}

/* Names the columns that were left out, of those that have values. */
static void put_left_out(struct out *out, char *const *head, const bool *known, size_t first, size_t columns)
{
    size_t count = 0;
    for (size_t i = first; i < columns; i++)
        if (known[i]) out_format(out, "%s%s", count++ ? ", " : "not shown for lack of width: ", head[i]);
    if (count) out_puts(out, "\n");
}

static void put_cut(struct out *out, const char *text, size_t length, size_t width)
{
    size_t front = width / 2, back = width - front - 1, bytes = strlen(text);
    out_write(out, text, characters_bytes(text, bytes, front));
    out_puts(out, "\xe2\x80\xa6");
    out_puts(out, text + characters_bytes(text, bytes, length - back));
}

static void put_cell(struct out *out, const struct cell *cell, const struct column *column, size_t *waiting)
{
    size_t length = characters(cell->text, strlen(cell->text)), shown = MIN(length, column->width),
           space = column->width - shown;
    out_spaces(out, *waiting + (column->right ? space : 0));
    if (length > column->width) put_cut(out, cell->text, length, column->width);
    else out_puts(out, cell->text);
    *waiting = GAP + (column->right ? 0 : space);
}

void table_print(struct out *out, struct cell *cell, size_t cells, size_t columns)
{
    struct column *column = mem_zero(columns, sizeof *column);
    bool *known = mem_zero(columns, sizeof *known);
    char **head = mem_zero(columns, sizeof *head);
    size_t waiting = 0; /* spaces to write before the next cell of the line */
    measure(cell, cells, column, columns);
    for (size_t i = 0; i < columns; i++) known[i] = column[i].width > 0, head[i] = string_format("%s", cell[i].text);
    fit(column, columns, terminal_width(out));
    size_t shown = leave_out(column, columns, terminal_width(out));
    for (size_t i = 0; i < cells; i++) {
        if (column[i % columns].width) put_cell(out, &cell[i], &column[i % columns], &waiting);
        if (i % columns + 1 == columns) {
            out_puts(out, "\n");
            waiting = 0;
        }
        free(cell[i].text);
    }
    put_left_out(out, head, known, shown, columns);
    for (size_t i = 0; i < columns; i++) free(head[i]);
    free(head);
    free(known);
    free(column);
}
