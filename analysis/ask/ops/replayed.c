/* replayed.c - adds the work of replayed graphs to rows of the operators that were captured. */
#include "ask/ops/replayed.h"

#include "base/hash.h"
#include "model/graphs.h"
#include "model/replays/captured_ops.h"

static const struct graph_node *node_of(const struct process *process, size_t work)
{
    const struct graphs *g = &process->graphs;
    bool is_matched = g->matched && g->matched[work] < (uint32_t)NOT_MATCHED;
    return is_matched ? &g->node[g->matched[work]] : NULL;
}

void replayed_ops_count(struct op_rows *rows, const struct process *process)
{
    const struct graphs *g = &process->graphs;
    for (size_t i = 0; g->matched && i < process->works.table.count; i++) {
        if (g->matched[i] == (uint32_t)NOT_REPLAYED) continue;
        bool known = is_of_capture(process, i);
        rows->replayed.known = true;
        rows->replayed.works++;
        rows->replayed.unknown += !known;
        rows->replayed.by_order += known && node_of(process, i)->by_order;
    }
}

bool is_of_capture(const struct process *process, size_t work)
{
    const struct graph_node *node = node_of(process, work);
    return node && node->is_given && node->call != NO_PLACE;
}

void replayed_ops_add(struct replayed_ops *r, size_t number, const struct addition *work, size_t process)
{
    const struct group_ops *group = &r->rows->chosen->options->group_ops;
    const struct captured_op *op = r->process->graphs.calls->op;
    struct addition addition = *work;
    for (uint32_t at = node_of(r->process, number)->call; at != NO_PLACE; at = op[at].parent) {
        const struct op_detail *detail = &op[at].detail;
        uint64_t call = hash_numbers(r->process->works.correlation[number], at);
        addition.name = op[at].name;
        addition.shapes = group->shapes ? op_flat_shapes(r->rows, detail->shapes) : NAME_NONE;
        addition.modules = group->modules ? detail->modules : NAME_NONE;
        addition.stack = group->stack ? op_first_frames(r->rows, detail->stack) : NAME_NONE;
        addition.on_device = addition.is_annotation = false;
        addition.is_call = map_get(&r->seen, call) == MAP_NONE;
        if (addition.is_call) map_put(&r->seen, call, 1);
        size_t row = op_row_of(r->rows, &addition);
        op_row_add(r->rows, row, &addition, process);
        op_row_add_us(&r->rows->row[row], &addition.us);
        addition.own.device = 0;
        addition.us.own_device = 0;
    }
}

void replayed_ops_free(struct replayed_ops *r)
{
    map_free(&r->seen);
}
