/* diff_rows.h - compares two runs, A and B, by name.
 *
 * Only ranks that both runs have are compared. A time that differs by at most DIFF_SAME_PCT of A's is the same, the
 * tolerance of TeleFuser's compare_timing_reports.
 */
#ifndef TFA_DIFF_ROWS_H
#define TFA_DIFF_ROWS_H

#include "ask/diff/diff_reduction.h"

#define DIFF_SAME_PCT 5.0

enum diff_state { DIFF_ADDED, DIFF_REMOVED, DIFF_INCREASED, DIFF_DECREASED, DIFF_SAME, NR_DIFF_STATES };
extern const char *const diff_state_names[NR_DIFF_STATES];

enum { SIDE_A, SIDE_B, SIDES };
#define CALLS_UNKNOWN UINT64_MAX

struct diff_row {
    uint32_t name; /* in the names of struct diff */
    uint8_t kind;
    bool in[SIDES];
    uint64_t calls[SIDES]; /* CALLS_UNKNOWN: not known */
    int64_t time[SIDES];
};

struct diff {
    struct names names;
    struct diff_row *row;
    size_t count, capacity;
    struct map places; /* index by name and kind */
    bool has_total[SIDES];
    bool unknown[SIDES];  /* the sums lack work that is not in the traces */
    int64_t total[SIDES]; /* where rows do not contain each other */
};

void diff_init(struct diff *diff);
void diff_free(struct diff *diff);
/* Returns the index of the row of a name, which it adds. A kernel is one row, also if only one run describes it as a
 * collective: then it communicates. */
size_t diff_place(struct diff *diff, const struct name *name, enum diff_kind kind);
/* Adds to a row's calls and time. */
void diff_add(struct diff *diff, int side, const struct name *name, enum diff_kind kind, uint64_t calls, int64_t time);

/* The ranks of two runs. */
struct diff_ranks {
    int64_t *rank[SIDES]; /* sorted, each once */
    size_t count[SIDES];
    size_t common;
    bool one_each; /* no rank in common, but each run has one: these are compared */
};
void diff_ranks_init(struct diff_ranks *ranks, const struct selection *a, const struct selection *b);
void diff_ranks_free(struct diff_ranks *ranks);
bool diff_ranks_has(const struct diff_ranks *ranks, int side, int64_t rank);

/* Adds the summaries of one side: all processes of the common ranks. */
void diff_collect(struct diff *diff, int side, const struct selection *chosen, void *const *taken,
                  const struct diff_ranks *ranks);
/* The same for a comparison with a timing.json: the duration of a stage's last call, the longest of all ranks. */
void diff_collect_timing(struct diff *diff, int side, const struct selection *chosen, void *const *taken);

/* Sorts the rows by the size of the change, the largest first, then by name. */
void diff_sort(struct diff *diff);
/* The change in percent of A's time; NAN if A has none. */
double diff_pct(int64_t a, int64_t b);
enum diff_state diff_state(const struct diff_row *row);
const char *diff_kind_name(const struct diff_row *row);

#endif
