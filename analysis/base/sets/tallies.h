/* tallies.h - raises and lowers many tallies at once, and finds watched ones that are at zero.
 *
 * A change of neighbouring tallies costs log N, however many they are. No tally falls below zero.
 */
#ifndef TFA_TALLIES_H
#define TFA_TALLIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TALLIES_NONE SIZE_MAX

struct tallies {
    struct tallies_node *node; /* node 1 is the root, 2 i and 2 i + 1 are below i, the leaves are the tallies */
    size_t size;               /* number of leaves, a power of two */
};

/* All tallies are at zero, none is watched. */
void tallies_init(struct tallies *tallies, size_t count);
void tallies_free(struct tallies *tallies);
int64_t tallies_value(const struct tallies *tallies, size_t at);
void tallies_set(struct tallies *tallies, size_t at, int64_t value);
/* Adds to the tallies from `first` to `last`; a sum below zero becomes zero. */
void tallies_add(struct tallies *tallies, size_t first, size_t last, int64_t number);
void tallies_watch(struct tallies *tallies, size_t at, bool is_watched);
bool tallies_watches(const struct tallies *tallies, size_t at);
/* Returns a watched tally that is at zero; TALLIES_NONE if there is none. */
size_t tallies_zero(const struct tallies *tallies);
/* Calls `found` for each of them, in ascending order, at a constant cost each. */
void tallies_zeros(struct tallies *tallies, void (*found)(void *context, size_t at), void *context);

#endif
