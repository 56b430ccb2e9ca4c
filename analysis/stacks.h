/* stacks.h - call stacks of our traces: frames, the innermost first, a line each, `function<TAB>file<TAB>line`. */
#ifndef TFA_STACKS_H
#define TFA_STACKS_H

#include "util.h"

/* The frame at `*at`, as torch writes it: `file(line): function`. Moves on to the next one; false at the end. */
bool stack_next(const char **at, struct text *frame);
/* All frames with a semicolon between, as in Kineto's argument `Call stack`. */
void stack_line(const char *stack, struct text *line);

#endif
