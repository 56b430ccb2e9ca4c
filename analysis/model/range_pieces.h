/* range_pieces.h - cuts the ranges of coroutines and generators where they left their thread.
 *
 * A suspended range does not own what its thread does meanwhile. So the model holds such a range as pieces, each a
 * range on the thread it ran on. Only the first piece counts as a call; process->wholes has entry and exit.
 */
#ifndef TFA_RANGE_PIECES_H
#define TFA_RANGE_PIECES_H

#include "model/model.h"

/* Cuts all ranges. Needs ranges with their ends and times in ticks; empties process->pauses. */
void cut_ranges(struct process *process);

#endif
