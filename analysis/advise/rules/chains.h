/* chains.h - finds chains of elementwise work: neighbours of at least two names, which one kernel could compute.
 *
 * On a device neighbours are kernels that follow each other in a stream, on the host the innermost operators of a thread.
 * What memory bounds too, such as a copy or a normalisation between them, does not end a chain; nor do operators of no kind on
 * the host, such as views.
 */
#ifndef TFA_CHAINS_H
#define TFA_CHAINS_H

#include "advise/budget/wall.h"

/* All chains of a rank. */
struct chains {
    uint64_t count, links;
    int64_t time;
};

/* A chain that may go on. */
struct chain {
    uint32_t name; /* of its first link */
    bool is_mixed;
    uint64_t links;
    int64_t time;
};

/* Adds a link, or ends the chain with what memory does not bound. */
void chain_go_on(struct chains *chains, struct chain *chain, enum leaf leaf, uint32_t name, int64_t time);
/* Counts the chain if it has two names, and begins anew. */
void chain_end(struct chains *chains, struct chain *chain);
/* Adds the chains of a process's kernels that begin in the judged time. */
void chains_add_kernels(struct chains *chains, const struct scope *scope, const struct wall_part *part);

#endif
