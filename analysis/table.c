/* table.c - prints cells as columns.
 *
 * All rows are known, so a column is as wide as its widest cell. On a terminal the widest column of text is cut to what
 * fits, in the middle, as names differ at both ends; where that is not enough the next one follows. Numbers are never cut:
 * a table of many numbers is then wider than the terminal. In a pipe or a file all is whole.
 */
#include "table.h"

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
    if (out->path || !isatty(out->fd)) {
        return 0;
    }
    if (wanted && tfi_whole_number(wanted, 0, UINT64_MAX, &columns) && columns && columns <= INT32_MAX) {
        return (size_t)columns;
    }
    return ioctl(out->fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static size_t columns_of(const char *text)
{
    size_t width = 0;
    for (; *text; text++) {
        width += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return width;
}

static void pad(struct out *out, size_t count)
{
    while (count--) {
        out_puts(out, " ");
    }
}

struct column {
    size_t width, head; /* head: of the first row */
    bool right;
};

/* A column is aligned like its values, its head too. One of which nothing is known (width 0) is not shown. */
static void measure(const struct cell *cell, size_t cells, struct column *column, size_t columns)
{
    for (size_t i = columns; i < cells; i++) {
        struct column *c = &column[i % columns];
        bool known = strcmp(cell[i].text, "-") != 0;
        c->width = MAX(c->width, known ? columns_of(cell[i].text) : 0);
        c->right |= cell[i].right;
    }
    for (size_t i = 0; i < columns; i++) {
        bool shown = column[i].width || cells == columns;
        column[i].head = columns_of(cell[i].text);
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
    for (size_t i = 0; i < columns; i++) {
        total += column[i].width ? column[i].width + (total ? GAP : 0) : 0;
    }
    return total;
}

static bool may_be_cut(const struct column *column)
{
    return !column->right && column->width > least_width(column);
}

/* Takes from the widest column of text until another one is the widest, and so on until the table fits, or no text is
 * left to take from. */
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
        if (!widest) {
            return;
        }
        size_t to = MIN(MAX(next, least_width(widest)), widest->width - 1),
               less = MIN(total - width, widest->width - to);
        widest->width -= less;
        total -= less;
    }
}

/* So many characters of it from its beginning. */
static size_t bytes_of(const char *text, size_t characters)
{
    size_t bytes = 0;
    for (; characters && text[bytes]; characters--) {
        do {
            bytes++;
        } while (((unsigned char)text[bytes] & 0xc0) == 0x80);
    }
    return bytes;
}

static void put_cut(struct out *out, const char *text, size_t length, size_t width)
{
    size_t front = width / 2, back = width - front - 1;
    out_write(out, text, bytes_of(text, front));
    out_puts(out, "\xe2\x80\xa6");
    out_puts(out, text + bytes_of(text, length - back));
}

static void put_cell(struct out *out, const struct cell *cell, const struct column *column, size_t *waiting)
{
    size_t length = columns_of(cell->text), shown = MIN(length, column->width), space = column->width - shown;
    pad(out, *waiting + (column->right ? space : 0));
    if (length > column->width) {
        put_cut(out, cell->text, length, column->width);
    } else {
        out_puts(out, cell->text);
    }
    *waiting = GAP + (column->right ? 0 : space);
}

void table_print(struct out *out, struct cell *cell, size_t cells, size_t columns)
{
    struct column *column = mem_zero(columns, sizeof *column);
    size_t waiting = 0; /* spaces that are written only if something follows on the line */
    measure(cell, cells, column, columns);
    fit(column, columns, terminal_width(out));
    for (size_t i = 0; i < cells; i++) {
        if (column[i % columns].width) {
            put_cell(out, &cell[i], &column[i % columns], &waiting);
        }
        if (i % columns + 1 == columns) {
            out_puts(out, "\n");
            waiting = 0;
        }
        free(cell[i].text);
    }
    free(column);
}
