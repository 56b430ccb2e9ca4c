/* doubts.c - says the doubts about a trace. */
#include "model/health/doubts.h"

#include <stdio.h>

#include "base/util.h"

static const struct {
    const char *key;
    enum note_level level;
    struct needs touches;
    const char *what, *meaning;
} doubt_rows[] = {
#define NEEDS(...)                                                                                                     \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define DOUBT(id, key, level, touches, what, meaning) {key, level, touches, what, meaning},
#include "model/health/doubts.def"
#undef DOUBT
#undef NEEDS
};

const char *doubt_key(size_t doubt)
{
    return doubt_rows[doubt].key;
}

bool doubts_matter(const struct doubts *health)
{
    bool found = false;
    for (size_t i = 0; i < NR_DOUBTS; i++) found |= health->doubt[i].count && !health->doubt[i].is_minor;
    return found;
}

void doubts_say(const struct doubts *health, struct needs needs, struct notes *notes)
{
    for (size_t i = 0; i < NR_DOUBTS; i++) {
        const struct doubt *d = &health->doubt[i];
        char worst[64] = "";
        if (!d->count || d->is_minor || !needs_meet(doubt_rows[i].touches, needs)) continue;
        if (d->worst) snprintf(worst, sizeof worst, ", by up to %.3f us", (double)d->worst / 1e3);
        notes_add(notes, doubt_rows[i].level, "%llu of %llu %s%s: %s", (unsigned long long)d->count,
                  (unsigned long long)d->of, doubt_rows[i].what, worst, doubt_rows[i].meaning);
    }
}
