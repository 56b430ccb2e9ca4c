/* intervals.h - computes with sets of time intervals: unions, overlaps, combinations. An interval is half-open:
 * [start, end).
 *
 * Touching intervals are joined. A set is `merged` once it is sorted and without overlaps; comparing sets requires
 * merged ones.
 */
#ifndef TFA_INTERVALS_H
#define TFA_INTERVALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct interval {
    int64_t start, end;
};

struct intervals {
    struct interval *interval;
    size_t count, capacity;
};

void intervals_add(struct intervals *set, int64_t start, int64_t end); /* an empty interval is dropped */
/* The same for a set of many touching intervals: it merges now and then, so that memory is for merged ones only. */
void intervals_add_merging(struct intervals *set, int64_t start, int64_t end);
void intervals_merge(struct intervals *set);
void intervals_fit(struct intervals *set); /* gives back memory reserved for more intervals */
int64_t intervals_total(const struct intervals *set);
/* Returns the first interval of a merged set that ends after `time`. */
size_t intervals_after(const struct intervals *set, int64_t time);
/* True if one interval of a merged set holds the time `start` and all of [start, end). */
bool intervals_hold(const struct intervals *set, int64_t start, int64_t end);
/* Returns how much of merged `a` lies in merged `b`. */
int64_t intervals_overlap(const struct intervals *a, const struct intervals *b);
/* Returns the union of two merged sets as a new merged set. */
struct intervals intervals_union(const struct intervals *a, const struct intervals *b);
/* Computes how long each combination of up to INTERVALS_SETS merged sets lasts. Adds it to total[bits], where bit i
 * stands for set[i]. If an interval ends before it starts, its set counts -1 in between; only sums of bits above 0
 * are added. */
enum { INTERVALS_SETS = 3, INTERVALS_COMBINATIONS = 1 << INTERVALS_SETS };
void intervals_combine(const struct intervals *set, size_t sets, int64_t total[INTERVALS_COMBINATIONS]);
void intervals_free(struct intervals *set);

#endif
