/* gate_runs.h - `diff --gate`: judges repeated runs of two sides. */
#ifndef TFA_GATE_RUNS_H
#define TFA_GATE_RUNS_H

#include "commands/session.h"

/* Reads the runs, one after the other, judges and prints. The status is that of a gate unless all rows pass. */
void gate_runs(struct session *session);

#endif
