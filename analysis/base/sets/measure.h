/* measure.h - tells how much of a set of intervals lies inside a given interval, in logarithmic time.
 *
 * A comparison of one set with many small ones costs their sizes only, not the size of the one set each time.
 */
#ifndef TFA_MEASURE_H
#define TFA_MEASURE_H

#include "base/sets/intervals.h"

struct measure {
    const struct intervals *set;
    int64_t *before; /* by interval of the set: time that the ones before it cover */
};

/* `set` is merged, and neither changes nor moves while the measure is in use. */
void measure_init(struct measure *measure, const struct intervals *set);
void measure_free(struct measure *measure);
/* Returns how much of [start, end) the set covers. */
int64_t measure_between(const struct measure *measure, int64_t start, int64_t end);
/* Returns how much of merged `other` the set covers. */
int64_t measure_overlap(const struct measure *measure, const struct intervals *other);
/* Returns the part of merged `a` that lies in merged `b`, as a new merged set. */
struct intervals intervals_common(const struct intervals *a, const struct intervals *b);
/* The same of the part that lies outside `b`. */
struct intervals intervals_without(const struct intervals *a, const struct intervals *b);

#endif
