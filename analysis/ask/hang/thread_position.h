/* thread_position.h - where a thread is: its state, the call, collective or stage that it is in, and since when. */
#ifndef TFA_THREAD_POSITION_H
#define TFA_THREAD_POSITION_H

#include "ask/hang/hang_answer.h"

struct hang_where {
    const char *process;          /* "running", "killed", "aborted", "ended", "unknown" */
    const char *state;            /* see `tfanalyze help hang` */
    uint32_t call;                /* name of the innermost call that it is in; NAME_NONE */
    int64_t since;                /* entry of the call, stage or collective, or its last record, on the common clock */
    uint32_t stage;               /* innermost stage; NAME_NONE: none */
    const struct comm_part *part; /* the collective that it called last, if nothing says that it ended */
    const struct hang_unmatched *unmatched; /* the unmatched collective that `part` belongs to; NULL: none */
    uint32_t stack;
    uint32_t exception; /* type of the exception that left the thread; NAME_NONE: unknown, or none did */
};

struct hang_where hang_where(const struct hang *hang, size_t place, const struct hang_thread *thread);

/* Finds the parts of threads; made once for an answer. */
void hang_where_init(struct hang *hang);

/* Appends where a rank is, for people: "in sleeper train.py:12, stage step, for 14.2 s". */
void hang_where_text(const struct hang *hang, int64_t rank, struct text *text);

/* Returns the innermost frame that is not torch's own; 0 if all are. */
size_t hang_user_frame(const struct names *names, uint32_t stack);

/* Appends the name of a frame: "function file:line". */
void hang_frame_text(const struct names *names, uint32_t stack, size_t frame, struct text *text);

#endif
