/* sorted_rows.h - rows of an answer that wait for their order: `--sort-by KEY` and, with it, `--top N`. */
#ifndef TFA_SORTED_ROWS_H
#define TFA_SORTED_ROWS_H

#include "write/out.h"
#include "write/table.h"

struct sorted_row {
    double number; /* NAN: unknown, or a text */
    char *text;    /* NULL: unknown, or a number */
    size_t from, to, place;
};

struct sorted_rows {
    const char *key;
    uint64_t top;    /* 0: all */
    struct out text; /* the rows as they are written, one after the other */
    struct sorted_row *row;
    size_t count, capacity;
};

void sorted_rows_begin(struct sorted_rows *sorted, const char *key, uint64_t top);
/* Says that the rows of a command lack the key, and which they have. */
void sorted_rows_say_lacking(const struct sorted_rows *sorted, const char *command, const char *keys);
/* Begins a row at `from` of what counts: bytes of `text`, or cells of a table. */
void sorted_rows_add(struct sorted_rows *sorted, size_t from);
void sorted_rows_end(struct sorted_rows *sorted, size_t to);
/* Take a value of the open row, if it is that of the key. */
void sorted_rows_number(struct sorted_rows *sorted, const char *key, double number);
void sorted_rows_text(struct sorted_rows *sorted, const char *key, const char *text, size_t length);
/* Orders the rows: the largest number first, texts from A to Z, then what is unknown; equal rows stay as they were.
 * Returns how many are shown. */
size_t sorted_rows_order(struct sorted_rows *sorted);
/* Returns the cells of a table in that order, its head first; `*cells` becomes their number. Frees the others. */
struct cell *sorted_rows_cells(const struct sorted_rows *sorted, struct cell *cell, size_t *cells, size_t columns);
void sorted_rows_free(struct sorted_rows *sorted);

#endif
