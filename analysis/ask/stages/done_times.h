/* done_times.h - finds when each call of a stage was done: when it had ended, and all work launched in it too.
 *
 * The work of a call is the device work launched in it or in a stage inside it (attribute.h), whenever it ran. Work that
 * other filters than --from and --to leave out does not count.
 */
#ifndef TFA_DONE_TIMES_H
#define TFA_DONE_TIMES_H

#include "ask/choice.h"

#define DONE_UNKNOWN INT64_MIN

/* Returns the time by index in process->ranges; DONE_UNKNOWN if records of the call's work may be missing. All pieces
 * of a range have the time of the whole. NULL if no call launched work: each was done at its end. The choice needs its
 * attribution if the process has device work or times of stages. The caller frees the result. */
int64_t *stages_done(const struct choice *choice, const struct names *names);

static inline int64_t done_or(const int64_t *done, size_t range, int64_t otherwise)
{
    return done && done[range] != DONE_UNKNOWN ? done[range] : otherwise;
}

#endif
