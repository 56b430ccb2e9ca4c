/* comm.h - what the questions about collectives share: the matched collectives, and the messages on them. */
#ifndef TFA_COMM_H
#define TFA_COMM_H

#include "ask/comm/comm_clock.h"
#include "ask/comm/parts.h"
#include "ask/comm/comm_rows.h"
#include "commands/session.h"

struct comm;

/* The parts of the answer that the rules of other tools change. */
struct comm_words {
    const struct comm_rules *rules;
    const char *(*unnamed)(const struct comm_part *part); /* a collective without a name; NULL: it stays unknown */
    const char *(*ungrouped)(const struct comm *comm);    /* the group of one without a group */
    const char *mismatch;                                 /* in what ranks may differ too, and what that means */
};

struct comm {
    struct session *session;
    const struct comm_words *words; /* NULL: ours */
    struct comm_job job;
    struct clock_fits fits;
    struct comm_rows rows;
};

/* Answers `comm`. */
void comm_answer(struct session *session, const struct comm_words *words);
/* Matches the collectives of the chosen ranks; the session is summarised. */
void comm_match(struct comm *comm, struct session *session, const struct comm_words *words);
/* Reports what the collectives lack. */
void comm_say(const struct comm *comm);
void comm_end(struct comm *comm);
/* Prints the residual of the clocks and, of aligned ones, what was added to the times of their lowest rank. */
void emit_clocks(struct emit *e, const struct comm *comm);
/* Prints a time; UNKNOWN_TIME: unknown. */
void emit_time(struct emit *e, const char *key, int64_t ns);

#endif
