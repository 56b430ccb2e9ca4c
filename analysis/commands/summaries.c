/* summaries.c - takes the summaries of processes, one by one while they are read, or from a loaded model. */
#include "commands/summaries.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "ask/comm/taken.h"
#include "ask/critical/critical.h"
#include "ask/device/idle.h"
#include "ask/diff/taken.h"
#include "ask/device/queue.h"
#include "ask/io/taken.h"
#include "ask/steps/steps.h"
#include "ask/hang/taken.h"
#include "ask/timeline.h"
#include "base/jobs.h"

/* The reduction of each command; NULL: it needs the whole model. */
static const struct reduction *const reductions[NR_COMMANDS] = {
#define COMMAND(name, function, answers, keys, takes, reduction, refuses) [COMMAND_##function] = reduction,
#include "commands.def"
#undef COMMAND
};

bool summaries_suffice(const struct options *options)
{
    bool suffice = true;
    for (size_t i = 0; i < options->questions; i++) {
        const struct reduction *r = reductions[options->question[i]];
        suffice &= r && r->stands_alone(options);
    }
    return suffice;
}

unsigned summaries_want(const struct options *options)
{
    unsigned want = 0;
    for (size_t i = 0; i < options->questions; i++) {
        const struct reduction *r = reductions[options->question[i]];
        want |= r ? r->wants(options) : 0;
    }
    return want;
}

void summaries_init(struct summaries *s, const struct options *options, struct model *model, size_t inputs)
{
    *s = (struct summaries){.options = options, .model = model, .inputs = inputs};
    pthread_mutex_init(&s->lock, NULL);
    for (size_t i = 0; i < options->questions; i++)
        if (reductions[options->question[i]])
            s->of_input[options->question[i]] = mem_zero(inputs, sizeof *s->of_input[0]);
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
static void drop(struct summaries *s, enum command_id question, size_t input)
{
    void **place = &s->of_input[question][input];
    if (*place) reductions[question]->free(*place);
    *place = NULL;
}

void summaries_take(void *summaries, size_t input, const struct process *process)
{
    struct summaries *s = summaries;
    if (!wants_process(s->options, process)) return;
    struct selection alone = borrow(s);
    selection_set(&alone, process);
    for (size_t i = 0; i < s->options->questions; i++) {
        enum command_id question = s->options->question[i];
        drop(s, question, input);
        s->of_input[question][input] = reductions[question]->take(&alone, process);
    }
    give_back(s, &alone);
}

/* ---- from a loaded model ---- */

struct taking {
    const struct selection *chosen;
    const struct reduction *reduction;
    void **of_input;
    atomic_size_t next;
};

static void *take_some(void *argument)
{
    struct taking *t = argument;
    size_t i;
    while ((i = atomic_fetch_add(&t->next, 1)) < t->chosen->processes) {
        const struct process *p = t->chosen->process[i];
        t->of_input[p->input] = t->reduction->take(t->chosen, p);
    }
    return NULL;
}

void summaries_take_all(struct summaries *s, enum command_id question, const struct selection *chosen)
{
    struct taking t = {.chosen = chosen, .reduction = reductions[question], .of_input = s->of_input[question]};
    jobs_run(s->options->jobs, chosen->processes, take_some, &t);
}

void summaries_free(struct summaries *s)
{
    for (unsigned question = 0; question < NR_COMMANDS; question++) {
        for (size_t i = 0; s->of_input[question] && i < s->inputs; i++) drop(s, (enum command_id)question, i);
        free(s->of_input[question]);
    }
    for (size_t i = 0; i < s->alones; i++) selection_free(&s->alone[i]);
    free(s->alone);
    *s = (struct summaries){0};
}
