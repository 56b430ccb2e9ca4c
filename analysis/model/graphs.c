/* graphs.c - finds the call that a replayed node of a CUDA graph was captured from. */
#include "model/graphs.h"

#include <stdlib.h>

enum { DEEPEST = 16, MOST_PARTS = 64 }; /* limits of the source chain and of the parts: a trace may be hostile */

static uint32_t graph_in(uint64_t node)
{
    return (uint32_t)(node >> 32);
}

static int by_graph_and_time(const void *a, const void *b, void *context)
{
    const struct graph_source *s = context;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    if (s[x].graph != s[y].graph) return s[x].graph < s[y].graph ? -1 : 1;
    if (s[x].time != s[y].time) return s[x].time < s[y].time ? -1 : 1;
    return (x > y) - (x < y);
}

static int by_whole(const void *a, const void *b, void *context)
{
    const struct graph_source *s = context;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    if (s[x].source != s[y].source) return s[x].source < s[y].source ? -1 : 1;
    return (x > y) - (x < y);
}

void graph_finder_init(struct graph_finder *f, const struct process *process)
{
    const struct graphs *g = &process->graphs;
    *f = (struct graph_finder){.process = process};
    for (size_t i = 0; i < g->nodes; i++) map_put(&f->node_of, g->node[i].number, (uint32_t)i);
    f->source = mem_zero(g->sources, sizeof *f->source);
    f->part = mem_zero(g->sources, sizeof *f->part);
    for (size_t i = 0; i < g->sources; i++)
        if (g->source[i].relation == TFI_GRAPH_PART) f->part[f->parts++] = i;
        else f->source[f->sources++] = i;
    if (g->sources) {
        qsort_r(f->source, f->sources, sizeof *f->source, by_graph_and_time, g->source);
        qsort_r(f->part, f->parts, sizeof *f->part, by_whole, g->source);
    }
}

void graph_finder_free(struct graph_finder *f)
{
    map_free(&f->node_of);
    map_free(&f->known);
    free(f->source);
    free(f->part);
    free(f->answer);
}

/* Returns the source of a graph's nodes at `time`: the last one up to then, else the first. SIZE_MAX: the graph has
 * none. */
static size_t source_at(const struct graph_finder *f, uint32_t graph, int64_t time)
{
    const struct graph_source *s = f->process->graphs.source;
    size_t low = 0, high = f->sources;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct graph_source *at = &s[f->source[middle]];
        if (at->graph < graph || (at->graph == graph && at->time <= time)) low = middle + 1;
        else high = middle;
    }
    if (low && s[f->source[low - 1]].graph == graph) return f->source[low - 1];
    return low < f->sources && s[f->source[low]].graph == graph ? f->source[low] : SIZE_MAX;
}

/* Returns the graph that a graph had its nodes from at `*time`, which becomes the time at which it got them; 0: none. */
static uint32_t graph_before(const struct graph_finder *f, uint32_t graph, int64_t *time)
{
    size_t source = source_at(f, graph, *time);
    if (source == SIZE_MAX) return 0;
    *time = f->process->graphs.source[source].time;
    return f->process->graphs.source[source].source;
}

/* Finds the node with that number in a graph, or in the graphs it was made from. */
static uint32_t node_in(const struct graph_finder *f, uint32_t graph, uint32_t number, int64_t time)
{
    for (int depth = 0; depth < DEEPEST; depth++) {
        uint32_t node = map_get(&f->node_of, (uint64_t)graph << 32 | number);
        if (node != MAP_NONE) return node;
        if (!(graph = graph_before(f, graph, &time))) break;
    }
    return NO_PLACE;
}

struct part_search {
    uint32_t number;
    int64_t time;
    unsigned seen, found;
    uint32_t node;
};

static size_t first_part(const struct graph_finder *f, uint32_t graph)
{
    size_t low = 0, high = f->parts;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (f->process->graphs.source[f->part[middle]].source < graph) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void search_parts(const struct graph_finder *f, uint32_t graph, struct part_search *search, int depth)
{
    const struct graph_source *s = f->process->graphs.source;
    for (size_t i = first_part(f, graph); i < f->parts && s[f->part[i]].source == graph; i++) {
        if (search->seen++ >= MOST_PARTS || depth >= DEEPEST) {
            search->found = MOST_PARTS;
            return;
        }
        uint32_t node = node_in(f, s[f->part[i]].graph, search->number, search->time);
        if (node != NO_PLACE) {
            search->found++;
            search->node = node;
        }
        search_parts(f, s[f->part[i]].graph, search, depth + 1);
    }
}

/* Finds the node if exactly one part of an executable graph has that number. */
static uint32_t node_in_part(const struct graph_finder *f, uint32_t exec, uint32_t number, int64_t time)
{
    struct part_search search = {.number = number, .time = time, .node = NO_PLACE};
    uint32_t graph = exec;
    for (int depth = 0; depth < DEEPEST && !search.seen; depth++) {
        size_t source = source_at(f, graph, time);
        if (source == SIZE_MAX) break;
        graph = f->process->graphs.source[source].source;
        search_parts(f, graph, &search, 0);
    }
    return search.found == 1 ? search.node : NO_PLACE;
}

uint64_t graph_node_of(const struct process *process, size_t work)
{
    return work < process->graphs.works ? process->graphs.node_of_work[work] : 0;
}

uint32_t graph_captured(struct graph_finder *f, size_t work, int64_t time)
{
    uint64_t number = graph_node_of(f->process, work);
    if (!number || !f->process->graphs.nodes) return NO_PLACE;
    uint32_t inside = map_get(&f->process->graphs.whole_of, graph_in(number));
    uint32_t exec = inside == MAP_NONE ? graph_in(number) : inside;
    size_t source = source_at(f, exec, time);
    uint32_t place = map_get(&f->known, number);
    if (place != MAP_NONE && f->answer[place].source == source) return f->answer[place].node;
    uint32_t node = node_in(f, graph_in(number), (uint32_t)number, time);
    if (node == NO_PLACE && inside != MAP_NONE) node = node_in_part(f, exec, (uint32_t)number, time);
    if (place == MAP_NONE) {
        place = (uint32_t)f->answers;
        f->answer = mem_grow(f->answer, &f->answer_capacity, f->answers + 1, sizeof *f->answer);
        f->answers++;
        map_put(&f->known, number, place);
    }
    f->answer[place] = (struct graph_answer){source, node};
    return node;
}

struct visiting {
    void (*visit)(void *context, uint32_t graph);
    void *context;
    int64_t time;
    unsigned parts;
};

static void visit_sources(const struct graph_finder *f, uint32_t graph, struct visiting *v, int parts)
{
    const struct graph_source *s = f->process->graphs.source;
    int64_t time = v->time;
    for (int depth = 0; depth < DEEPEST && graph; depth++, graph = graph_before(f, graph, &time)) {
        v->visit(v->context, graph);
        for (size_t i = first_part(f, graph); i < f->parts && s[f->part[i]].source == graph; i++) {
            if (v->parts++ >= MOST_PARTS || parts >= DEEPEST) return;
            visit_sources(f, s[f->part[i]].graph, v, parts + 1);
        }
    }
}

void graph_visit(const struct graph_finder *f, uint32_t graph, int64_t time,
                 void (*visit)(void *context, uint32_t graph), void *context)
{
    struct visiting v = {.visit = visit, .context = context, .time = time};
    visit_sources(f, graph, &v, 0);
}
