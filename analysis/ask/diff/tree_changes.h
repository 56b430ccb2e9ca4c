/* tree_changes.h - the places at which two runs differ, each named once.
 *
 * Calls are facts: a node that only one run has, or that each call of its parent makes more often, is a change, and so is
 * all below it. If a place has both what is gone and what is new, it was changed there and is the one row.
 *
 * Times differ by noise unless they differ by more. The medians of own times are compared; of few calls (TREE_FEW_CALLS)
 * the shortest, or the sum where that differs less. The noise of a node has two parts: that of its calls, from their
 * spread and number, and that between the runs, from how the medians of all nodes differ. A run whose times are all a
 * little slower, by less than TREE_DRIFT, was on a slower machine. A time changed if its ratio is beyond TREE_SURE
 * deviations of that and TREE_LEAST_RATIO, and its change matters to the run. Where such changes make most of the time of
 * a place, that place is the row, and not what is below it. Attributes are compared as times are, but for the noise between
 * the runs.
 */
#ifndef TFA_DIFF_TREE_CHANGES_H
#define TFA_DIFF_TREE_CHANGES_H

#include "ask/diff/tree.h"

struct tree_change {
    uint32_t node;
    uint64_t calls[SIDES];
    int64_t time[SIDES]; /* of the node with all that is below it, or of what was replaced below it */
    bool in[SIDES];
    char *what; /* what was replaced by what, and the attributes that differ; NULL: neither */
};

struct tree_changes {
    struct tree_change *change;
    size_t count, capacity;
    int64_t total[SIDES];
    double noise; /* between the runs, in percent of a time */
};

/* Finds the changes, the largest first. With device work in either run, times are those of devices. */
void tree_compare(struct tree_changes *changes, const struct tree *tree, const struct names *names);
void tree_changes_free(struct tree_changes *changes);
/* Writes the names from the outermost stage to a node. */
void tree_path(struct text *path, const struct tree *tree, uint32_t node, const struct names *names);

#endif
