/* replay_match.h - finds the captured call of each piece of work that a CUDA graph replays, in a trace of another program.
 *
 * The works of a launch are compared with a pattern of captured calls (captures.h): all of them, from the first to the
 * last. Their order is that of their nodes, each once: a loop runs a node several times. Where no record names its node,
 * it is the order of time. If names of kernels agree, the match is sure. If the calls tell no names, kinds and order have
 * to agree, in one graph or in one stream, and the node is marked `by_order`. Everything else stays unmatched.
 */
#ifndef TFA_REPLAY_MATCH_H
#define TFA_REPLAY_MATCH_H

#include "model/replays/captures.h"

/* Matches the works of a process with `given` and with the captures in its own trace. Fills process->graphs.matched and
 * adds nodes, unless no capture is known. */
void replays_match(struct process *process, struct names *names, const struct captures *given);

#endif
