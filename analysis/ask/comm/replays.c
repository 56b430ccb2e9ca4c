/* replays.c - counts captured collectives, their runs, and the kernels whose calls are unknown. */
#include "ask/comm/replays.h"

#include "model/communication.h"
#include "model/graphs.h"

static bool is_known_name(struct map *communicates, const struct names *names, uint32_t name)
{
    uint32_t known = map_get(communicates, name);
    if (known != MAP_NONE) return known;
    const struct name *text = names_get(names, name);
    known = names_communication(names, text->text, text->length);
    map_put(communicates, name, known);
    return known;
}

/* Counts the kernels of communication that ran as nodes of graphs. */
static uint64_t graph_kernels(const struct process *p, const struct names *names)
{
    struct map communicates = {0};
    uint64_t count = 0;
    for (size_t i = 0; i < p->graphs.works; i++)
        if (p->works.event_class[i] == CLASS_KERNEL && graph_node_of(p, i))
            count += is_known_name(&communicates, names, p->works.name[i]);
    map_free(&communicates);
    return count;
}

struct comm_replays comm_replays(const struct process *process, const struct names *names)
{
    struct comm_replays replays = {.sum = process->collectives.replays};
    uint64_t kernels = graph_kernels(process, names);
    replays.unknown = kernels > replays.sum.kernels ? kernels - replays.sum.kernels : 0;
    return replays;
}

void comm_replays_add(struct comm_replays *all, const struct comm_replays *one)
{
    all->sum.captured += one->sum.captured;
    all->sum.idle += one->sum.idle;
    all->sum.untimed += one->sum.untimed;
    all->sum.kernels += one->sum.kernels;
    all->sum.left_out += one->sum.left_out;
    all->unknown += one->unknown;
}
