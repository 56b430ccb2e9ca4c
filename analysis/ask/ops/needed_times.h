/* needed_times.h - finds the times whose operators in the file the table of a part of a run needs. */
#ifndef TFA_OPS_NEEDED_TIMES_H
#define TFA_OPS_NEEDED_TIMES_H

#include "ask/ops/events.h"
#include "ask/selection.h"
#include "base/sets/intervals.h"

/* Returns a merged set, in nanoseconds. Operators and blocks outside it change no row of the chosen ones. */
struct intervals ops_needed_times(const struct op_events *events, const struct selection *chosen);

#endif
