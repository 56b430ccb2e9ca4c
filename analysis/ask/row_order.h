/* row_order.h - the common head and the order of answer rows grouped by rank, stage and name. */
#ifndef TFA_ROW_ORDER_H
#define TFA_ROW_ORDER_H

#include <stddef.h>
#include <stdint.h>

struct names;

/* Every row is a struct that begins with this. */
struct row_head {
    int64_t rank;
    uint32_t stage, name; /* with the rank the key of the row */
    int64_t time;         /* sort key in nanoseconds; the caller sets it before rows_sort */
    int64_t of_stage;     /* total time of all rows of its rank and stage; rows_sort sets it */
};

#define ROW_KEY offsetof(struct row_head, time) /* length of the key */

/* Compares rank and stage: 0 if both rows have the same. */
int row_group(const void *a, const void *b);

/* Sorts rows of `size` bytes: by rank, by descending stage total, by descending row time, by name. */
void rows_sort(void *rows, size_t count, size_t size, const struct names *names);

#endif
