/* selection.c - chooses processes by --rank and --pid, and names of stages by --stage. */
#include "ask/selection.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/scope.h"
#include "base/command.h"
#include "pattern.h"

#define STAGE_UNKNOWN (NO_PLACE - 1) /* in `stages`: not compared with --stage yet */

bool wants_process(const struct options *options, const struct process *process)
{
    return list_has(&options->rank, process->rank) && list_has(&options->pid, process->pid);
}

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

void selection_window(const struct selection *selection, int64_t *from, int64_t *to)
{
    const struct options *options = selection->options;
    int64_t start = selection->model->start;
    *from = INT64_MIN;
    *to = INT64_MAX;
    if (!isnan(options->from) && (double)start + options->from * 1e9 < 9e18)
        *from = start + (int64_t)llround(options->from * 1e9);
    else if (!isnan(options->from)) *from = INT64_MAX;
    if (!isnan(options->to) && (double)start + options->to * 1e9 < 9e18)
        *to = start + (int64_t)llround(options->to * 1e9);
}

bool wants_stage(const struct options *options, const char *name)
{
    const struct strings_list *globs = &options->stage;
    for (size_t i = 0; i < globs->count; i++)
        if (tfi_glob(globs->text[i], name, strlen(name), false)) return true;
    return globs->count == 0;
}

bool is_filtered(const struct options *o)
{
    return o->stage.count || o->step.count || o->cycle.count || o->device.count || o->stream.count || !isnan(o->from) ||
           !isnan(o->to);
}

bool without_window(const struct options *o)
{
    return isnan(o->from) && isnan(o->to);
}
