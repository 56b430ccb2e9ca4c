/* io_choice.c - chooses calls on files by time, stage, step and cycle. */
#include "ask/io/io_choice.h"

#include "ask/stages/order.h"

void io_scope_init(struct io_scope *scope, struct scope *of)
{
    const struct options *o = of->chosen->options;
    bool by_name = o->stage.count || o->step.count || o->cycle.count;
    *scope = (struct io_scope){.chosen = of->chosen, .process = of->process, .choice = &of->choice};
    if (choice_needs_launches(o, of->process)) scope->attribution = scope_attribute(of);
    if (by_name && !has_stages(of->process)) scope->borrowed = open_times_of(of->chosen, of->process->rank);
    if (scope->borrowed && !scope->borrowed->has_stages) scope->borrowed = NULL;
}

void io_scope_free(struct io_scope *scope)
{
    map_free(&scope->waiting);
}

bool io_scope_has(const struct io_scope *scope, uint32_t thread, int64_t start)
{
    if (scope->borrowed) {
        return start >= scope->choice->window.from && start < scope->choice->window.to &&
               measure_between(&scope->borrowed->in_open, start, add_ns(start, 1)) > 0;
    }
    if (!choice_moment(scope->choice, start, start)) return false;
    if (!scope->choice->by_stage) return true;
    const struct belonging at = {start, stage_at(&scope->attribution->finder, thread, start), VIA_THREAD};
    return choice_in_stage(scope->choice, &at);
}
