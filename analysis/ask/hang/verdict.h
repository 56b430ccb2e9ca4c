/* verdict.h - the answer of `hang` for people, as lines: what is unmatched, by whom, and what cannot be known. */
#ifndef TFA_HANG_VERDICT_H
#define TFA_HANG_VERDICT_H

#include "ask/hang/hang_answer.h"

struct hang_lines {
    char **line; /* safe for a terminal */
    size_t count, capacity;
};

void hang_verdict(const struct hang *hang, struct hang_lines *lines);
/* Lists what cannot be known. Returns the number of lines that make the answer incomplete: exit status 3. */
size_t hang_unknowns(const struct hang *hang, struct hang_lines *lines);
void hang_lines_free(struct hang_lines *lines);

/* Appends a difference for people, such as "operation: all_gather, not all_reduce". */
void hang_difference(const struct hang *hang, const struct hang_unmatched *u, const struct hang_rank *r,
                     struct text *text);

#endif
