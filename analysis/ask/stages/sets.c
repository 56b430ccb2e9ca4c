/* sets.c - finds the stretches of work of each name, and the order in which to visit the names. */
#include "ask/stages/sets.h"

#include <stdlib.h>

#include "base/runs.h"

enum { DEEP = 32 };

/* ---- work in launch order ---- */

struct launch {
    int64_t time;
    uint32_t thread, work;
};

static int by_thread_and_time(const void *a, const void *b, void *unused)
{
    const struct launch *x = a, *y = b;
    (void)unused;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return (x->work > y->work) - (x->work < y->work);
}

/* Returns the launches of chosen work inside stages. Work outside all stages is in no stretch. */
static struct launch *launches_of(const struct attribution *a, const bool *chosen, size_t *count)
{
    const struct process *p = a->process;
    struct launch *launch = mem_zero(p->works.table.count, sizeof *launch);
    *count = 0;
    for (size_t i = 0; i < p->works.table.count; i++) {
        const struct belonging *b = &a->work[i];
        if (chosen[i] && b->stage != NO_PLACE)
            launch[(*count)++] = (struct launch){b->time, p->ranges.thread[b->stage], (uint32_t)i};
    }
    sort_runs(launch, *count, sizeof *launch, by_thread_and_time, NULL);
    return launch;
}

/* Returns the first launch of a thread that is not before `time`. */
static uint32_t first_from(const struct launch *launch, size_t count, uint32_t thread, int64_t time)
{
    struct launch key = {time, thread, 0};
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (by_thread_and_time(&launch[middle], &key, NULL) < 0) low = middle + 1;
        else high = middle;
    }
    return (uint32_t)low;
}

/* ---- stretches of names ---- */

struct stretch {
    uint32_t name, from, to;
};

static int by_name_and_place(const void *a, const void *b)
{
    const struct stretch *x = a, *y = b;
    if (x->name != y->name) return x->name < y->name ? -1 : 1;
    return x->from != y->from ? (x->from < y->from ? -1 : 1) : (x->to > y->to) - (x->to < y->to);
}

static struct stretch *stretches_of(const struct attribution *a, const uint32_t *one, const struct launch *launch,
                                    size_t launches, size_t *count)
{
    const struct ranges *r = &a->process->ranges;
    struct stretch *stretch = mem_zero(a->stages, sizeof *stretch);
    *count = 0;
    for (size_t i = 0; i < a->stages; i++) {
        size_t at = a->order[i];
        uint32_t from = first_from(launch, launches, r->thread[at], r->start[at]);
        uint32_t to = first_from(launch, launches, r->thread[at], MAX(r->end[at], r->start[at]));
        uint32_t name = one ? one[r->name[at]] : r->name[at];
        if (from < to && !(one && name == NAME_NONE)) stretch[(*count)++] = (struct stretch){name, from, to};
    }
    return stretch;
}

/* Sorts the stretches and joins overlapping ones of the same name. */
static size_t join(struct stretch *stretch, size_t count)
{
    size_t kept = 0;
    if (count) qsort(stretch, count, sizeof *stretch, by_name_and_place);
    for (size_t i = 0; i < count; i++) {
        struct stretch *last = kept ? &stretch[kept - 1] : NULL;
        if (last && last->name == stretch[i].name && stretch[i].from <= last->to)
            last->to = MAX(last->to, stretch[i].to);
        else stretch[kept++] = stretch[i];
    }
    return kept;
}

/* Returns the number of pairs of a work and a stage around it. */
static uint64_t stage_pairs(const struct attribution *a, const bool *chosen)
{
    size_t launches, count;
    uint64_t pairs = 0;
    struct launch *launch = launches_of(a, chosen, &launches);
    struct stretch *stretch = stretches_of(a, NULL, launch, launches, &count);
    for (size_t i = 0; i < count; i++) pairs += stretch[i].to - stretch[i].from;
    free(stretch);
    free(launch);
    return pairs;
}

bool stages_are_deep(const struct attribution *a, const bool *chosen)
{
    uint64_t room = DEEP * ((uint64_t)a->process->works.table.count + a->stages);
    bool can_be = a->stages > DEEP && (uint64_t)a->process->works.table.count * a->stages > room;
    return can_be && stage_pairs(a, chosen) > room;
}

/* ---- the order of visiting the names ---- */

