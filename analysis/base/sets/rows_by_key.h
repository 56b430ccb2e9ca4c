/* rows_by_key.h - keeps rows in the order of their appearance, and finds each by its key.
 *
 * A row is a struct that begins with the members of its key. A caller that sorts the rows looks none up afterwards.
 */
#ifndef TFA_ROWS_BY_KEY_H
#define TFA_ROWS_BY_KEY_H

#include <stddef.h>
#include <stdint.h>

/* All zero: no row yet. */
struct keyed {
    void *row;
    size_t count, capacity;
    uint32_t *place; /* hash table: the number of a row + 1; 0: free */
    size_t places;   /* a power of two, or 0 */
};

/* The member of a struct that holds such rows: `keyed` for the functions below, `row` and `count` for all else. */
#define KEYED_ROWS(type)                                                                                               \
    union {                                                                                                            \
        struct keyed keyed;                                                                                            \
        struct {                                                                                                       \
            type *row;                                                                                                 \
            size_t count, capacity;                                                                                    \
        };                                                                                                             \
    }

/* Returns the row of `size` bytes that begins with the `length` bytes at `key`. A new row, which may move the others, is
 * zero behind its key. */
void *keyed_row(struct keyed *keyed, const void *key, size_t length, size_t size);
void keyed_free(struct keyed *keyed);

#endif
