/* sides.h - the two runs that `diff` compares: each is read by a session of its own. */
#ifndef TFA_SIDES_H
#define TFA_SIDES_H

#include "ask/diff/diff_rows.h"
#include "commands/session.h"

/* Reads what a question needs of one side. Returns false, after a message, if it has nothing usable; the session has the
 * status in both cases. */
bool side_load(struct session *session, struct session *own, int side, const struct command **question);
/* Finds the ranks that are compared, and says which are left out. Returns false, after a message, if there are none. */
bool sides_ranks(struct diff_ranks *ranks, const struct session side[SIDES]);

#endif
