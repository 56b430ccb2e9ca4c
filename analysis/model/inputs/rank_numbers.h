/* rank_numbers.h - finds the rank of each input that is not a trace of ours.
 *
 * The user's word counts before the trace's, that before the file's name, and a guess comes last. A guess
 * takes no rank that another input has. A process that states no rank beside others that do, and that used no device, is a
 * process of the host, as vLLM's coordinator is: it has no rank.
 */
#ifndef TFA_RANK_NUMBERS_H
#define TFA_RANK_NUMBERS_H

#include "model/input.h"

/* Sets the rank of an input that was read, from the input alone. Returns false if other inputs decide with it: then the
 * rank is what the trace states, or -1. */
bool rank_of_alone(struct input *input);
/* Sets the ranks of the inputs that are `open_rank`. */
void inputs_number_ranks(struct inputs *inputs);

#endif
