/* pieces.h - the part of an answer in JSON that fits, itself valid JSON: whole rows, and where to go on. */
#ifndef TFA_PIECES_H
#define TFA_PIECES_H

#include "base/util.h"

enum { ANSWER_FITS = 8000 /* bytes of an answer */ };

/* An answer in JSON as `write/emit.c` lays it out: each row has a line of its own, and so has what begins and ends them. */
struct pieces {
    struct text line;             /* the current line; of a long one its beginning */
    size_t line_length;           /* of the whole line */
    struct text head, rows, tail; /* what stands before the rows, the rows that are kept, what stands behind them */
    size_t from, row;             /* the first row to keep, and the number of rows so far */
    size_t next;                  /* the first row that does not fit; 0: all fit */
    size_t tail_length;           /* of the whole tail */
    bool left_out;                /* a row that is longer than an answer */
    enum { PIECES_HEAD, PIECES_ROWS, PIECES_TAIL, PIECES_NONE } part;
};

/* Takes the next bytes of an answer. */
void pieces_add(struct pieces *pieces, const char *bytes, size_t length);
/* Writes the piece of an answer that has ended. Writes nothing, and returns false, if the answer has no rows in JSON, or if
 * all of it fits and is wanted. */
bool pieces_end(struct pieces *pieces, struct text *piece);
void pieces_free(struct pieces *pieces);

#endif
