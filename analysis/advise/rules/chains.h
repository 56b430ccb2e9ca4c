/* chains.h - finds chains of elementwise work: neighbours of at least two names, which one kernel could compute.
 *
 * On a device neighbours are kernels that follow each other in a stream, on the host the innermost operators of a thread.
 * What memory bounds too, such as a copy or a normalisation between them, does not end a chain; nor do operators of no kind on
 * the host, such as views.
 */
#ifndef TFA_CHAINS_H
#define TFA_CHAINS_H

#include "advise/budget/wall.h"
#include "base/sets/rows_by_key.h"

enum { CHAIN_NAMES = 6 };

/* All chains of a rank that have the same links. */
struct chain_kind {
    uint64_t key;                /* of the names of all links */
    uint32_t first[CHAIN_NAMES]; /* the first ones */
    uint64_t links, count;       /* links of one chain, and chains */
    int64_t time;                /* of all of them */
};

/* All chains of a rank. */
struct chains {
    uint64_t count, links;
    int64_t time;
    struct {
        KEYED_ROWS(struct chain_kind);
    } kinds;
};

/* A chain that may go on. */
struct chain {
    uint32_t name; /* of its first link */
    bool is_mixed;
    struct chain_kind so_far; /* its count is that of the kind, and unknown here */
};

/* Adds a link, or ends the chain with what memory does not bound. `op` is the operator to tell of: its own name, or that of a
 * kernel's. */
void chain_go_on(struct chains *chains, struct chain *chain, enum leaf leaf, uint32_t name, uint32_t op, int64_t time);
/* Counts the chain if it has two names, and begins anew. */
void chain_end(struct chains *chains, struct chain *chain);
/* Adds the chains of a process's kernels that begin in the judged time. */
void chains_add_kernels(struct chains *chains, struct scope *scope, const struct wall_part *part);
/* Returns the kind with the most time; NULL: there is none. */
const struct chain_kind *chains_heaviest(const struct chains *chains);
void chains_free(struct chains *chains);

#endif
