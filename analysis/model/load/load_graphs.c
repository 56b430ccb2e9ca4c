/* load_graphs.c - loads CUDA graphs from the records of our traces: nodes, sources, and the work that ran as a node. */
#include "model/load/load.h"

void load_graph_nodes(struct load *load)
{
    struct graphs *g = &load->process->graphs;
    const uint64_t *op = load_column(load, COL_graph_node_op), *time = load_column(load, COL_graph_node_time);
    const uint64_t *node = load_column(load, COL_graph_node_node);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        g->node = mem_grow(g->node, &g->node_capacity, g->nodes + 1, sizeof *g->node);
        uint32_t call = (uint32_t)g->nodes;
        g->node[g->nodes++] = (struct graph_node){.call = call,
                                                  .number = node[i],
                                                  .time = (int64_t)time[i],
                                                  .thread = load->piece->thread,
                                                  .op = op[i] ? load_name(load, op[i]) : NAME_NONE};
    }
}

void load_graph_sources(struct load *load)
{
    struct graphs *g = &load->process->graphs;
    const uint64_t *graph = load_column(load, COL_graph_source_graph), *time = load_column(load, COL_graph_source_time);
    const uint64_t *source = load_column(load, COL_graph_source_source);
    const uint64_t *relation = load_column(load, COL_graph_source_relation);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        g->source = mem_grow(g->source, &g->source_capacity, g->sources + 1, sizeof *g->source);
        g->source[g->sources++] =
            (struct graph_source){(int64_t)time[i], (uint32_t)graph[i], (uint32_t)source[i], (uint32_t)relation[i]};
    }
}

void load_graph_run(struct load *load, size_t work, uint64_t graph)
{
    struct graphs *g = &load->process->graphs;
    g->run = mem_grow(g->run, &g->run_capacity, g->runs + 1, sizeof *g->run);
    g->run[g->runs++] = (struct graph_run){work, (uint32_t)graph};
}

void graphs_add_work(struct graphs *g, size_t work, uint64_t graph, uint64_t node)
{
    if (!graph) return;
    g->node_of_work = mem_grow(g->node_of_work, &g->work_capacity, work + 1, sizeof *g->node_of_work);
    for (; g->works < work; g->works++) g->node_of_work[g->works] = 0;
    g->node_of_work[g->works++] = node;
    if (node >> 32 && node >> 32 != graph) /* in a part of the launched graph */
        map_put(&g->whole_of, node >> 32, (uint32_t)graph);
}
