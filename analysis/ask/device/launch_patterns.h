/* launch_patterns.h - sequences of kernels that an operator launches, and how often each of them repeats. */
#ifndef TFA_LAUNCH_PATTERNS_H
#define TFA_LAUNCH_PATTERNS_H

#include "ask/scope.h"

struct pattern {
    int64_t rank;
    size_t first, length; /* its names in `item`: the operator, then its kernels */
    uint64_t count;
    int64_t device, host; /* durations of the kernels and of the operator, summed */
};

struct patterns {
    struct pattern *row; /* by rank, then the most frequent first */
    size_t count, capacity;
    uint32_t *item;
    size_t items, item_capacity;
    struct map place;
    struct left_rows left;
    uint64_t matches; /* operators whose name matches, with kernels or without */
};

/* Counts one more occurrence of a sequence. */
void patterns_add(struct patterns *patterns, int64_t rank, const uint32_t *name, size_t length, int64_t device,
                  int64_t host);
void patterns_sort(struct patterns *patterns);

/* Collects the sequences of the outermost operators and stages on each thread whose name contains `operator`, from the
 * chosen work of all processes, which are loaded with the command's needs. */
void patterns_of(struct patterns *patterns, const struct selection *chosen, const char *operator);
void patterns_free(struct patterns *patterns);

/* By name: whether it contains a text. */
struct name_matches {
    const struct names *names;
    const char *text;
    uint8_t *known; /* 0: not compared yet */
    size_t count;
};
void name_matches_init(struct name_matches *matches, const struct names *names, const char *text);
bool name_matches(struct name_matches *matches, uint32_t name);

#endif
