/* answers.h - the answers of the questions of device time that print the same rows by our rules and by those of compat/. */
#ifndef TFA_ANSWERS_H
#define TFA_ANSWERS_H

#include "ask/device/counter_rows.h"
#include "ask/device/idle_gaps.h"
#include "ask/device/launch_patterns.h"
#include "ask/device/queue_lengths.h"
#include "ask/ranks/rank_times.h"
#include "commands/session.h"
#include "write/short_names.h"

typedef void emit_rank_time(struct emit *e, const struct timeline *timeline, const struct rank_time *rank);
typedef double round_share(double share);

/* Each prints a whole answer that was begun, and ends it. `round`: NULL for the exact shares. */
void timeline_answer(struct session *session, const struct timeline *timeline, emit_rank_time *emit_one);
void kinds_answer(struct session *session, const struct timeline *timeline, const int64_t total[INTERVALS_COMBINATIONS],
                  round_share *round);
void idle_answer(struct session *session, const struct idle_rows *rows, round_share *round);
void queue_answer(struct session *session, const struct queue_rows *rows);

/* The rows of `timeline` and `overlap`. */
void emit_timeline(struct emit *e, const struct timeline *timeline, const struct rank_time *rank);
void emit_overlap(struct emit *e, const struct timeline *timeline, const struct rank_time *rank);
/* Adds the times of a rank by combination of simultaneous kinds. */
void kinds_add(const struct timeline *timeline, int64_t total[INTERVALS_COMBINATIONS]);

/* ---- patterns ---- */

struct pattern_sums {
    uint64_t patterns, count, matches, shown;
    int64_t device, host;
    bool unknown;
};

/* False, after a message, without --operator. */
bool patterns_have_name(struct session *session);
void patterns_print(struct session *session, const struct patterns *patterns, struct pattern_sums *sums);
/* Prints the totals. A caller without a row has said why, unless a filter is to blame. */
void patterns_end(struct session *session, const struct pattern_sums *sums);

/* ---- counters ---- */

/* A process, and what the rules know of it. */
struct counter_part {
    struct scope *scope;
    const void *context;
};

/* Answers for the processes in this order. */
void counters_answer(struct session *session, const struct counter_rules *rules, const struct counter_part *part,
                     size_t parts);

#endif
