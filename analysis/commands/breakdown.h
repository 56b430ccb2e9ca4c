/* breakdown.h - the answer of breakdown, by rules of ours or of another tool. */
#ifndef TFA_BREAKDOWN_H
#define TFA_BREAKDOWN_H

#include "ask/work_kinds.h"
#include "commands/session.h"

struct breakdown_rules {
    const struct kind_rules *kinds;
    bool launched; /* by operator only work that an operator launched counts, and captures are not known */
};

void breakdown_answer(struct session *session, const struct breakdown_rules *rules);

#endif
