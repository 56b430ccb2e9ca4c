/* scope.c - makes what all questions of a run share of a process, once. */
#include "ask/scope.h"

#include <stdlib.h>

#include "model/needs/guard.h"

void scope_init(struct scope *scope, const struct selection *chosen, const struct process *process, struct needs needs)
{
    guard_lift(process);
    *scope = (struct scope){.chosen = chosen, .process = process, .needs = needs};
    choice_init(&scope->choice, chosen, process);
    guard_again(process);
}

void scope_free(struct scope *scope)
{
    choice_free(&scope->choice);
    left_out_free(&scope->left_out);
    attribution_free(&scope->attribution);
}

const struct attribution *scope_attribute(struct scope *scope)
{
    if (scope->attribution.process) return &scope->attribution;
    guard_lift(scope->process);
    attribute(&scope->attribution, scope->process, scope->needs);
    choice_attribute(&scope->choice, scope->chosen, &scope->attribution);
    guard_again(scope->process);
    return &scope->attribution;
}

const struct left_out *scope_left_out(struct scope *scope)
{
    if (scope->has_left_out) return &scope->left_out;
    scope->has_left_out = true;
    if (choice_needs_launches(scope->chosen->options, scope->process)) scope_attribute(scope);
    guard_lift(scope->process);
    left_out_init(&scope->left_out, &scope->choice);
    guard_again(scope->process);
    return &scope->left_out;
}

void scope_left_rows(struct scope *scope, struct left_rows *rows)
{
    const struct left_out *left = scope_left_out(scope);
    const struct choice *choice = &scope->choice;
    bool by_launch = choice_needs_launches(scope->chosen->options, scope->process);
    struct interval work = {INT64_MAX, INT64_MIN}, when;
    for (size_t i = 0; i < scope->process->works.table.count && left->count; i++) {
        if (!choice_work(choice, i, &when) || (by_launch && !choice_in_stage(choice, &scope->attribution.work[i])))
            continue;
        work = (struct interval){MIN(work.start, when.start), MAX(work.end, when.end)};
    }
    left_rows_add(rows, scope->process, left, work);
}

struct scope *scope_begin(const struct selection *chosen, size_t number)
{
    struct scope **place = &chosen->scope[number];
    if (!*place) {
        *place = mem_zero(1, sizeof **place);
        scope_init(*place, chosen, chosen->process[number], chosen->needs);
        (*place)->place = place;
    }
    return *place;
}

static void forget(struct scope **place)
{
    if (*place) scope_free(*place);
    free(*place);
    *place = NULL;
}

void scope_end(struct scope *scope)
{
    if (scope->chosen->options->questions < 2) forget(scope->place);
}

void scopes_forget(const struct selection *chosen)
{
    for (size_t i = 0; i < chosen->processes; i++) forget(&chosen->scope[i]);
}
