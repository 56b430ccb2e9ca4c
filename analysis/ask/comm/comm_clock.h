/* comm_clock.h - puts the parts of ranks on different clocks onto one time, by the ends of the same collectives.
 *
 * Ranks leave an all_reduce, all_gather, reduce_scatter, all_to_all or barrier at nearly the same moment. The ends on
 * two clocks give the offset of one clock to the other, and its drift. One clock is the reference: that of the lowest
 * rank whose times are of the axis, else that of the lowest rank. A clock that shares collectives only with aligned
 * ones is aligned by them.
 */
#ifndef TFA_COMM_CLOCK_H
#define TFA_COMM_CLOCK_H

#include "ask/comm/summary.h"
#include "model/clock.h"

struct clock_fit {
    bool aligned; /* to the reference, which counts as aligned */
    int64_t rank; /* the lowest rank with this clock */
    uint32_t axis;
    struct clock_shift shift; /* moves its times to those of the reference */
    size_t collectives;       /* whose ends gave the fit; 0: the reference */
};

struct clock_fits {
    struct clock_fit *clock; /* by comm_part.clock */
    size_t count;
    size_t aligned; /* without the reference */
};

/* Aligns the parts of a sorted summary; its order stays. */
void comm_align(struct clock_fits *fits, struct comm_summary *summary, size_t clocks);
void clock_fits_free(struct clock_fits *fits);

#endif
