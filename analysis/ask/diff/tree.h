/* tree.h - operators and device work by their place: under the operators that called them, and under stages.
 *
 * With device work, calls that allocate or wait have a place too: under the stage that is open on their thread. All calls
 * of one name at one place are a node. A node's own time is that of its calls without what is inside them: on
 * the host of stages and operators, on the device of device work. A stage or an operator opened on another thread takes
 * nothing from the own time of what is around it. What else is measured of a node is its attributes: numbers of which each
 * run has several.
 */
#ifndef TFA_DIFF_TREE_H
#define TFA_DIFF_TREE_H

#include "ask/diff/diff_rows.h"

enum { TREE_ROOT, TREE_DEPTH = 200 /* deeper calls count as calls of their ancestor there */, TREE_SAMPLES = 128 };

/* Some of a node's times: all of them, or every second, every fourth, so that there are at most TREE_SAMPLES. */
struct tree_samples {
    int64_t *time;
    uint32_t count, every, passed;
};

/* Blocks of a launch; Kineto traces have blocks per multiprocessor. The root has the clock of devices. */
enum tree_attribute { TREE_BLOCKS, TREE_BLOCKS_PER_UNIT, TREE_CLOCK, NR_TREE_ATTRIBUTES };
#define TREE_SCALE 1000 /* an attribute's samples are its values times this */

struct tree_side {
    uint64_t calls;
    int64_t own; /* nanoseconds, 0 or more */
    struct tree_samples samples, attribute[NR_TREE_ATTRIBUTES];
};

/* Children of these kinds have names of their own; work of any kind is one. */
enum tree_children { TREE_STAGES, TREE_OPERATORS, TREE_CALLS, TREE_WORK, NR_TREE_CHILDREN };

struct tree_node {
    uint32_t parent, name, depth;
    uint8_t kind; /* enum diff_kind */
    struct tree_side side[SIDES];
};

struct tree {
    struct tree_node *node; /* a parent stands before its children */
    size_t count, capacity;
    struct map child[NR_TREE_CHILDREN]; /* by parent and name */
    bool has_work;
};

void tree_init(struct tree *tree);
void tree_free(struct tree *tree);
/* Takes what the filters of a scope choose, as side A. */
void tree_take(struct tree *tree, struct scope *scope);
/* Adds a tree as a side of another one, whose names are in `names`. */
void tree_unite(struct tree *to, int side, const struct tree *from, const struct names *from_names,
                struct names *names);
struct needs tree_needs(const struct options *options);

#endif
