/* functions.c - collects the functions of libtorch that have a number, and finds their device work. */
#include "ask/execution/functions.h"

#include <stdlib.h>

#include "base/hash.h"
#include "read/kineto.h"

/* ---- collecting ---- */

static struct function_call *add(struct functions *f)
{
    f->call = mem_grow(f->call, &f->capacity, f->count + 1, sizeof *f->call);
    f->call[f->count] = (struct function_call){.around = NO_PLACE};
    return &f->call[f->count++];
}

void functions_of_executions(struct functions *f, const struct process *process, const struct trace *trace,
                             const struct executions *executions)
{
    struct map begun = {0};
    struct clock clock = process->clock; /* a copy, as the conversion keeps a hint in it */
    *f = (struct functions){0};
    for (uint32_t i = 0; i < executions->edges; i++) {
        const struct function_edge *end = &executions->edge[i];
        uint32_t at = end->is_end ? map_get(&begun, end->handle) : MAP_NONE;
        if (!end->is_end) map_put(&begun, end->handle, i);
        if (at == MAP_NONE) continue;
        const struct function_edge *begin = &executions->edge[at];
        const struct string *name = strings_get(&trace->strings, begin->string);
        struct function_call *call = add(f);
        call->number = begin->handle;
        call->name = name ? hash_text(name->text, name->length) : 0;
        call->start = clock_ns(&clock, begin->time);
        call->end = MAX(clock_ns(&clock, end->time), call->start);
        call->thread = begin->serial;
        map_remove(&begun, end->handle);
    }
    map_free(&begun);
}

/* The second reading of a PyTorch trace. */
struct again {
    struct functions *functions;
    const struct process *process;
    struct map span, range; /* by number of an event: index in spans, in ranges */
    uint32_t events;
};

static void on_event(void *context, const struct kineto_event *event)
{
    struct again *again = context;
    const struct process *p = again->process;
    uint32_t number = again->events, span = map_get(&again->span, number), range = map_get(&again->range, number);
    int64_t function;
    again->events += again->events < NO_PLACE - 1;
    if (span == MAP_NONE && range == MAP_NONE) return;
    if (!json_int(json_member(event->args, "Record function id"), &function) || function <= 0) return;
    struct function_call *call = add(again->functions);
    call->number = (uint64_t)function;
    call->name =
        slice_is(event->name, "unknown") ? 0 : hash_text(event->name.at ? event->name.at : "", event->name.length);
    call->start = span != MAP_NONE ? p->spans.start[span] : p->ranges.start[range];
    call->end = MAX(span != MAP_NONE ? p->spans.end[span] : p->ranges.end[range], call->start);
    call->thread = span != MAP_NONE ? p->spans.thread[span] : p->ranges.thread[range];
}

void functions_of_kineto(struct functions *f, const struct process *process)
{
    struct again again = {.functions = f, .process = process};
    struct kineto_sink sink = {.context = &again, .event = on_event};
    struct kineto_damage damage;
    struct notes notes = {0};
    const struct event_numbers *numbers = &process->numbers;
    *f = (struct functions){0};
    for (uint32_t i = 0; numbers->span && i < process->spans.table.count; i++)
        if (process->spans.event_class[i] == CLASS_OPERATOR) map_put(&again.span, numbers->span[i], i);
    for (uint32_t i = 0; numbers->range && i < process->ranges.table.count; i++)
        map_put(&again.range, numbers->range[i], i);
    kineto_read(process->path, &process->way, &sink, &damage, &notes, NULL); /* the first reading told the damage */
    notes_free(&notes);
    map_free(&again.span);
    map_free(&again.range);
}

/* ---- what is inside what ---- */

static int by_place(const void *a, const void *b)
{
    const struct function_call *x = a, *y = b;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    int order = outer_first(x->start, x->end, y->start, y->end);
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

static void nest(struct functions *f)
{
    int64_t *covered = mem_zero(f->count, sizeof *covered); /* until here the calls inside it were subtracted */
    uint32_t top = NO_PLACE;
    for (uint32_t i = 0; i < f->count; i++) {
        struct function_call *call = &f->call[i];
        while (top != NO_PLACE && (f->call[top].thread != call->thread || f->call[top].end < call->end))
            top = f->call[top].around;
        call->around = top;
        call->own = call->end - call->start;
        covered[i] = call->start;
        if (top != NO_PLACE) {
            f->call[top].own -= MAX(call->end - MAX(call->start, covered[top]), 0);
            covered[top] = MAX(covered[top], call->end);
        }
        top = i;
    }
    free(covered);
}

static void number(struct functions *f)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (map_get(&f->by_number, f->call[i].number) == MAP_NONE) map_put(&f->by_number, f->call[i].number, i);
        else f->doubled++;
}

/* ---- device work ---- */

/* A piece of work, the moment of its launch, and the call that was open then. */
struct owned {
    uint32_t thread, call, work;
    int64_t launch, start;
};

static int by_launch(const void *a, const void *b)
{
    const struct owned *x = a, *y = b;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    return (x->launch > y->launch) - (x->launch < y->launch);
}

static int by_call(const void *a, const void *b)
{
    const struct owned *x = a, *y = b;
    if (x->call != y->call) return x->call < y->call ? -1 : 1;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return x->work < y->work ? -1 : 1;
}

/* Finds the innermost call that was open at each launch; NO_PLACE: none. Walks over both in order, so that a call that
 * has ended is looked at once. */
static void find_calls(const struct functions *f, struct owned *owned, uint32_t count)
{
    uint32_t next = 0, top = NO_PLACE;
    for (uint32_t i = 0; i < count; i++) {
        struct owned *o = &owned[i];
        for (; next < f->count; top = next++) {
            const struct function_call *call = &f->call[next];
            if (call->thread > o->thread || (call->thread == o->thread && call->start > o->launch)) break;
        }
        while (top != NO_PLACE && f->call[top].thread == o->thread && f->call[top].end < o->launch)
            top = f->call[top].around;
        o->call = top != NO_PLACE && f->call[top].thread == o->thread ? top : NO_PLACE;
    }
}

static void give_works(struct functions *f, const struct process *p, const struct attribution *attribution)
{
    struct owned *owned = mem_zero(p->works.table.count, sizeof *owned);
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->works.table.count; i++) {
        if (!IS_WORK(p->works.event_class[i])) continue;
        uint32_t launch = attribution->launch[i];
        if (launch == NO_PLACE) f->outside++;
        else
            owned[count++] = (struct owned){.thread = p->spans.thread[launch],
                                            .work = i,
                                            .launch = p->spans.start[launch],
                                            .start = p->works.start[i]};
    }
    if (count) qsort(owned, count, sizeof *owned, by_launch);
    find_calls(f, owned, count);
    if (count) qsort(owned, count, sizeof *owned, by_call);
    for (; count && owned[count - 1].call == NO_PLACE; count--) f->outside++;
    f->work = mem_zero(count, sizeof *f->work);
    for (uint32_t i = 0; i < count; i++) {
        struct function_call *call = &f->call[owned[i].call];
        if (!call->works++) call->first = i;
        f->work[i] = owned[i].work;
    }
    free(owned);
}

void functions_link(struct functions *f, const struct process *process, const struct attribution *attribution)
{
    if (f->count) qsort(f->call, f->count, sizeof *f->call, by_place);
    nest(f);
    number(f);
    give_works(f, process, attribution);
}

void functions_free(struct functions *f)
{
    free(f->call);
    free(f->work);
    map_free(&f->by_number);
    *f = (struct functions){0};
}
