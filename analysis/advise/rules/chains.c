/* chains.c - finds chains of elementwise work among the kernels of streams, and the operators that it is told of. */
#include "advise/rules/chains.h"

#include <stdlib.h>

#include "base/hash.h"

void chain_end(struct chains *chains, struct chain *chain)
{
    const struct chain_kind *so_far = &chain->so_far;
    if (chain->is_mixed) {
        struct chain_kind *kind = keyed_row(&chains->kinds.keyed, &so_far->key, sizeof so_far->key, sizeof *kind);
        uint64_t count = kind->count + 1;
        int64_t time = add_ns(kind->time, so_far->time);
        *kind = *so_far;
        kind->count = count;
        kind->time = time;
        chains->count++;
        chains->links += so_far->links;
        chains->time = add_ns(chains->time, so_far->time);
    }
    *chain = (struct chain){0};
}

void chain_go_on(struct chains *chains, struct chain *chain, enum leaf leaf, uint32_t name, uint32_t op, int64_t time)
{
    struct chain_kind *so_far = &chain->so_far;
    if (leaf == LEAF_LAYOUT || leaf == LEAF_NORMALISATION) return;
    if (leaf != LEAF_ELEMENTWISE) {
        chain_end(chains, chain);
        return;
    }
    if (!so_far->links) chain->name = name;
    chain->is_mixed |= chain->name != name;
    if (so_far->links < CHAIN_NAMES) so_far->first[so_far->links] = op;
    so_far->key = hash_numbers(so_far->key, op);
    so_far->links++;
    so_far->time = add_ns(so_far->time, time);
}

/* ---- kernels ---- */

static int kernels_by_start(const void *a, const void *b, void *context)
{
    const int64_t *start = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return start[x] != start[y] ? by_number(start[x], start[y]) : (x > y) - (x < y);
}

/* Returns the device work by start. */
static uint32_t *works_in_order(const struct works *works, size_t *count)
{
    uint32_t *order = mem_zero(works->table.count, sizeof *order);
    bool is_sorted = true;
    *count = 0;
    for (size_t i = 0; i < works->table.count; i++) {
        if (!IS_WORK(works->event_class[i])) continue;
        is_sorted = is_sorted && (!*count || works->start[order[*count - 1]] <= works->start[i]);
        order[(*count)++] = (uint32_t)i;
    }
    if (!is_sorted) qsort_r(order, *count, sizeof *order, kernels_by_start, works->start);
    return order;
}

static enum leaf leaf_of(struct map *known, const struct names *names, uint32_t name)
{
    uint32_t leaf = map_get(known, name);
    if (leaf == MAP_NONE) map_put(known, name, leaf = kernel_leaf(names_get(names, name)));
    return (enum leaf)leaf;
}

void chains_add_kernels(struct chains *chains, struct scope *scope, const struct wall_part *part)
{
    const struct process *p = scope->process;
    const struct works *w = &p->works;
    const struct attribution *attribution = scope_attribute(scope);
    size_t count;
    uint32_t *order = works_in_order(w, &count);
    struct chain *chain = mem_zero(p->lanes, sizeof *chain);
    struct map known = {0};
    for (size_t i = 0; i < count; i++) {
        uint32_t at = order[i];
        if (!intervals_hold(&part->window, w->start[at], w->start[at])) continue;
        enum leaf leaf =
            w->event_class[at] == CLASS_KERNEL ? leaf_of(&known, &scope->chosen->model->names, w->name[at]) : LEAF_COPY;
        uint32_t op = attribution->op ? attribution->op[at] : NO_PLACE;
        chain_go_on(chains, &chain[w->lane[at]], leaf, w->name[at], op == NO_PLACE ? w->name[at] : p->spans.name[op],
                    w->end[at] - w->start[at]);
    }
    for (size_t lane = 0; lane < p->lanes; lane++) chain_end(chains, &chain[lane]);
    map_free(&known);
    free(chain);
    free(order);
}

const struct chain_kind *chains_heaviest(const struct chains *chains)
{
    const struct chain_kind *most = NULL;
    for (size_t i = 0; i < chains->kinds.count; i++)
        if (!most || chains->kinds.row[i].time > most->time) most = &chains->kinds.row[i];
    return most;
}

void chains_free(struct chains *chains)
{
    keyed_free(&chains->kinds.keyed);
    *chains = (struct chains){0};
}
