/* load_tfr.h - fills the model from one of our traces. */
#ifndef TFA_LOAD_TFR_H
#define TFA_LOAD_TFR_H

#include <stdatomic.h>

#include "model/model.h"

/* Reads all chunks of an opened trace into a process, as the questions need it, and adds notes on losses. Without
 * STREAM_HELD it stops where can_sweep (model/sweep) turns false, and leaves a process of no use.
 * `done` counts bytes read, for the progress line. */
void load_tfr(struct trace *trace, struct names *names, struct needs needs, struct process *process,
              struct notes *notes, atomic_ullong *done);

#endif
