/* nests.c - keeps a stack of open events for each thread. */
#include "ask/ops/nests.h"

#include <stdlib.h>

#include "model/model.h"

static struct nest *nest_of(struct nests *n, uint32_t thread)
{
    if (n->count && n->thread == thread) return &n->nest[n->at];
    uint32_t at = map_number(&n->of, thread);
    if (at == n->count) {
        n->nest = mem_grow(n->nest, &n->capacity, n->count + 1, sizeof *n->nest);
        n->nest[n->count++] = (struct nest){0};
    }
    n->thread = thread;
    n->at = at;
    return &n->nest[at];
}

uint32_t nests_add(struct nests *nests, uint32_t thread, int64_t start, int64_t *end, uint32_t event)
{
    struct nest *n = nest_of(nests, thread);
    while (n->depth &&
           (start >= n->level[n->depth - 1].end || *end > add_ns(n->level[n->depth - 1].end, nests->rounding)))
        n->depth--;
    uint32_t parent = n->depth ? n->level[n->depth - 1].event : NO_PLACE;
    if (n->depth) *end = MIN(*end, n->level[n->depth - 1].end);
    n->level = mem_grow(n->level, &n->capacity, n->depth + 1, sizeof *n->level);
    n->level[n->depth++] = (struct level){*end, event};
    return parent;
}

void nests_free(struct nests *nests)
{
    for (size_t i = 0; i < nests->count; i++) free(nests->nest[i].level);
    free(nests->nest);
    map_free(&nests->of);
    *nests = (struct nests){0};
}
