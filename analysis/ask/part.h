/* part.h - loads the operators and blocks that a question about a part of a run needs, and leaves the others in the file. */
#ifndef TFA_PART_H
#define TFA_PART_H

#include "ask/selection.h"

/* Returns how to read one trace. With `part` it is read for events of the times that the options ask for. */
struct reading part_reading(const struct options *options, struct needs needs);
/* Loads what the processes of a selection have left in their files (struct reading, `in_part`). The inputs get
 * notes on losses. */
void part_load(const struct selection *chosen, struct inputs *inputs);

#endif
