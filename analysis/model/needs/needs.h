/* needs.h - what questions need of the inputs (needs.def). The union of two needs serves both questions. */
#ifndef TFA_NEEDS_H
#define TFA_NEEDS_H

#include <stdbool.h>

/* How the operators and blocks of a trace of ours reach the question. What serves one serves those before it too. */
enum streaming {
    STREAM_BY_TIME,  /* they may stay in the file, which is read again in order of time (model/sweep) */
    STREAM_UNLINKED, /* likewise, unless there are backward operators; stacks are checked */
    STREAM_PART,     /* those of the chosen times are in memory (ask/part_of_run.h) */
    STREAM_HELD,     /* all are in memory */
};

struct needs {
    enum streaming stream;
#define NEED(name, meaning) bool name : 1;
#include "model/needs/needs.def"
#undef NEED
};

struct needs needs_union(struct needs a, struct needs b);
/* True if `of` names none, or one that is asked for. */
bool needs_meet(struct needs of, struct needs asked);

#endif
