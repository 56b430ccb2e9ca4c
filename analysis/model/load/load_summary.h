/* load_summary.h - the description of a process in a summary: all that answers say of it as a whole. */
#ifndef TFA_LOAD_SUMMARY_H
#define TFA_LOAD_SUMMARY_H

#include "model/model.h"
#include "read/summary/packing.h"

/* Packs the description of a process and the notes on its input. */
void pack_process(struct text *to, const struct process *process, const struct notes *notes);
/* Sets up a process from a block, which it then owns, and adds the notes. The rest of the block is its `block.rest`.
 * Returns false if the block is not one; the caller then frees it. */
bool load_summary(uint8_t *block, size_t length, struct process *process, struct notes *notes);

#endif
