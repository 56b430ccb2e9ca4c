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
