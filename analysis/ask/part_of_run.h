/* part_of_run.h - loads the operators and blocks that a question about a part of a run needs, and leaves the others in the file. */
#ifndef TFA_PART_OF_RUN_H
#define TFA_PART_OF_RUN_H

#include "ask/selection.h"
#include "base/sets/intervals.h"

/* Returns the needs, with STREAM_PART only if the options ask for some times. */
struct needs part_needs(const struct options *options, struct needs needs);
/* Returns the times that may have chosen operators and blocks of a process, a merged set in nanoseconds: all of them if the
 * options ask for no times. */
struct intervals part_times(const struct selection *chosen, const struct process *process);
/* Loads what the processes of a selection have left in their files with STREAM_PART. The inputs get
 * notes on losses. */
void part_load(const struct selection *chosen, struct inputs *inputs);

#endif
