/* table.h - prints rows of cells as aligned columns of text, cut to the terminal's width. */
#ifndef TFA_TABLE_H
#define TFA_TABLE_H

#include "write/out.h"

struct cell {
    char *text;
    bool right; /* a number: aligned to the right, never cut */
};

/* Returns the columns of the output's terminal; 0 if it is not a terminal. COLUMNS overrides the terminal's size. */
size_t terminal_width(const struct out *out);
/* Prints `cells` cells, row after row, and frees their texts. The first row is the head. */
void table_print(struct out *out, struct cell *cell, size_t cells, size_t columns);

#endif
