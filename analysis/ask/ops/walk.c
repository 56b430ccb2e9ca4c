/* walk.c - hands over the operators of a process one by one, whether it holds them or they are in its file. */
#include "ask/ops/walk.h"

static void begin_walk(struct op_walk *walk, const struct process *process, const struct options *options,
                       struct names *names, const struct intervals *when)
{
    const struct sweep_wants wants = {.ops = true, .op_scopes = true, .when = when};
    *walk = (struct op_walk){.process = process};
    if (!process->in_file.trace) return;
    walk->sweep = sweep_open(process, names, wants, options->jobs != 1);
}

void op_walk_begin(struct op_walk *walk, const struct process *process, const struct attribution *attribution,
                   const struct options *options, struct names *names)
{
    begin_walk(walk, process, options, names, NULL);
    walk->attribution = attribution;
}

void op_walk_window(struct op_walk *walk, const struct choice *choice, struct names *names)
{
    struct intervals when = {0};
    intervals_add(&when, choice->window.from, choice->window.to);
    begin_walk(walk, choice->process, choice->options, names, &when);
    walk->attribution = choice->attribution;
    intervals_free(&when);
}

static bool next_swept(struct op_walk *walk, struct walked_op *op)
{
    struct swept swept;
    if (!sweep_next(walk->sweep, &swept)) return false;
    const struct swept_op *from = swept.op;
    uint32_t stage = walk->attribution ? stage_at(&walk->attribution->finder, from->thread, from->start) : NO_PLACE;
    *op = (struct walked_op){.start = from->start,
                             .end = from->end,
                             .name = from->name,
                             .thread = from->thread,
                             .scope = from->scope,
                             .at = {from->start, stage, VIA_NONE}};
    return true;
}

static bool next_held(struct op_walk *walk, struct walked_op *op)
{
    const struct spans *s = &walk->process->spans;
    while (walk->next < s->table.count && s->event_class[walk->next] != CLASS_OPERATOR) walk->next++;
    if (walk->next == s->table.count) return false;
    size_t i = walk->next++;
    bool known = walk->attribution && walk->attribution->span;
    *op = (struct walked_op){.start = s->start[i],
                             .end = s->end[i],
                             .name = s->name[i],
                             .thread = s->thread[i],
                             .scope = op_details_of(&s->details, i)->scope,
                             .at = known ? walk->attribution->span[i]
                                         : (struct belonging){s->start[i], NO_PLACE, VIA_NONE}};
    return true;
}

bool op_walk_next(struct op_walk *walk, struct walked_op *op)
{
    return walk->sweep ? next_swept(walk, op) : next_held(walk, op);
}

void op_walk_end(struct op_walk *walk)
{
    if (walk->sweep) sweep_close(walk->sweep);
}
