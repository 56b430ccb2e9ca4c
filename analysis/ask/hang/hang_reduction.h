/* hang_reduction.h - what `hang` takes of one process: its collectives, its members of groups, and what each thread is in.
 *
 * One process has as many entries as it has threads and groups, beside its collectives, so that any number of ranks fits
 * into memory.
 */
#ifndef TFA_HANG_REDUCTION_H
#define TFA_HANG_REDUCTION_H

#include "ask/comm/comm_reduction.h"

/* A thread of a process. Times are those of the process's own clock. */
struct hang_thread {
    struct open_thread open;
    bool has_slot;        /* `open` tells what it is in */
    int64_t last;         /* end of its last record; UNKNOWN_TIME: it has none */
    int64_t entered;      /* start of its latest call of a collective; UNKNOWN_TIME: it called none */
    int64_t left;         /* end of that call; UNKNOWN_TIME: it has not returned */
    uint32_t stack;       /* its Python frames, as in model/frames.h; NAME_NONE: not recorded */
    int64_t silent_since; /* from then on to the reading of its frames it made no record; UNKNOWN_TIME: never read */
    int64_t raised;       /* when an exception that nothing caught left it; UNKNOWN_TIME: none did */
    uint32_t exception;   /* name of the type of that exception, NAME_NONE: unknown; `stack` is that of its traceback */
};

/* The process is a member of a group of ranks. */
struct hang_member {
    uint32_t group, members;    /* names, as in a comm_part */
    uint32_t nccl_communicator; /* NAME_NONE: unknown, or not NCCL's */
    int64_t number;             /* its rank in the group; UNKNOWN_NUMBER */
    int64_t size;               /* ranks of the group; UNKNOWN_NUMBER */
};

struct hang_taken {
    struct comm_taken *comm;
    struct hang_thread *thread;
    size_t threads;
    struct hang_member *member;
    size_t members, capacity;
    bool is_whole;           /* every collective that it called is recorded, and counted from the first one on */
    bool is_partly_selected; /* not whole because stages were selected, or recording was off for a time */
    bool has_aborted;        /* it has called abort(), and has gone */
    char *ended;             /* as in struct process */
};

struct needs hang_needs(const struct options *options);
extern const struct reduction hang_reduction;

#endif
