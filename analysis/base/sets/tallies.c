/* tallies.c - keeps a tree over tallies, whose nodes hold additions to all tallies below. */
#include "base/sets/tallies.h"

#include <stdlib.h>

#include "base/util.h"

#define UNWATCHED INT64_MAX

/* A node changes a tally x below it to max(x + add, floor), after the nodes further down have changed it. A leaf does so
 * with zero. */
struct tallies_node {
    int64_t add, floor;
    int64_t least; /* of the watched tallies below, changed by this node too */
};

static int64_t change(const struct tallies_node *node, int64_t value)
{
    return MAX(value + node->add, node->floor);
}

/* Makes a node change its tallies once more. */
static void change_all(struct tallies_node *node, int64_t add, int64_t floor)
{
    node->add += add;
    node->floor = MAX(node->floor + add, floor);
    if (node->least != UNWATCHED) node->least = MAX(node->least + add, floor);
}

/* Hands a node's change on to the two nodes below. */
static void push(struct tallies *t, size_t at)
{
    struct tallies_node *node = &t->node[at];
    change_all(&t->node[2 * at], node->add, node->floor);
    change_all(&t->node[2 * at + 1], node->add, node->floor);
    node->add = node->floor = 0;
}

static void sum_up(struct tallies *t, size_t at)
{
    int64_t least = MIN(t->node[2 * at].least, t->node[2 * at + 1].least);
    t->node[at].least = least == UNWATCHED ? UNWATCHED : change(&t->node[at], least);
}

static void sum_up_path(struct tallies *t, size_t leaf)
{
    for (size_t at = leaf / 2; at; at /= 2) sum_up(t, at);
}

void tallies_init(struct tallies *t, size_t count)
{
    for (t->size = 1; t->size < count;) t->size *= 2;
    t->node = mem_zero(2 * t->size, sizeof *t->node);
    for (size_t i = 0; i < 2 * t->size; i++) t->node[i].least = UNWATCHED;
}

void tallies_free(struct tallies *t)
{
    free(t->node);
    *t = (struct tallies){0};
}

int64_t tallies_value(const struct tallies *t, size_t at)
{
    int64_t value = 0;
    for (size_t node = t->size + at; node; node /= 2) value = change(&t->node[node], value);
    return value;
}

void tallies_set(struct tallies *t, size_t at, int64_t value)
{
    size_t leaf = t->size + at;
    for (int level = __builtin_ctzll(t->size); level; level--) push(t, leaf >> level);
    struct tallies_node *node = &t->node[leaf];
    *node = (struct tallies_node){.add = value, .least = node->least == UNWATCHED ? UNWATCHED : value};
    sum_up_path(t, leaf);
}

/* The recursion depth is the logarithm of the number of tallies. */
static void add_to_tallies(struct tallies *t, size_t at, size_t from, size_t to, const size_t range[2], int64_t number)
{
    if (range[0] <= from && to <= range[1]) {
        change_all(&t->node[at], number, 0);
        return;
    }
    size_t middle = from + (to - from) / 2;
    push(t, at);
    if (range[0] < middle) add_to_tallies(t, 2 * at, from, middle, range, number);
    if (range[1] > middle) add_to_tallies(t, 2 * at + 1, middle, to, range, number);
    sum_up(t, at);
}

void tallies_add(struct tallies *t, size_t first, size_t last, int64_t number)
{
    const size_t range[2] = {first, last + 1};
    add_to_tallies(t, 1, 0, t->size, range, number);
}

void tallies_watch(struct tallies *t, size_t at, bool is_watched)
{
    struct tallies_node *node = &t->node[t->size + at];
    node->least = is_watched ? change(node, 0) : UNWATCHED;
    sum_up_path(t, t->size + at);
}

bool tallies_watches(const struct tallies *t, size_t at)
{
    return t->node[t->size + at].least != UNWATCHED;
}

size_t tallies_zero(const struct tallies *t)
{
    size_t at = 1;
    if (!t->node || t->node[at].least != 0) return TALLIES_NONE;
    while (at < t->size) at = t->node[2 * at].least <= t->node[2 * at + 1].least ? 2 * at : 2 * at + 1;
    return at - t->size;
}

/* The nodes above have handed on their changes. The recursion depth is the logarithm of the number of tallies. */
static void find_zeros(struct tallies *t, size_t at, void (*found)(void *context, size_t at), void *context)
{
    if (t->node[at].least != 0) return;
    if (at >= t->size) {
        found(context, at - t->size);
        return;
    }
    push(t, at);
    find_zeros(t, 2 * at, found, context);
    find_zeros(t, 2 * at + 1, found, context);
}

void tallies_zeros(struct tallies *t, void (*found)(void *context, size_t at), void *context)
{
    if (t->node) find_zeros(t, 1, found, context);
}
