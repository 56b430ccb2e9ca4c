/* timeline.h - what the devices of each rank did when, by kind: the sets behind timeline, kinds and overlap.
 *
 * All processes of a rank and all its devices are one: what two devices do at once counts once, so that a rank is never
 * busy for longer than it took. Each set is a union (intervals.h). Only kernels, copies and sets are looked at.
 */
#ifndef TFA_TIMELINE_H
#define TFA_TIMELINE_H

#include "intervals.h"
#include "session.h"
#include "work_kinds.h"

struct rank_time {
    int64_t rank;
    int64_t total; /* last end less first start of its work; of several files of one rank each for itself, summed */
    uint64_t works;
    int64_t first, last;                  /* while collecting: of the piece at hand */
    uint64_t in_piece;                    /* works */
    struct intervals pieces;              /* from first to last each */
    struct intervals kind[NR_WORK_KINDS]; /* merged */
};

struct timeline {
    double ns; /* how many nanoseconds one unit of the times here is */
    struct rank_time *rank;
    size_t count, capacity;
    uint64_t works;
};

/* What has to be loaded, which depends on --rules and --step. */
unsigned timeline_wants(const struct session *session);
/* Of what --step, --device, --stream, --from and --to choose, by the rules exact or tracelens. */
void timeline_collect(struct timeline *timeline, const struct session *session);
/* A whole answer: a row a rank, and the totals. */
void timeline_answer(struct session *session,
                     void (*emit_rank)(struct emit *, const struct timeline *, const struct rank_time *));
void timeline_free(struct timeline *timeline);
int64_t timeline_ns(const struct timeline *timeline, int64_t time);
/* Says why there are values that are not known. */
void timeline_hint(const struct timeline *timeline, const struct session *session);

/* A time of the model as the file has it: a double of microseconds since the file's own base. */
double file_us(const struct process *process, int64_t ns);

#endif
