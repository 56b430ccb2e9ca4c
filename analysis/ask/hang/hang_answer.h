/* hang_answer.h - which collectives are unmatched, who waits in them, who never came, and where each rank is.
 *
 * The collectives of a group have an order that is the same on all its ranks. The first one that some rank has not
 * called, or in which the ranks called different operations, is the unmatched one of the group; what follows it cannot
 * run. A rank is named as missing only on evidence: its trace is whole, it reaches at least to the moment at which the
 * first rank began to wait, and its collectives are numbered from the first one on. Otherwise it is not known whether it
 * came. A missing rank that itself waits in a collective of another group is held up there.
 */
#ifndef TFA_HANG_ANSWER_H
#define TFA_HANG_ANSWER_H

#include "ask/comm/parts.h"
#include "ask/hang/hang_reduction.h"
#include "ask/ranks/one_clock.h"

/* The part that a rank plays in an unmatched collective. */
enum hang_role {
    HANG_WAITS,   /* it called the collective, and nothing says that it left it */
    HANG_GONE,    /* it called the collective, and its process has gone while others run */
    HANG_LEFT,    /* it called the collective and left it */
    HANG_MISSING, /* it did not call it */
    HANG_HELD,    /* the same, and it waits in another collective */
    HANG_EARLY,   /* its trace was read before the others began to wait */
    HANG_PARTIAL, /* its trace lacks records, or has only some stages */
    HANG_ABSENT,  /* it has no trace among the inputs */
};

enum hang_differs {
    DIFFERS_NOT,
    DIFFERS_ORDER, /* its operation is that of a later collective of the others */
    DIFFERS_OPERATION,
    DIFFERS_ROOT,
    DIFFERS_COUNT,
    DIFFERS_DATATYPE,
};

struct hang_rank {
    int64_t rank;   /* UNKNOWN_NUMBER: only its number in the group is known */
    int64_t number; /* in the group; UNKNOWN_NUMBER */
    enum hang_role role;
    enum hang_differs differs;    /* from most of the others that came */
    const struct comm_part *part; /* its call; NULL: it made none */
    int64_t since;                /* entry of this call on the common clock; UNKNOWN_TIME */
};

/* An unmatched collective, send or receive. */
struct hang_unmatched {
    const struct comm_part *part; /* of the first rank that came: the operation */
    struct hang_rank *rank;       /* all members of the group that are known */
    size_t ranks;
    int64_t size;      /* of the group; UNKNOWN_NUMBER */
    int64_t since;     /* when the first rank came, on the common clock; UNKNOWN_TIME */
    int64_t waited;    /* from then on to the end of what the traces tell */
    bool differs;      /* the ranks that came called different things */
    bool has_majority; /* so many agree that the others are those that differ */
    bool all_came;     /* all ranks called it, and the same operation, but it does not end */
    bool is_first;     /* false: its missing ranks are all held up elsewhere */
    bool holds;        /* some missing rank is held up elsewhere */
    bool is_message;
    bool is_uncertain; /* its numbers are not comparable: some rank's trace lacks collectives */
};

struct hang {
    const struct selection *chosen;
    struct hang_taken *const *taken; /* by place in the selection */
    struct comm_job job;
    struct one_clock clock;
    int64_t end;                      /* last moment that the traces tell of, on the common clock; UNKNOWN_TIME */
    struct map place;                 /* of rank: place in the selection of its process with most collectives */
    struct hang_unmatched *unmatched; /* those that hold the others up first, then by time */
    size_t count, capacity;
    struct map part_of, unmatched_of; /* see thread_position.h */
    struct map open;         /* collectives that a thread is in, by hang_call_key of its rank and their start */
    uint64_t listed;         /* ranks that the texts of groups list, of all groups so far */
    size_t unlisted;         /* groups whose list was not read: there were too many ranks before */
    struct comm_part **copy; /* parts without replays, of groups that have replays */
    size_t copies, copy_capacity;
    size_t groups; /* with collectives of several ranks */
};

void hang_find(struct hang *hang, const struct selection *chosen, void *const *taken);
void hang_free(struct hang *hang);

/* Returns a moment of a process on the common clock; UNKNOWN_TIME stays. */
int64_t hang_moment(const struct hang *hang, size_t place, int64_t time);
/* Returns the place in the selection of a rank's process; SIZE_MAX: it has no trace. */
size_t hang_place(const struct hang *hang, int64_t rank);
/* Returns the thread of a process that stands for its rank: the one that called the last collective, else the first. */
const struct hang_thread *hang_main_thread(const struct hang_taken *taken);
/* True if nothing shows that the thread has gone on since its latest call of a collective. */
bool hang_is_inside(const struct hang_thread *thread);
/* The collective of a call, by rank and entry, in `part_of`. */
uint64_t hang_call_key(int64_t rank, int64_t start);
/* Returns the collective that a thread called last; NULL if it called none, or one that has ended. */
const struct comm_part *hang_last_part(const struct hang *hang, int64_t rank, const struct hang_thread *thread);
/* Returns the entry of a rank in an unmatched collective; NULL: it is in another group. */
const struct hang_rank *hang_rank_in(const struct hang_unmatched *unmatched, int64_t rank);

#endif
