/* whole_stages.c - the stages of a whole run of TFI_MODE=flight, by the library's sums. */
#include "ask/stages/whole_stages.h"

#include "model/host/whole_run.h"

static bool asks_for_single_times(const struct options *o)
{
    return o->step.count || o->cycle.count || o->device.count || o->stream.count || !without_window(o);
}

static void add_sum(struct stage_table *table, int64_t group, const struct whole_sum *sum)
{
    enum { KEY = offsetof(struct stage_row, name) + sizeof sum->name };
    const struct {
        int64_t group;
        uint32_t name;
    } key = {group, sum->name};
    struct stage_row *row = keyed_row(&table->keyed, &key, KEY, sizeof *row);
    row->place = (size_t)(row - table->row);
    row->whole = sum;
    row->of_whole_run = true;
    row->parent = row->elsewhere = NAME_NONE;
    row->done_unknown = row->cpu_unknown = row->work_unknown = true;
    row->calls += sum->count;
    row->wall = add_ns(row->wall, sum->sum - sum->again);
}

bool stages_add_whole(struct stage_table *table, const struct scope *scope, int64_t group)
{
    const struct whole_run *run = whole_run_of(scope->process, TFI_AGGREGATE_STAGE);
    if (!run || table->exclusive || asks_for_single_times(scope->chosen->options)) return false;
    for (size_t i = 0; i < run->sums; i++) {
        const struct whole_sum *sum = &run->sum[i];
        if (sum->what != TFI_AGGREGATE_STAGE) continue;
        if (sum->name == NAME_NONE) table->calls_of_others += sum->count;
        else if (wants_stage(scope->chosen->options, model_name(scope->chosen->model, sum->name)))
            add_sum(table, group, sum);
    }
    return true;
}
