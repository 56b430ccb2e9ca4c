/* intervals.h - sets of stretches of time: unions, overlaps, differences. An interval holds its start and not its end.
 *
 * Touching intervals join. A set is `merged` once it is sorted and without overlaps; only such sets are compared.
 */
#ifndef TFA_INTERVALS_H
#define TFA_INTERVALS_H

#include <stddef.h>
#include <stdint.h>

struct interval {
    int64_t start, end;
};

struct intervals {
    struct interval *interval;
    size_t count, capacity;
};

void intervals_add(struct intervals *set, int64_t start, int64_t end); /* an empty one is dropped */
void intervals_merge(struct intervals *set);
int64_t intervals_total(const struct intervals *set);
/* How much of merged `a` lies in merged `b`. */
int64_t intervals_overlap(const struct intervals *a, const struct intervals *b);
/* The union of merged sets, as a new merged one. */
struct intervals intervals_union(const struct intervals *a, const struct intervals *b);
/* How long each combination of up to INTERVALS_SETS merged sets goes on: added to total[bits], where bit i is set[i].
 * Where an interval ends before it starts, its set counts -1 in between, and only sums of bits above 0 are added. */
enum { INTERVALS_SETS = 3, INTERVALS_COMBINATIONS = 1 << INTERVALS_SETS };
void intervals_combine(const struct intervals *set, size_t sets, int64_t total[INTERVALS_COMBINATIONS]);
void intervals_free(struct intervals *set);

#endif
