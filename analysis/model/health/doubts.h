/* doubts.h - the doubts about a trace, each with its count: found once, when it is read. */
#ifndef TFA_DOUBTS_H
#define TFA_DOUBTS_H

#include "model/needs/needs.h"
#include "read/trace.h"

enum doubt_id {
#define DOUBT(id, key, level, touches, what, meaning) DOUBT_##id,
#include "model/health/doubts.def"
#undef DOUBT
    NR_DOUBTS
};

struct doubt {
    uint64_t count, of; /* count 0: none */
    int64_t worst;      /* nanoseconds; 0: none */
    bool is_minor;      /* too few to be said: `info` alone has it */
};

struct doubts {
    struct doubt doubt[NR_DOUBTS];
};

const char *doubt_key(size_t doubt);
/* Adds a note for each doubt that touches a question with these needs. */
void doubts_say(const struct doubts *health, struct needs needs, struct notes *notes);
/* True if a doubt was found that is not minor. */
bool doubts_matter(const struct doubts *health);

#endif
