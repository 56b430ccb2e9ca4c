/* csv.h - splits the bytes of a file of comma-separated values into rows and cells, without copying them.
 *
 * A cell may stand in quotes, and then holds commas, line ends and doubled quotes. Whatever a file has, a row ends: at the
 * end of its line, or, inside quotes that nothing closes, at the end of the file.
 */
#ifndef TFA_CSV_H
#define TFA_CSV_H

#include "base/util.h"

struct csv_cell {
    const char *at; /* without the quotes around it; quotes inside it stay doubled */
    size_t length;
};

struct csv {
    const char *at, *end;
    struct csv_cell *cell; /* of the row */
    size_t cells, capacity;
    bool cut;      /* the last row ends inside quotes */
    bool overfull; /* the row has more cells than are kept */
};

/* Reads the next row. Returns false at the end of the file. */
bool csv_row(struct csv *csv);
bool csv_is(const struct csv_cell *cell, const char *text);
bool csv_has(const struct csv_cell *cell, const char *text);
/* Returns the text of a cell; the caller frees it. */
char *csv_text(const struct csv_cell *cell);

#endif
