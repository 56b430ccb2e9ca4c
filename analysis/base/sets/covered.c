/* covered.c - keeps a segment tree over the starts and ends of stretches; each node holds what is covered below it. */
#include "base/sets/covered.h"

#include <stdlib.h>

#include "base/util.h"

struct covered_node {
    int64_t total, first, last;
    uint32_t whole; /* stretches that cover this whole node, but not its whole parent */
};

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void covered_init(struct covered *c, const struct interval *stretch, size_t count)
{
    *c = (struct covered){.edge = mem_zero(2 * count, sizeof *c->edge)};
    size_t edges = 0, nodes = 1;
    for (size_t i = 0; i < count; i++) {
        c->edge[edges++] = stretch[i].start;
        c->edge[edges++] = stretch[i].end;
    }
    if (edges) qsort(c->edge, edges, sizeof *c->edge, by_time);
    for (size_t i = 0; i < edges; i++)
        if (!c->edges || c->edge[i] != c->edge[c->edges - 1]) c->edge[c->edges++] = c->edge[i];
    while (nodes < c->edges) nodes *= 2;
    c->node = mem_zero(2 * nodes, sizeof *c->node);
}

void covered_free(struct covered *c)
{
    free(c->edge);
    free(c->node);
    *c = (struct covered){0};
}

static size_t place_of(const struct covered *c, int64_t time)
{
    size_t low = 0, high = c->edges;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c->edge[middle] < time) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Computes node `at`, which covers the time between the edges `from` and `to`, from its children. */
static void sum_up(struct covered *c, size_t at, size_t from, size_t to)
{
    struct covered_node *node = &c->node[at], *left = node->whole || to - from == 1 ? NULL : &c->node[2 * at];
    if (node->whole) {
        node->total = c->edge[to] - c->edge[from];
        node->first = c->edge[from];
        node->last = c->edge[to];
        return;
    }
    node->total = left ? left[0].total + left[1].total : 0;
    if (node->total) {
        node->first = left[0].total ? left[0].first : left[1].first;
        node->last = left[1].total ? left[1].last : left[0].last;
    }
}

/* The recursion depth is the logarithm of the number of edges. */
static void change(struct covered *c, size_t at, size_t from, size_t to, const size_t stretch[2], bool add)
{
    if (stretch[0] <= from && to <= stretch[1]) {
        c->node[at].whole += add ? 1 : UINT32_MAX;
    } else {
        size_t middle = (from + to) / 2;
        if (stretch[0] < middle) change(c, 2 * at, from, middle, stretch, add);
        if (stretch[1] > middle) change(c, 2 * at + 1, middle, to, stretch, add);
    }
    sum_up(c, at, from, to);
}

void covered_change(struct covered *c, struct interval stretch, bool add)
{
    const size_t places[2] = {place_of(c, stretch.start), place_of(c, stretch.end)};
    if (places[0] < places[1]) {
        change(c, 1, 0, c->edges - 1, places, add);
        c->total = c->node[1].total;
        c->first = c->node[1].first;
        c->last = c->node[1].last;
    }
}
