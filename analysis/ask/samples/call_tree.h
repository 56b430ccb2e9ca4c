/* call_tree.h - the heaviest paths of sampled stacks, from the program's own lines down to where the time is spent. */
#ifndef TFA_CALL_TREE_H
#define TFA_CALL_TREE_H

#include "ask/samples/periods.h"

struct call_node {
    uint32_t parent, child, next; /* indices; 0: none. Node 0 is the root */
    uint32_t frame; /* the text of a frame; of several lines of a library's function one that has most of the time */
    int64_t total, self;
    int64_t of_line; /* how far the text's line leads */
    bool is_own;     /* the program's file, and not a library's */
    bool is_joined;  /* of the chosen paths: it says little more than its caller and its callee */
};

struct call_tree {
    struct names *names;
    struct call_node *node;
    size_t count, capacity;
    struct map child_of; /* by parent and function */
    struct map function; /* number of a function, or of an own line, by name of the frame */
    struct map own;      /* 1: the program's, by name of the frame */
    int64_t imports;     /* weight of periods of imports, which are in no path */
    uint32_t *chosen;    /* the nodes of the heaviest paths in the order of a listing, after call_tree_choose */
    uint32_t *depth;     /* of each of them, from 0 */
    size_t nr_chosen;
};

void call_tree_init(struct call_tree *tree, struct names *names);
void call_tree_add(struct call_tree *tree, const struct process *process, const struct sampled *sampled);
/* Chooses the nodes with the largest shares, so that a listing has at most `most` lines: joined ones share a line. */
void call_tree_choose(struct call_tree *tree, size_t most);
void call_tree_free(struct call_tree *tree);

#endif
