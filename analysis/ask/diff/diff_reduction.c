/* diff_reduction.c - sums up the device work, the operators or the stages of a process by name. */
#include "ask/diff/diff_reduction.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/diff/tree.h"
#include "ask/ops/walk.h"
#include "ask/stages/stage_table.h"

enum diff_by diff_by(const struct options *options)
{
    if (options->by != BY_NOT_GIVEN) return options->by;
    return isnan(options->gate) ? BY_KERNEL : BY_RUN;
}

/* Adds a call. */
static struct diff_item *take_call(struct diff_taken *taken, uint32_t name, enum diff_kind kind, int64_t time)
{
    uint64_t key = (uint64_t)kind << 32 | name;
    uint32_t place = map_get(&taken->places, key);
    if (place == MAP_NONE) {
        taken->item = mem_grow(taken->item, &taken->capacity, taken->count + 1, sizeof *taken->item);
        taken->item[taken->count] = (struct diff_item){.name = name, .kind = (uint8_t)kind};
        place = (uint32_t)taken->count++;
        map_put(&taken->places, key, place);
    }
    struct diff_item *item = &taken->item[place];
    item->calls++;
    item->time = add_ns(item->time, time);
    return item;
}

/* ---- device work and operators ---- */

static void take_works(struct diff_taken *taken, const struct choice *choice, struct work_kinds *kinds)
{
    const struct works *w = &choice->process->works;
    const struct attribution *a = choice->attribution;
    struct interval when;
    for (size_t i = 0; i < w->table.count; i++)
        if (choice_work(choice, i, &when) && (!a || choice_in_stage(choice, &a->work[i])))
            take_call(taken, w->name[i], (enum diff_kind)work_kind_of(kinds, choice->process, i),
                      when.end - when.start);
}

static void take_operators(struct diff_taken *taken, const struct choice *choice, struct names *names)
{
    const struct attribution *a = choice->attribution;
    struct op_walk walk;
    struct walked_op op;
    op_walk_window(&walk, choice, names);
    while (op_walk_next(&walk, &op))
        if (choice_moment(choice, op.start, op.at.time) && (!a || choice_in_stage(choice, &op.at)))
            take_call(taken, op.name, DIFF_OPERATOR, op.end - op.start);
    op_walk_end(&walk);
}

static void take_events(struct diff_taken *taken, struct scope *scope)
{
    struct names *names = &scope->chosen->model->names;
    struct work_kinds kinds;
    if (choice_needs_launches(scope->choice.options, scope->process)) scope_attribute(scope);
    struct left_rows left = {0};
    scope_left_rows(scope, &left);
    taken->unknown = left.any;
    left_rows_free(&left);
    work_kinds_init(&kinds, &exact_kinds, names);
    if (diff_by(scope->choice.options) == BY_OP) take_operators(taken, &scope->choice, names);
    else take_works(taken, &scope->choice, &kinds);
    work_kinds_free(&kinds);
}

/* ---- stages ---- */

static void take_stages(struct diff_taken *taken, const struct scope *scope)
{
    struct stage_table table = {.since = INT64_MIN};
    stages_add_times(&table, scope, 0, true);
    taken->has_stages = has_stages(scope->process);
    for (size_t i = 0; i < table.count; i++) {
        struct diff_item *item = take_call(taken, table.row[i].name, DIFF_STAGE, table.row[i].wall);
        item->calls = table.row[i].calls;
        item->last = table.row[i].last.time;
    }
    stages_free(&table);
}

static void take_tree(struct diff_taken *taken, struct scope *scope)
{
    struct left_rows left = {0};
    taken->tree = mem_zero(1, sizeof *taken->tree);
    tree_init(taken->tree);
    tree_take(taken->tree, scope);
    scope_left_rows(scope, &left);
    taken->unknown = left.any;
    left_rows_free(&left);
}

/* ---- the reduction ---- */

static void *reduce_diff(struct scope *scope)
{
    struct diff_taken *taken = mem_zero(1, sizeof *taken);
    if (diff_by(scope->chosen->options) == BY_TREE) take_tree(taken, scope);
    else if (diff_by(scope->chosen->options) == BY_STAGE) take_stages(taken, scope);
    else take_events(taken, scope);
    map_free(&taken->places);
    return taken;
}

static void free_taken(void *summary)
{
    struct diff_taken *taken = summary;
    if (taken->tree) tree_free(taken->tree);
    free(taken->tree);
    free(taken->item);
    free(taken);
}

struct needs diff_needs(const struct options *options)
{
    if (diff_by(options) == BY_STAGE) return (struct needs){.ranges = true};
    if (diff_by(options) == BY_OP)
        return (struct needs){.ranges = true,
                              .launches = true,
                              .device = true,
                              .operators = true,
                              .stages_of_spans = true,
                              .stream = is_filtered(options) ? STREAM_UNLINKED : STREAM_BY_TIME};
    if (diff_by(options) == BY_TREE) return tree_needs(options);
    return work_needs(options); /* warm-up, which is left out, depends on the launch */
}

const struct reduction diff_reduction = {without_window, reduce_diff, free_taken, NULL};
