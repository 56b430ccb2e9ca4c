/* pieces.h - ranges of coroutines and generators, cut where they left their thread.
 *
 * A suspended range runs nowhere: what its thread does meanwhile is not its. So the model has such a range as its pieces,
 * each a range on the thread it ran on, of which the first alone counts as a call; process->wholes has entry and exit.
 */
#ifndef TFA_PIECES_H
#define TFA_PIECES_H

#include "model.h"

/* All ranges have their ends, times are as they were recorded; process->pauses is used up. */
void cut_ranges(struct process *process);

#endif
