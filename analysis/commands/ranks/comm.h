/* comm.h - what the questions about collectives share: the matched collectives, and the messages on them. */
#ifndef TFA_COMM_H
#define TFA_COMM_H

#include "ask/comm/clock.h"
#include "ask/comm/parts.h"
#include "ask/comm/rows.h"
#include "commands/session.h"

struct comm {
    struct session *session;
    struct comm_job job;
    struct clock_fits fits;
    struct comm_rows rows;
    enum rules rules;
};

/* Matches the collectives of the chosen ranks; the session is summarised. */
void comm_match(struct comm *comm, struct session *session);
/* Reports what the collectives lack. */
void comm_say(const struct comm *comm);
void comm_end(struct comm *comm);
/* Prints the residual of the clocks and, of aligned ones, what was added to the times of their lowest rank. */
void emit_clocks(struct emit *e, const struct comm *comm);
/* Prints a time; UNKNOWN_TIME: unknown. */
void emit_time(struct emit *e, const char *key, int64_t ns);

#endif
