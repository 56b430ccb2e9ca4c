/* dump_kineto.h - the events of a Kineto trace, one a row. */
#ifndef TFA_DUMP_KINETO_H
#define TFA_DUMP_KINETO_H

#include "session.h"

/* Adds to `*rows`; stops at `top` of them (0: never). */
void dump_kineto(struct session *session, const struct process *process, int64_t from, int64_t to, uint64_t top,
                 uint64_t *rows);

#endif
