/* csv.c - splits the bytes of a file of comma-separated values into rows and cells, without copying them. */
#include "read/ncu/csv.h"

#include <string.h>

enum { MOST_CELLS = 16384 }; /* of a row: ncu has about 4,000 metrics */

static void add_cell(struct csv *csv, const char *from, const char *to)
{
    csv->overfull |= csv->cells == MOST_CELLS;
    if (csv->overfull) return;
    csv->cell = mem_grow(csv->cell, &csv->capacity, csv->cells + 1, sizeof *csv->cell);
    csv->cell[csv->cells++] = (struct csv_cell){from, (size_t)(to - from)};
}

/* Returns the quote that closes the cell whose text begins at `p`; `end` if nothing closes it. */
static const char *closing_quote(const char *p, const char *end)
{
    while (p < end && (p = memchr(p, '"', (size_t)(end - p))) != NULL) {
        if (p + 1 == end || p[1] != '"') return p;
        p += 2;
    }
    return end;
}

/* Returns the end of the text that holds no comma and no line end. */
static const char *plain_end(const char *p, const char *end)
{
    while (p < end && *p != ',' && *p != '\n') p++;
    return p;
}

bool csv_row(struct csv *csv)
{
    const char *p = csv->at, *end = csv->end;
    csv->cells = 0;
    csv->overfull = false;
    if (p >= end) return false;
    for (;; p++) {
        if (p < end && *p == '"') {
            const char *close = closing_quote(p + 1, end);
            add_cell(csv, p + 1, close);
            csv->cut |= close == end;
            p = plain_end(close < end ? close + 1 : end, end);
        } else {
            const char *to = plain_end(p, end);
            add_cell(csv, p, to > p && to[-1] == '\r' ? to - 1 : to);
            p = to;
        }
        if (p >= end || *p == '\n') break;
    }
    csv->at = p < end ? p + 1 : end;
    return true;
}

bool csv_is(const struct csv_cell *cell, const char *text)
{
    return strlen(text) == cell->length && memcmp(cell->at, text, cell->length) == 0;
}

bool csv_has(const struct csv_cell *cell, const char *text)
{
    return memmem(cell->at, cell->length, text, strlen(text)) != NULL;
}

char *csv_text(const struct csv_cell *cell)
{
    char *text = mem_text(cell->at, cell->length);
    size_t kept = 0;
    for (size_t i = 0; i < cell->length; i++) {
        text[kept++] = text[i];
        if (text[i] == '"' && i + 1 < cell->length && text[i + 1] == '"') i++;
    }
    text[kept] = 0;
    return text;
}
