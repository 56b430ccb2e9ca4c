/* timeline.h - the common frame of the answers of `timeline` and `overlap`: one row per rank. */
#ifndef TFA_COMMANDS_TIMELINE_H
#define TFA_COMMANDS_TIMELINE_H

#include "ask/timeline.h"
#include "commands/session.h"

typedef void emit_rank_time(struct emit *e, const struct timeline *timeline, const struct rank_time *rank);
/* Prints a whole answer: one row per rank, and the totals. */
void timeline_answer(struct session *session, emit_rank_time *emit_one);

#endif
