/* sorted_list.h - keeps items sorted by a key while any of them come and go.
 *
 * The items lie in leaves of a few hundred, so that a search, an insertion and a removal cost log N each, and a walk
 * reads memory in order. Insertions and removals move items: pointers to items are valid until the next one.
 */
#ifndef TFA_SORTED_LIST_H
#define TFA_SORTED_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Set `item` and `words`, all else zero: empty. */
struct sorted {
    size_t item;  /* size of an item */
    size_t words; /* an item begins with its key: this many uint64_t, of which the first one counts most */
    size_t count; /* of items */
    struct sorted_leaf *leaf;
    size_t leaves, capacity;
};

/* Each returns an item, or NULL if there is none: the last one whose key is below `key`, the last one that is not above,
 * the first one that is not below, and the first one above. */
void *sorted_below(const struct sorted *sorted, const uint64_t *key);
void *sorted_up_to(const struct sorted *sorted, const uint64_t *key);
void *sorted_from(const struct sorted *sorted, const uint64_t *key);
void *sorted_above(const struct sorted *sorted, const uint64_t *key);
/* Inserts a copy of an item, whose key is new; returns the copy. */
void *sorted_insert(struct sorted *sorted, const void *item);
/* Removes the item of a key; returns false if there is none. */
bool sorted_remove(struct sorted *sorted, const uint64_t *key);
void sorted_free(struct sorted *sorted);

#endif
