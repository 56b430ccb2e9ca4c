/* seen.h - what a drawing of a running job showed, and what the next one has more. */
#ifndef TFA_SEEN_H
#define TFA_SEEN_H

#include "commands/session.h"

struct seen_stage {
    char *name;
    uint64_t calls;
    int64_t time; /* as in the tree of stages */
};

struct seen {
    struct seen_stage *stage; /* sorted by name; no name twice */
    size_t count, capacity;
    uint64_t events;
};

/* Takes what a session has loaded. */
void seen_take(struct seen *seen, struct session *session);
/* Appends what `now` has more: the events, and the stages with the most new calls. */
void seen_tell(struct text *line, const struct seen *before, const struct seen *now);
void seen_free(struct seen *seen);

#endif