/* The work of one name. */
struct set {
    const struct stretch *stretch;
    size_t count, size;
    uint32_t child, next; /* list of the sets inside it; the first is the largest and is visited last */
};

struct sets {
    struct set *set;
    size_t count;
    uint32_t *order; /* visiting order */
};

static int outer_set_first(const void *a, const void *b)
{
    const struct stretch *x = ((const struct set *)a)->stretch, *y = ((const struct set *)b)->stretch;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return x->to != y->to ? (x->to > y->to ? -1 : 1) : (x->name > y->name) - (x->name < y->name);
}

static void collect(struct sets *sets, const struct stretch *stretch, size_t count)
{
    sets->set = mem_zero(count, sizeof *sets->set);
    for (size_t i = 0; i < count; i++) {
        if (!i || stretch[i].name != stretch[i - 1].name)
            sets->set[sets->count++] = (struct set){&stretch[i], 0, 0, NO_PLACE, NO_PLACE};
        struct set *set = &sets->set[sets->count - 1];
        set->count++;
        set->size += stretch[i].to - stretch[i].from;
    }
    if (sets->count) qsort(sets->set, sets->count, sizeof *sets->set, outer_set_first);
}

static void add_child(struct sets *sets, uint32_t *first, uint32_t child)
{
    struct set *set = sets->set;
    if (*first == NO_PLACE || set[child].size >= set[*first].size) {
        set[child].next = *first;
        *first = child;
    } else {
        set[child].next = set[*first].next;
        set[*first].next = child;
    }
}

/* A set's parent is the last set before it whose first stretch overlaps the set's own first stretch. */
static uint32_t find_children(struct sets *sets)
{
    uint32_t *open = mem_zero(sets->count, sizeof *open), root = NO_PLACE;
    size_t depth = 0;
    for (uint32_t i = 0; i < sets->count; i++) {
        while (depth && sets->set[open[depth - 1]].stretch->to <= sets->set[i].stretch->from) depth--;
        add_child(sets, depth ? &sets->set[open[depth - 1]].child : &root, i);
        open[depth++] = i;
    }
    free(open);
    return root;
}

/* Fills the order from the end: each set before the sets inside it, and of these the largest first with its subtree. */
static void find_order(struct sets *sets)
{
    uint32_t root = find_children(sets), *later = mem_zero(sets->count, sizeof *later);
    size_t waiting = 0, placed = sets->count;
    sets->order = mem_zero(sets->count, sizeof *sets->order);
    for (uint32_t at = root; at != NO_PLACE || waiting;) {
        at = at == NO_PLACE ? later[--waiting] : at;
        sets->order[--placed] = at;
        if (sets->set[at].next != NO_PLACE) later[waiting++] = sets->set[at].next;
        at = sets->set[at].child;
    }
    free(later);
}

/* Adds or removes the work that is in `of` and not in `less`. */
static void change(const struct stage_sets *asked, const struct launch *launch, const struct set *of,
                   const struct set *less, bool add)
{
    size_t k = 0;
    for (size_t i = 0; of && i < of->count; i++) {
        uint32_t at = of->stretch[i].from, to = of->stretch[i].to;
        while (at < to) {
            while (less && k < less->count && less->stretch[k].to <= at) k++;
            bool more = less && k < less->count;
            if (more && less->stretch[k].from <= at) {
                at = less->stretch[k].to;
                continue;
            }
            uint32_t until = more ? MIN(to, less->stretch[k].from) : to;
            for (; at < until; at++) asked->change(asked->context, launch[at].work, add);
        }
    }
}

void stage_sets_visit(const struct stage_sets *asked)
{
    size_t launches, count;
    struct sets sets = {0};
    struct launch *launch = launches_of(asked->attribution, asked->chosen, &launches);
    struct stretch *stretch = stretches_of(asked->attribution, asked->one, launch, launches, &count);
    collect(&sets, stretch, join(stretch, count));
    find_order(&sets);
    const struct set *now = NULL;
    for (size_t i = 0; i < sets.count; i++) {
        const struct set *next = &sets.set[sets.order[i]];
        change(asked, launch, now, next, false);
        change(asked, launch, next, now, true);
        asked->name(asked->context, next->stretch->name);
        now = next;
    }
    free(sets.set);
    free(sets.order);
    free(stretch);
    free(launch);
}
