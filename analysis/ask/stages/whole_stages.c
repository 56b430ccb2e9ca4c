/* whole_stages.c - the stages of a whole run of TFI_MODE=flight, by the library's sums. */
#include "ask/stages/whole_stages.h"

#include "model/host/whole_run.h"

static bool has_sums(const struct scope *scope, bool exclusive)
{
    const struct options *o = scope->chosen->options;
    const struct ring *ring = &scope->process->ring;
    bool filtered = o->step.count || o->cycle.count || o->device.count || o->stream.count || !without_window(o);
    if (!ring->chunks || !ring->whole || filtered || exclusive) return false;
    for (size_t i = 0; i < ring->whole->sums; i++)
        if (ring->whole->sum[i].what == TFI_AGGREGATE_STAGE) return true;
    return false;
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
    row->whole = row->calls ? NULL : sum;
    row->of_whole_run = true;
    row->parent = row->elsewhere = NAME_NONE;
    row->done_unknown = row->cpu_unknown = row->work_unknown = true;
    row->calls += sum->count;
    row->wall = add_ns(row->wall, sum->sum - sum->again);
}

bool stages_add_whole(struct stage_table *table, const struct scope *scope, int64_t group)
{
    if (!has_sums(scope, table->exclusive)) return false;
    const struct whole_run *run = scope->process->ring.whole;
    for (size_t i = 0; i < run->sums; i++) {
        const struct whole_sum *sum = &run->sum[i];
        if (sum->what != TFI_AGGREGATE_STAGE) continue;
        if (sum->name == NAME_NONE) table->calls_of_others += sum->count;
        else if (wants_stage(scope->chosen->options, model_name(scope->chosen->model, sum->name)))
            add_sum(table, group, sum);
    }
    return true;
}
