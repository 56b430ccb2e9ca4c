/* summary.h - a rank's collectives in the form in which the ranks of a job are compared.
 *
 * A part is one collective on one rank. The parts of a collective on all ranks have the same key, and a summary is a
 * list of parts in one total order: by key, then by rank. comm_merge unites two summaries. It is associative and
 * commutative, so that ranks may be summarised in parallel and united in any order and grouping.
 */
#ifndef TFA_COMM_SUMMARY_H
#define TFA_COMM_SUMMARY_H

#include "model/collective.h"
#include "model/names.h"

struct comm_part {
    /* the key */
    uint32_t run;            /* traces of separate times are separate runs */
    uint32_t group, members; /* names of the communicator and its ranks; NAME_NONE: unknown */
    uint32_t op_key;         /* if the communicator is unknown: the operation; else 0 */
    int64_t source, peer;    /* of a message between two ranks; else UNKNOWN_NUMBER */
    uint64_t alone;          /* of a message whose ranks nobody knows: a key that no other rank has; else 0 */
    uint32_t epoch;          /* how often the sequence has restarted before */
    uint32_t again;          /* how many earlier ones have the same sequence number: a group of calls shares it */
    int64_t sequence;
    int64_t
        replay; /* number of the run, from 1, of a call that was captured in a graph; 0: it ran when it was called */
    /* the rank's share */
    int64_t rank;
    uint8_t op;
    bool is_chosen;  /* the filters choose it */
    bool is_counted; /* its sequence number is its place in the order of time, as none is recorded */
    uint32_t clock;  /* ranks with the same number share a clock */
    uint32_t axis;   /* times with the same number are compared; 0: the axis that traces share */
    uint32_t name, datatype, stage;
    uint32_t algorithm, protocol;           /* NCCL's choice; NAME_NONE: unknown */
    int64_t channels;                       /* the same; UNKNOWN_NUMBER: unknown */
    int64_t step;                           /* of the profiler; UNKNOWN_NUMBER: none */
    int64_t size;                           /* ranks in the communicator; UNKNOWN_NUMBER: unknown */
    uint64_t elements_in, elements_out;     /* UNKNOWN_COUNT: unknown */
    uint64_t bytes_in, bytes_out;           /* the same */
    int64_t root;                           /* number in the communicator; UNKNOWN_NUMBER: none or unknown */
    int64_t stream;                         /* of its kernel; UNKNOWN_NUMBER: none or unknown */
    int64_t call_start, start, end;         /* UNKNOWN_TIME: unknown */
    double file_start_us, file_duration_us; /* as the file's writer rounds them; only by TraceLens's rules */
};

struct comm_summary {
    const struct names *names; /* of all parts */
    struct comm_part *part;
    size_t count, capacity;
};

void comm_add(struct comm_summary *summary, const struct comm_part *part);
/* Gives back the memory that comm_add reserved for more parts. */
void comm_fit(struct comm_summary *summary);
/* Moves the parts of `b` behind those of `a`, before they are sorted; `b` is empty afterwards. */
void comm_append(struct comm_summary *a, struct comm_summary *b);
/* Puts the parts into their order; called after the last comm_add. */
void comm_sort(struct comm_summary *summary);
/* Moves the parts of `b` into `a`. Both are sorted; `b` is empty afterwards. */
void comm_merge(struct comm_summary *a, struct comm_summary *b);
void comm_summary_free(struct comm_summary *summary);

/* Returns the index behind the last part with the key of part `first`. */
size_t comm_key_end(const struct comm_summary *summary, size_t first);
/* Compares the communicators, and runs, of two parts: 0 if they are the same. */
int comm_group_order(const struct names *names, const struct comm_part *a, const struct comm_part *b);
/* Compares the keys of two parts. */
int comm_key_order(const struct names *names, const struct comm_part *a, const struct comm_part *b);

#endif
