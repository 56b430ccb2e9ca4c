/* scope.c - chooses calls on files by time, stage, step and cycle. */
#include "ask/io/scope.h"

#include "ask/stages/order.h"

void io_scope_init(struct io_scope *scope, const struct selection *chosen, const struct process *process)
{
    const struct options *o = chosen->options;
    *scope = (struct io_scope){.chosen = chosen, .process = process, .by_stage = o->stage.count != 0};
    bool by_name = o->stage.count || o->step.count || o->cycle.count;
    scope->by_launch = choice_needs_launches(o, process);
    if (scope->by_launch) attribute(&scope->attribution, process, 0);
    choice_init(&scope->choice, chosen, process, scope->by_launch ? &scope->attribution : NULL);
    if (by_name && !has_stages(process)) scope->borrowed = open_times_of(chosen, process->rank);
    if (scope->borrowed && !scope->borrowed->has_stages) scope->borrowed = NULL;
    if (!scope->borrowed && scope->by_stage) stage_finder_init(&scope->finder, process, &scope->attribution);
}

void io_scope_free(struct io_scope *scope)
{
    if (!scope->borrowed && scope->by_stage) stage_finder_free(&scope->finder);
    choice_free(&scope->choice);
    if (scope->by_launch) attribution_free(&scope->attribution);
    map_free(&scope->waiting);
}

bool io_scope_has(const struct io_scope *scope, uint32_t thread, int64_t start)
{
    if (scope->borrowed) {
        return start >= scope->choice.window.from && start < scope->choice.window.to &&
               measure_between(&scope->borrowed->in_open, start, add_ns(start, 1)) > 0;
    }
    if (!choice_moment(&scope->choice, start, start)) return false;
    if (!scope->by_stage) return true;
    const struct belonging at = {start, stage_at(&scope->finder, thread, start), VIA_THREAD};
    return choice_in_stage(&scope->choice, &at);
}
