/* summaries.c - takes the summaries of processes, one by one while they are read, or from a loaded model. */
#include "commands/summaries.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/command.h"
#include "base/jobs.h"
#include "model/needs/guard.h"

bool summaries_suffice(const struct options *options)
{
    bool suffice = true;
    for (size_t i = 0; i < options->questions; i++) {
        const struct reduction *r = definition_of(options->question[i], options)->reduction;
        suffice &= r && r->stands_alone(options);
    }
    return suffice;
}

void summaries_init(struct summaries *s, const struct options *options, struct model *model, size_t inputs)
{
    *s = (struct summaries){.options = options, .model = model, .inputs = inputs};
    pthread_mutex_init(&s->lock, NULL);
    s->questions = options->questions;
    s->question = mem_zero(s->questions, sizeof *s->question);
    for (size_t i = 0; i < s->questions; i++) {
        s->question[i].command = options->question[i];
        s->question[i].reduction = definition_of(options->question[i], options)->reduction;
        if (s->question[i].reduction) s->question[i].of_input = mem_zero(inputs, sizeof *s->question[i].of_input);
    }
}

/* Lets the question read what it needs of the process. */
static void *take(const struct question_summaries *question, struct scope *scope)
{
    const struct command *command = question->command;
    const struct options *options = scope->chosen->options;
    guard_tables(scope->process, 1, definition_of(command, options)->needs(options), command->name);
    return question->reduction->take(scope);
}

/* ---- while the inputs are read ---- */

/* Returns a selection that no other thread uses. Few are made, because each compares every name of a stage once. */
static struct selection borrow(struct summaries *s)
{
    struct selection alone = {0};
    mem_hold(&s->lock);
    if (s->alones) alone = s->alone[--s->alones];
    mem_release(&s->lock);
    if (!alone.process) selection_init(&alone, s->options, NULL, s->model);
    return alone;
}

static void give_back(struct summaries *s, const struct selection *alone)
{
    mem_hold(&s->lock);
    s->alone = mem_grow(s->alone, &s->capacity, s->alones + 1, sizeof *s->alone);
    s->alone[s->alones++] = *alone;
    mem_release(&s->lock);
}

/* Frees the summary of an earlier attempt, which ran out of memory. */
static void drop(const struct question_summaries *question, size_t input)
{
    void **place = &question->of_input[input];
    if (*place) question->reduction->free(*place);
    *place = NULL;
}

void summaries_take(void *summaries, size_t input, const struct process *process)
{
    struct summaries *s = summaries;
    if (!wants_process(s->options, process)) return;
    struct selection alone = borrow(s);
    selection_set(&alone, process);
    for (size_t i = 0; i < s->questions; i++) {
        drop(&s->question[i], input);
        s->question[i].of_input[input] = take(&s->question[i], scope_begin(&alone, 0));
    }
    scopes_forget(&alone);
    give_back(s, &alone);
}

/* ---- from a loaded model ---- */

struct taking {
    const struct selection *chosen;
    const struct question_summaries *question;
    atomic_size_t next;
};

static void *take_some(void *argument)
{
    struct taking *t = argument;
    size_t i;
    while ((i = atomic_fetch_add(&t->next, 1)) < t->chosen->processes) {
        struct scope *scope = scope_begin(t->chosen, i);
        t->question->of_input[scope->process->input] = take(t->question, scope);
        scope_end(scope);
    }
    return NULL;
}

struct question_summaries *summaries_of_command(const struct summaries *s)
{
    size_t i = 0;
    while (s->options->question[i] != s->options->command) i++;
    return &s->question[i];
}

void summaries_take_all(const struct question_summaries *question, const struct selection *chosen)
{
    struct taking t = {.chosen = chosen, .question = question};
    jobs_run(chosen->options->jobs, chosen->processes, take_some, &t);
}

void summaries_free(struct summaries *s)
{
    for (size_t question = 0; question < s->questions; question++) {
        const struct question_summaries *q = &s->question[question];
        for (size_t i = 0; q->of_input && i < s->inputs; i++) drop(q, i);
        free(q->of_input);
    }
    free(s->question);
    for (size_t i = 0; i < s->alones; i++) selection_free(&s->alone[i]);
    free(s->alone);
    *s = (struct summaries){0};
}
