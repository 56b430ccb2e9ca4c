/* dump_kineto.h - prints the events of a Kineto trace or a dftracer trace, one per row. */
#ifndef TFA_DUMP_KINETO_H
#define TFA_DUMP_KINETO_H

#include "commands/session.h"

/* Adds the number of printed rows to `*rows`; stops when it reaches `top` (0: no limit). */
void dump_kineto(struct session *session, const struct process *process, int64_t from, int64_t to, uint64_t top,
                 uint64_t *rows);
void dump_dftracer(struct session *session, const struct process *process, uint64_t top, uint64_t *rows);

#endif
