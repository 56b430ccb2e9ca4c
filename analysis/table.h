/* table.h - rows of cells as columns of text: aligned, and on a terminal no wider than that. */
#ifndef TFA_TABLE_H
#define TFA_TABLE_H

#include "out.h"

struct cell {
    char *text;
    bool right; /* a number: aligned to the right, never cut */
};

/* Columns of the terminal that is written to; 0 where it is none. COLUMNS has the last word. */
size_t terminal_width(const struct out *out);
/* Prints `cells` cells, row after row, of which the first is the head, and frees their texts. */
void table_print(struct out *out, struct cell *cell, size_t cells, size_t columns);

#endif
