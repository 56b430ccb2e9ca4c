/* gate.h - judges by a statistical test whether times of B are longer than those of A by more than a share.
 *
 * Both sides are repeated runs. The test is Welch's, one-sided, on the logarithms of the times: a change is a factor, noise
 * grows with the time, and the sides may differ in noise. It has three outcomes. A row regressed if even the lower bound of
 * its change is above the gate, it passes if even the upper bound is below, and everything between is inconclusive.
 *
 * Error rates, if the runs are independent of each other: where no row of a gate changed by more than the gate allows, some
 * row is called regressed with a probability of at most GATE_ERROR. The rows share it (Bonferroni). A row that changed by
 * more than that passes with a probability of at most GATE_ERROR.
 */
#ifndef TFA_DIFF_GATE_H
#define TFA_DIFF_GATE_H

#include <stddef.h>
#include <stdint.h>

#define GATE_ERROR .04   /* the probability of each of the two errors */
#define GATE_POWER .9    /* the probability with which the runs that are named as enough decide */
enum { GATE_LEAST = 3 }; /* runs of each side; fewer do not show their noise */
#define GATE_MOST 10000  /* more runs than these are not named */

enum gate_verdict { GATE_REGRESSED, GATE_INCONCLUSIVE, GATE_ABSENT, GATE_PASSED, NR_GATE_VERDICTS };
extern const char *const gate_verdict_names[NR_GATE_VERDICTS];

/* The times of one row in the runs of one side. */
struct gate_times {
    const double *time;
    size_t count;
};

struct gate_result {
    double mean_a, mean_b;          /* geometric means; NAN: a time is absent */
    double change, lowest, highest; /* in percent, with the bounds of the two one-sided tests; NAN: unknown */
    enum gate_verdict verdict;
    uint64_t
        more; /* of an inconclusive row: further runs of each side that would decide; 0: no number up to GATE_MOST */
};

/* Judges one of `rows` rows. A time that is not above 0 is absent, and such a row can't be judged. */
struct gate_result gate_judge(struct gate_times a, struct gate_times b, double pct, size_t rows);

#endif
