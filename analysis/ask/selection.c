/* selection.c - chooses processes by --rank and --pid, and names of stages by --stage. */
#include "ask/selection.h"

#include <stdlib.h>

#include "ask/scope.h"
#include "base/command.h"

#define STAGE_UNKNOWN (NO_PLACE - 1) /* in `stages`: not compared with --stage yet */

static void choose_processes(struct selection *s)
{
    s->process = mem_zero(s->model->processes, sizeof *s->process);
    s->scope = mem_zero(s->model->processes, sizeof *s->scope);
    for (size_t i = 0; i < s->model->processes; i++) {
        const struct process *p = &s->model->process[i];
        if (!wants_process(s->options, p)) continue;
        s->process[s->processes++] = p;
        s->last = p->has_time ? MAX(s->last, p->last) : s->last;
    }
}

static void choose_stage(struct selection *s, uint32_t name)
{
    s->stages[name] = wants_stage(s->options, model_name(s->model, name)) ? 0 : NO_PLACE;
}

static void choose_stages(struct selection *s)
{
    size_t names = s->model->names.count, known = s->stages_known;
    if (!s->options->stage.count) return;
    s->stages = mem_grow(s->stages, &s->stages_known, names, sizeof *s->stages);
    for (; known < s->stages_known; known++) s->stages[known] = STAGE_UNKNOWN;
    choose_stage(s, NAME_RUN);
    choose_stage(s, NAME_OUTSIDE);
    for (size_t i = 0; i < s->processes; i++) {
        const struct ranges *r = &s->process[i]->ranges;
        for (size_t k = 0; k < r->table.count; k++)
            if (s->stages[r->name[k]] == STAGE_UNKNOWN) choose_stage(s, r->name[k]);
    }
}

static struct shared_once *shared_init(void)
{
    struct shared_once *shared = mem_zero(1, sizeof *shared);
    pthread_mutex_init(&shared->lock, NULL);
    return shared;
}

static void shared_free(struct shared_once *shared)
{
    if (shared && shared->data) shared->free(shared->data);
    free(shared);
}

struct needs needs_of(const struct options *options)
{
    struct needs needs = {0};
    for (size_t i = 0; i < options->questions; i++)
        needs = needs_union(needs, definition_of(options->question[i], options)->needs(options));
    return needs;
}

void selection_init(struct selection *selection, const struct options *options, const struct inputs *inputs,
                    struct model *model)
{
    *selection = (struct selection){.options = options, .inputs = inputs, .model = model, .last = INT64_MIN};
    selection->needs = needs_of(options);
    selection->open_stages = shared_init();
    selection->compat = shared_init();
    choose_processes(selection);
    choose_stages(selection);
}

void selection_set(struct selection *selection, const struct process *process)
{
    scopes_forget(selection);
    selection->process[0] = process;
    selection->processes = 1;
    choose_stages(selection);
}

void selection_free(struct selection *selection)
{
    scopes_forget(selection);
    free(selection->scope);
    free(selection->process);
    free(selection->stages);
    shared_free(selection->open_stages);
    shared_free(selection->compat);
    *selection = (struct selection){0};
}
