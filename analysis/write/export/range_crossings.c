/* range_crossings.c - finds the ranges that would cross another box of their thread, which a viewer cannot draw. */
#include <stdlib.h>

#include "write/export/export_write.h"

struct box {
    int64_t start, end;
    uint32_t thread;
    uint32_t depth;
    size_t range; /* SIZE_MAX: a call or an operator */
    int moves;    /* readiness to become a pair: calls 0, stages 1, ranges of libraries 2, started or unfinished 3 */
};

static int outer_box_first(const void *a, const void *b)
{
    const struct box *x = a, *y = b;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    int nesting = outer_first(x->start, x->end, y->start, y->end);
    if (nesting) return nesting;
    if (x->moves != y->moves) return x->moves > y->moves ? -1 : 1;
    return (x->depth > y->depth) - (x->depth < y->depth);
}

static int readiness(uint32_t flags)
{
    if (!(flags & TFI_RANGE_NESTED) || flags & RANGE_UNFINISHED) return 3;
    return flags & TFI_RANGE_STAGE ? 1 : 2;
}

static struct box *all_boxes(const struct process *process, size_t *count)
{
    const struct ranges *r = &process->ranges;
    const struct calls *c = &process->calls;
    const struct spans *s = &process->spans;
    struct box *box = mem_zero(r->table.count + c->table.count + s->table.count, sizeof *box);
    struct map has_ranges = {0};
    size_t n = 0;
    for (size_t i = 0; i < r->table.count; i++) {
        map_put(&has_ranges, r->thread[i], 1);
        box[n++] = (struct box){r->start[i], r->end[i], r->thread[i], r->depth[i], i, readiness(r->flags[i])};
    }
    for (size_t i = 0; i < c->table.count; i++) /* without ranges, calls and operators always nest */
        if (map_get(&has_ranges, c->thread[i]) != MAP_NONE)
            box[n++] = (struct box){c->start[i], c->end[i], c->thread[i], 0, SIZE_MAX, 0};
    for (size_t i = 0; i < s->table.count; i++)
        if (s->event_class[i] == CLASS_OPERATOR && map_get(&has_ranges, s->thread[i]) != MAP_NONE)
            box[n++] = (struct box){s->start[i], s->end[i], s->thread[i], 0, SIZE_MAX, 0};
    map_free(&has_ranges);
    if (n) qsort(box, n, sizeof *box, outer_box_first);
    *count = n;
    return box;
}

/* Pushes a box onto the stack of boxes around it, unless it crosses one of them and gives way. */
static void place_box(bool *crosses, const struct box **stack, size_t *depth, const struct box *box)
{
    while (*depth && (stack[*depth - 1]->thread != box->thread || stack[*depth - 1]->end <= box->start)) --*depth;
    while (*depth && stack[*depth - 1]->end < box->end) {
        const struct box *over = stack[*depth - 1];
        if (box->moves >= over->moves && box->range != SIZE_MAX) {
            crosses[box->range] = true;
            return;
        }
        if (over->range == SIZE_MAX) break; /* two calls cross only in a damaged trace */
        crosses[over->range] = true;
        --*depth;
    }
    stack[(*depth)++] = box;
}

void find_crossings(struct tfr_shared *shared)
{
    const struct process *p = shared->scope.process;
    size_t count, depth = 0;
    struct box *box = all_boxes(p, &count);
    const struct box **stack = mem_zero(count, sizeof *stack);
    shared->crosses = mem_zero(p->ranges.table.count, sizeof *shared->crosses);
    for (size_t i = 0; i < count; i++) place_box(shared->crosses, stack, &depth, &box[i]);
    free(stack);
    free(box);
}
