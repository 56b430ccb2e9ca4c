/* finger_search.h - searches a sorted array from the place found last, because one question is often near the one before. */
#ifndef TFA_FINGER_SEARCH_H
#define TFA_FINGER_SEARCH_H

#include "base/util.h"

/* Returns the first of `count` places that `is_behind`; all that follow it are too. It looks ever further away from
 * `near`, which may be `count`. The compiler makes it a search of the caller's own. */
static inline __attribute__((always_inline)) size_t
place_near(size_t near, size_t count, bool (*is_behind)(const void *context, size_t place), const void *context)
{
    size_t low = near, high = near, step = 1;
    for (; low && is_behind(context, low - 1); step *= 2) {
        high = low - 1;
        low -= MIN(low, step);
    }
    for (; high < count && !is_behind(context, high); step *= 2) {
        low = high + 1;
        high += MIN(count - high, step);
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (is_behind(context, middle)) high = middle;
        else low = middle + 1;
    }
    return low;
}

#endif
