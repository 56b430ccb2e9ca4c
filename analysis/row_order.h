/* row_order.h - rows of an answer that are by rank, stage and name: what they begin with, and their order. */
#ifndef TFA_ROW_ORDER_H
#define TFA_ROW_ORDER_H

#include <stddef.h>
#include <stdint.h>

struct names;

/* A row is a struct that begins with this. */
struct row_head {
    int64_t rank;
    uint32_t stage, name;
    int64_t time;     /* nanoseconds, what rows are ordered by; to be set before they are */
    int64_t of_stage; /* that of all rows of its rank and stage; set by the ordering */
};

/* Compares rank and stage: 0 where two rows are of one stage of one rank. */
int row_group(const void *a, const void *b);

/* Orders rows of `size` bytes: by rank; the stage with the most time first; in it the row with the most; then by name. */
void rows_sort(void *rows, size_t count, size_t size, const struct names *names);

#endif
