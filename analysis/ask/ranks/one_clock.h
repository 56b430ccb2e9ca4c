/* one_clock.h - puts the processes of all hosts onto one clock, reading one trace at a time.
 *
 * Processes of one host share its clock. The clocks of several hosts, and those of traces without a time of day, are
 * aligned by the ends of collectives (ask/comm/comm_clock.h). The traces are read for that only if there are several clocks,
 * and only MOST_COLLECTIVES collectives of all ranks together are kept, the earliest ones of each rank. A clock that
 * shares no collectives keeps its times of day; without these, its first moment becomes that of the others.
 */
#ifndef TFA_ONE_CLOCK_H
#define TFA_ONE_CLOCK_H

#include "ask/selection.h"
#include "model/clock.h"

enum { MOST_COLLECTIVES = 1 << 16 };

/* The clock that gives the times of a process. */
enum clock_source {
    CLOCK_OF_DAY,      /* its own time of day */
    CLOCK_COLLECTIVES, /* aligned to another clock by collectives */
    CLOCK_UNKNOWN,     /* nothing: it begins where the others begin */
    NR_CLOCK_SOURCES
};
extern const char *const clock_source_names[NR_CLOCK_SOURCES];

struct one_clock {
    struct process_clock {
        struct clock_shift shift;
        enum clock_source source;
    } * process;      /* by place in the selection */
    int64_t residual; /* median distance of the ends of a collective; UNKNOWN_TIME: no clock is aligned */
    int64_t start;    /* first moment of all processes, shifted */
    size_t clocks;    /* clocks of the processes */
    size_t aligned;   /* clocks that were aligned to another one */
    size_t unknown;   /* processes whose place in time is not known */
};

/* The processes need nothing but what is always loaded. `inputs` are those of the selection. */
void one_clock_find(struct one_clock *clock, const struct selection *chosen);
void one_clock_free(struct one_clock *clock);

#endif
