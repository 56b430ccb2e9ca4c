/* process_start.c - keeps what a process did to start. */
#include "model/host/process_start.h"

#include <stdlib.h>

#include "base/util.h"

static int piece_by_start(const void *a, const void *b)
{
    const struct startup_piece *x = a, *y = b;
    if (x->start != y->start) return by_number(x->start, y->start);
    return x->end != y->end ? by_number(y->end, x->end) : by_number(x->depth, y->depth);
}

static int phase_by_start(const void *a, const void *b)
{
    const struct compile_phase *x = a, *y = b;
    return x->start != y->start ? by_number(x->start, y->start) : by_number(y->end, x->end);
}

void startup_sort(struct startup *s)
{
    if (s->pieces) qsort(s->piece, s->pieces, sizeof *s->piece, piece_by_start);
    if (s->phases) qsort(s->phase, s->phases, sizeof *s->phase, phase_by_start);
}

void startup_free(struct startup *s)
{
    free(s->piece);
    free(s->phase);
    *s = (struct startup){0};
}
