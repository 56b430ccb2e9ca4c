/* tracelens.h - the rules of TraceLens (commit 171dd74): what its answers share, and their reductions.
 *
 * Frozen: it follows that commit and gains nothing.
 */
#ifndef TFA_TRACELENS_H
#define TFA_TRACELENS_H

#include "ask/reduction.h"
#include "ask/work_kinds.h"

extern const struct kind_rules tracelens_kind_rules;

/* Makes a struct rank_time of the work of a process, in TraceLens's doubles. */
extern const struct reduction tracelens_works;
/* Makes a struct comm_taken of the kernels that TraceLens takes for collectives. */
extern const struct reduction tracelens_collectives;

#endif
