/* copy_bandwidth.h - copies and sets by kind: how many, how many bytes, how fast. */
#ifndef TFA_COPY_BANDWIDTH_H
#define TFA_COPY_BANDWIDTH_H

#include "ask/scope.h"
#include "base/sets/rows_by_key.h"

struct copy_row {
    int64_t rank;
    uint32_t kind; /* a name: "Memcpy HtoD", "Memset"; with the rank the key */
    uint64_t count, bytes;
    int64_t time, sized_time; /* sized_time: of the copies whose size is known */
    bool has_bytes, has_max;
    double max; /* 10^9 bytes per second */
};

struct copy_rows {
    KEYED_ROWS(struct copy_row);
    uint64_t copies;
    struct left_rows left;
};

void bandwidth_of(struct copy_rows *rows, const struct selection *chosen, struct names *names);
void bandwidth_free(struct copy_rows *rows);

/* Returns what is known of a copy; NULL: nothing. */
const struct copied *copied_of(const struct process *process, size_t work);

#endif
