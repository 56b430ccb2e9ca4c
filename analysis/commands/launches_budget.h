/* launches_budget.h - launches --budget and --write-budget. */
#ifndef TFA_LAUNCHES_BUDGET_H
#define TFA_LAUNCHES_BUDGET_H

#include "ask/budget/judge.h"
#include "commands/session.h"

/* Reads the file of --budget, if it is given. Returns false, after a message and with the status of wrong usage, if the
 * file is no budget, or if an option beside it has no meaning. */
bool launches_budget_begin(struct session *session, struct budget *budget);
/* Prints the answer of --budget in place of the rows of launches, and sets the status of a gate. */
void launches_judge(struct session *session, const struct budget *budget, const struct counts *counts);
/* Writes the file of --write-budget. Nothing is written, after a message, if a trace is not whole. */
void launches_write_budget(struct session *session, const struct counts *counts);

#endif
