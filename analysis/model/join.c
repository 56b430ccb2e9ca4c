/* join.c - matches a wrapper's record of a call with the device library's record.
 *
 * Both records have the thread and the function. Their times differ by the wrapper's own cost and by the error of the
 * library's clock. So a span goes to the call of its thread and function with the largest overlap. If the clocks
 * differ so much that none overlaps, it goes to the nearest free call. The wrapper uses the clock of the stages, so
 * its times stand for both. Spans without a call (of a statically linked runtime, or without a wrapper) are calls of
 * their own.
 */
#include "model/join.h"

#include <stdlib.h>
#include <string.h>

static const int64_t SLACK = 20000; /* largest gap between a call and its span, ns */
enum { MOST_TOGETHER = 256 };       /* overlapping calls of one thread and function; no real program has more */

bool is_device_call(const struct func *func)
{
    return strcmp(func->library, "cuda") == 0 || strcmp(func->library, "cudart") == 0;
}

/* ---- sorted entries ---- */

struct entry {
    int64_t start, end;
    uint32_t thread, name, place;
    bool taken;
};

struct entries {
    struct entry *entry;
    size_t count;
};

static int by_function(const struct entry *x, const struct entry *y)
{
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    return (x->name > y->name) - (x->name < y->name);
}

static int by_function_and_time(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = by_function(x, y);
    return order ? order : (x->start > y->start) - (x->start < y->start);
}

static void sort_entries(struct entries *entries)
{
    if (entries->count) qsort(entries->entry, entries->count, sizeof *entries->entry, by_function_and_time);
}

/* Returns the name of a function, so that calls compare with spans. */
static uint32_t name_of(const struct func *func, struct names *names)
{
    return names_add(names, func->name, strlen(func->name));
}

static struct entries entries_of_calls(const struct process *p, struct names *names)
{
    const struct calls *c = &p->calls;
    struct entries found = {mem_zero(c->table.count, sizeof *found.entry), 0};
    uint32_t *name = mem_zero(p->funcs, sizeof *name); /* NAME_NONE: not a device library's */
    for (size_t i = 0; i < p->funcs; i++)
        name[i] = is_device_call(&p->func[i]) ? name_of(&p->func[i], names) : NAME_NONE;
    for (size_t i = 0; i < c->table.count; i++) {
        if (name[c->func[i]] != NAME_NONE) {
            found.entry[found.count++] =
                (struct entry){c->start[i], c->end[i], c->thread[i], name[c->func[i]], (uint32_t)i, false};
        }
    }
    free(name);
    sort_entries(&found);
    return found;
}

static struct entries entries_of_spans(const struct process *p)
{
    const struct spans *s = &p->spans;
    struct entries found = {mem_zero(s->table.count, sizeof *found.entry), 0};
    for (size_t i = 0; i < s->table.count; i++) {
        if (s->event_class[i] == CLASS_API) {
            found.entry[found.count++] =
                (struct entry){s->start[i], s->end[i], s->thread[i], s->name[i], (uint32_t)i, false};
        }
    }
    sort_entries(&found);
    return found;
}

/* ---- matching ---- */

/* Returns the overlap of both; a negative value is the gap between them. */
static int64_t together(const struct entry *x, const struct entry *y)
{
    return MIN(x->end, y->end) - MAX(x->start, y->start);
}

/* Returns the first remaining call from `k` on, and shortens the path to it. */
static size_t next_left(uint32_t *left, size_t k)
{
    while (left[k] != k) {
        left[k] = left[left[k]];
        k = left[k];
    }
    return k;
}

/* Returns the best call for a span, or NULL. `from` is the first call of the span's thread and function. Calls that
 * are taken, or too early for this span and the following ones, are skipped for good. */
static struct entry *best_call(struct entries *calls, size_t from, uint32_t *left, const struct entry *span,
                               int64_t slack)
{
    struct entry *best = NULL;
    unsigned looked = 0;
    for (size_t k = next_left(left, from); k < calls->count && looked < MOST_TOGETHER; k = next_left(left, k + 1)) {
        struct entry *call = &calls->entry[k];
        if (by_function(call, span) != 0 || call->start - slack > span->end) break;
        if (call->taken || call->end + slack < span->start) {
            left[k] = (uint32_t)k + 1;
            continue;
        }
        looked++;
        if (!best || together(call, span) > together(best, span)) best = call;
    }
    return best;
}

/* Assigns to each span that has no call yet one that is at most `slack` away. */
static void join_calls_and_spans(struct process *p, struct entries *calls, struct entries *spans, int64_t slack)
{
    size_t from = 0;
    /* By call: its own index while it remains, else a later call at or before the next one that does. */
    uint32_t *left = mem_zero(calls->count + 1, sizeof *left);
    for (size_t i = 0; i <= calls->count; i++) left[i] = (uint32_t)i;
    for (size_t i = 0; i < spans->count; i++) {
        struct entry *span = &spans->entry[i], *best;
        while (from < calls->count && by_function(&calls->entry[from], span) < 0) from++;
        best = span->taken ? NULL : best_call(calls, from, left, span, slack);
        if (best) {
            best->taken = span->taken = true;
            p->calls.span[best->place] = span->place;
            p->spans.start[span->place] = best->start;
            p->spans.end[span->place] = best->end;
        }
    }
    free(left);
}

void join_calls(struct process *process, struct names *names)
{
    if (!process->calls.table.count || !process->spans.table.count) return;
    struct entries calls = entries_of_calls(process, names), spans = entries_of_spans(process);
    join_calls_and_spans(process, &calls, &spans, 0);
    join_calls_and_spans(process, &calls, &spans, SLACK);
    free(calls.entry);
    free(spans.entry);
}

/* ---- every call once ---- */

static bool is_asked_for(const struct func *func)
{
    return is_device_call(func) || strcmp(func->library, "nccl") == 0;
}

bool *joined_spans(const struct process *process)
{
    const struct calls *c = &process->calls;
    bool *joined = mem_zero(process->spans.table.count, sizeof *joined);
    for (size_t i = 0; i < c->table.count; i++)
        if (c->span[i] != NO_PLACE) joined[c->span[i]] = true;
    return joined;
}

void made_calls_init(struct made_calls *made, const struct process *process, struct names *names)
{
    *made = (struct made_calls){.process = process, .names = names, .joined = joined_spans(process)};
}

bool made_calls_next(struct made_calls *made, struct made_call *call)
{
    const struct process *p = made->process;
    const struct calls *c = &p->calls;
    const struct spans *s = &p->spans;
    while (made->next_call < c->table.count) {
        size_t i = made->next_call++;
        const struct func *func = &p->func[c->func[i]];
        if (is_asked_for(func)) {
            *call = (struct made_call){
                name_of(func, made->names), c->thread[i], c->start[i], c->end[i], (uint32_t)i, c->span[i]};
            return true;
        }
    }
    while (made->next_span < s->table.count) {
        size_t i = made->next_span++;
        if (s->event_class[i] == CLASS_API && !made->joined[i]) {
            *call = (struct made_call){s->name[i], s->thread[i], s->start[i], s->end[i], NO_PLACE, (uint32_t)i};
            return true;
        }
    }
    return false;
}

void made_calls_free(struct made_calls *made)
{
    free(made->joined);
    *made = (struct made_calls){0};
}
