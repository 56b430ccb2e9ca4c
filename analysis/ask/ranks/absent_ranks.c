/* absent_ranks.c - compares the ranks of the chosen traces with the size of the job that the traces state. */
#include "ask/ranks/absent_ranks.h"

#include <stdlib.h>

enum { SHOWN_RANKS = 8 };

/* Returns the first rank from `rank` on that --rank chooses; INT64_MAX: none. */
static int64_t next_chosen(const struct list *list, int64_t rank)
{
    int64_t next = list->count ? INT64_MAX : rank;
    for (size_t i = 0; i < list->count; i++)
        if (list->item[i].to >= (uint64_t)rank && list->item[i].from < INT64_MAX)
            next = MIN(next, MAX(rank, (int64_t)list->item[i].from));
    return next;
}

static bool is_empty(const struct process *p)
{
    return !p->ranges.table.count && !p->spans.table.count && !p->calls.table.count && !p->works.table.count;
}

char *absent_ranks(const struct selection *chosen, bool without_empty)
{
    struct map present = {0};
    int64_t world = 0;
    size_t absent = 0;
    struct text list = {0}, line = {0};
    if (chosen->options->pid.count) return NULL;
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct process *p = chosen->process[i];
        world = MAX(world, p->world);
        if (p->rank >= 0 && !(without_empty && is_empty(p))) map_put(&present, (uint64_t)p->rank, 1);
    }
    /* The inputs bound the ranks that are there, so a wrong size of the job costs no time. */
    for (int64_t rank = next_chosen(&chosen->options->rank, 0); rank < world && absent <= SHOWN_RANKS;
         rank = next_chosen(&chosen->options->rank, rank + 1)) {
        if (map_get(&present, (uint64_t)rank) != MAP_NONE) continue;
        if (absent < SHOWN_RANKS) text_format(&list, absent ? ", %lld" : "%lld", (long long)rank);
        absent++;
    }
    if (absent)
        text_format(&line, "rank%s %s%s of %lld ranks ha%s no trace%s", absent > 1 ? "s" : "", list.data,
                    absent > SHOWN_RANKS ? " and more" : "", (long long)world, absent > 1 ? "ve" : "s",
                    without_empty ? " with stages or calls" : "");
    text_free(&list);
    map_free(&present);
    return line.data;
}
