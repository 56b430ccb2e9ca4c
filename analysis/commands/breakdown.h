/* breakdown.h - the answer of breakdown, by rules of ours or of another tool. */
#ifndef TFA_BREAKDOWN_H
#define TFA_BREAKDOWN_H

#include "ask/device/work_sums.h"
#include "commands/session.h"

void breakdown_answer(struct session *session, const struct breakdown_rules *rules);

#endif
