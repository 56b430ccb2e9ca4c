/* comm_rows.h - what the parts of one collective tell together: skew, waiting, transfer time and bandwidth.
 *
 * Starts of different ranks are compared only if all parts have times of one axis. start_skew is the latest start less
 * the earliest, and a rank waits from its start to the latest one. Otherwise a rank's waiting is its duration less the
 * shortest one, for collectives that no rank can leave before all have come; it is unknown for others.
 * The transfer of such a collective takes as long as its shortest part, whose rank came last; that of others lasts from
 * the last start to the last end. Bandwidth is bytes by transfer time; bus bandwidth has the factor of the operation.
 */
#ifndef TFA_COMM_ROWS_H
#define TFA_COMM_ROWS_H

#include "ask/comm/summary.h"

struct comm_row {
    const struct comm_part *part; /* its parts, by rank */
    size_t parts;
    size_t ranks;           /* distinct ranks */
    int64_t first;          /* start of the first part */
    int64_t size;           /* ranks in the communicator; UNKNOWN_NUMBER: unknown */
    bool is_chosen;         /* the filters choose one of its parts */
    bool mismatch;          /* the parts do not agree on the operation */
    bool compared;          /* starts are compared */
    bool has_work;          /* all parts have the span of the work */
    uint64_t bytes;         /* UNKNOWN_COUNT: unknown */
    int64_t latest;         /* start, if compared */
    int64_t skew, end_skew; /* UNKNOWN_TIME: unknown, as the next two */
    int64_t transfer, duration;
    int64_t shortest;             /* duration of a part */
    int64_t last, slowest;        /* ranks: the last to start, and the last to end; UNKNOWN_NUMBER: unknown */
    double algorithm_gb, bus_gb;  /* GB/s; NAN: unknown */
    uint32_t algorithm, protocol; /* NCCL's choice; NAME_NONE: unknown, or the ranks differ */
    int64_t channels;             /* the same; UNKNOWN_NUMBER */
};

struct comm_rows {
    struct comm_row *row; /* by the first start, then by key */
    size_t count, capacity;
    uint64_t incomplete, mismatched, ungrouped; /* of the rows: see comm.c */
    bool simple;                                /* comm_rules.is_simple */
    uint64_t untold;                            /* collectives without a row by other rules */
    uint64_t apart;   /* replays that all ranks leave together, but whose times do not overlap */
    int64_t residual; /* median spread of the ends of a collective on its ranks; UNKNOWN_TIME: unknown */
};

/* How other rules than ours make a row. */
struct comm_rules {
    /* Fills in a row in which all values are unknown. Returns false if the collective has no row. */
    bool (*row)(struct comm_row *row, const struct names *names, bool simple);
    bool (*is_simple)(const struct comm_summary *summary);
    int64_t (*wait)(const struct comm_row *row, const struct comm_part *part);
};

/* Makes the rows of the chosen collectives. The summary must stay. `rules` NULL: ours. */
void comm_rows_make(struct comm_rows *rows, const struct comm_summary *summary, const struct comm_rules *rules);
void comm_rows_free(struct comm_rows *rows);
/* Returns how long the rank of a part waited; UNKNOWN_TIME: unknown. */
int64_t comm_wait(const struct comm_row *row, const struct comm_part *part);
/* Bytes of one rank's message, by the operation; UNKNOWN_COUNT: unknown. */
uint64_t comm_bytes(const struct comm_part *part);

#endif
