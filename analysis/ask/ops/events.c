/* events.c - sorts what a process holds: it puts the entries into buckets by their start, and sorts each bucket.
 *
 * A file has long stretches in order, so few entries of a bucket are out of place.
 */
#include "ask/ops/events.h"

#include <stdlib.h>
#include <string.h>

#include "ask/stages/order.h"
#include "model/join.h"
#include "model/ranges/step_ranges.h"

enum {
    FEW = 24,     /* at most so many entries are sorted by insertion */
    A_BUCKET = 8, /* entries to a bucket on average */
    MOST_BUCKETS = 1 << 22,
};

/* ---- names and threads ---- */

bool op_is_hidden(const char *name)
{
    static const char *const hidden[] = {"[memory]",
                                         "[OutOfMemory]",
                                         "profiler::_record_function_enter",
                                         "profiler::_record_function_enter_new",
                                         "profiler::_record_function_exit",
                                         "aten::is_leaf",
                                         "aten::output_nr",
                                         "aten::_version"};
    for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
        if (strcmp(name, hidden[i]) == 0) return true;
    return false;
}

/* Returns a flag per name: true for a hidden operator. */
static bool *hidden_names(const struct names *names)
{
    bool *hidden = mem_zero(names->count, sizeof *hidden);
    for (size_t i = 0; i < names->count; i++) {
        const char *text = names_get(names, (uint32_t)i)->text;
        hidden[i] = (*text == 'a' || *text == 'p' || *text == '[') && op_is_hidden(text);
    }
    return hidden;
}

/* Returns the main thread. torch puts device calls and profiler overhead that belong to no operator on the thread that
 * stopped the profiler, usually the main thread. */
static uint32_t main_thread(const struct process *process)
{
    for (size_t i = 0; i < process->threads; i++) {
        const struct thread *t = &process->thread[i];
        if (process->pid >= 0 && t->tid == (uint64_t)process->pid && (t->pid < 0 || t->pid == process->pid))
            return t->serial;
    }
    return NO_PLACE;
}

uint32_t op_event_name(const struct op_events *e, const struct op_event *event)
{
    const struct process *p = e->process;
    switch (event->kind) {
    case OP_STAGE: return range_full_name(p, event->place); /* torch folds no names but those of steps */
    case OP_CALL: {
        const struct func *func = &p->func[p->calls.func[event->place]];
        return names_add(e->names, func->name, strlen(func->name));
    }
    default: return p->spans.name[event->place];
    }
}

bool op_event_is_async(const struct op_events *e, const struct op_event *event)
{
    return event->kind == OP_STAGE && e->process->ranges.flags[event->place] & TFI_RANGE_ASYNC;
}

/* ---- entries ---- */

/* torch shows profiler overhead, and device calls of no operator, on the main thread. */
static bool is_of_main(const struct op_events *e, size_t span)
{
    const struct spans *s = &e->process->spans;
    return e->is_kineto && e->main != NO_PLACE &&
           (s->event_class[span] == CLASS_OVERHEAD ||
            (s->event_class[span] == CLASS_API && bits_have(&e->process->unlinked, span)));
}

struct op_event op_event_of(const struct op_events *e, uint32_t entry)
{
    const struct process *p = e->process;
    if (entry < e->spans) {
        const struct ranges *r = &p->ranges;
        return (struct op_event){r->start[entry], r->end[entry], r->thread[entry], entry, entry, OP_STAGE};
    }
    if (entry < e->calls) {
        const struct spans *s = &p->spans;
        uint32_t i = entry - e->spans, thread = is_of_main(e, i) ? e->main : s->thread[i];
        bool is_python = s->event_class[i] == CLASS_PYTHON;
        return (struct op_event){s->start[i], s->end[i], thread, entry, i, is_python ? OP_PYTHON : OP_SPAN};
    }
    if (entry < e->works) {
        const struct calls *c = &p->calls;
        uint32_t i = entry - e->calls;
        return (struct op_event){c->start[i], c->end[i], c->thread[i], entry, i, OP_CALL};
    }
    if (entry < e->blocks) {
        uint32_t i = entry - e->works;
        return (struct op_event){p->works.start[i], p->works.end[i], 0, entry, i, OP_WORK};
    }
    uint32_t i = entry - e->blocks;
    return (struct op_event){p->blocks.time[i], p->blocks.time[i], 0, UINT32_MAX, i, OP_BLOCK};
}

static int64_t start_of_op_event(const struct op_events *e, uint32_t entry)
{
    const struct process *p = e->process;
    return entry < e->spans    ? p->ranges.start[entry]
           : entry < e->calls  ? p->spans.start[entry - e->spans]
           : entry < e->works  ? p->calls.start[entry - e->calls]
           : entry < e->blocks ? p->works.start[entry - e->works]
                               : p->blocks.time[entry - e->blocks];
}

static int64_t end_of(const struct op_events *e, uint32_t entry)
{
    const struct process *p = e->process;
    return entry < e->spans    ? p->ranges.end[entry]
           : entry < e->calls  ? p->spans.end[entry - e->spans]
           : entry < e->works  ? p->calls.end[entry - e->calls]
           : entry < e->blocks ? p->works.end[entry - e->works]
                               : p->blocks.time[entry - e->blocks];
}

/* Calls `take` for each entry that is an event, device work or a block. */
static void each_entry(const struct op_events *e, void (*take)(void *context, uint32_t entry), void *context)
{
    const struct process *p = e->process;
    bool *hidden = hidden_names(e->names), *joined = p->calls.table.count ? joined_spans(p) : NULL;
    for (uint32_t i = 0; i < e->spans; i++)
        if (is_stage(&p->ranges, i)) take(context, i);
    for (uint32_t i = 0; i < p->spans.table.count; i++)
        if (!(joined && joined[i]) && !hidden[p->spans.name[i]]) take(context, e->spans + i);
    for (uint32_t i = 0; i < p->calls.table.count; i++)
        if (is_device_call(&p->func[p->calls.func[i]])) take(context, e->calls + i);
    for (uint32_t i = 0; i < p->works.table.count; i++) take(context, e->works + i);
    for (uint32_t i = 0; i < p->blocks.table.count; i++) take(context, e->blocks + i);
    free(hidden);
    free(joined);
}

/* ---- sorting ---- */

struct sorting {
    struct op_events *events;
    int64_t first, last; /* of all starts */
    unsigned shift;
    uint32_t *bucket; /* where its next entry goes; while counting: entries of the bucket before it */
    size_t buckets;
};

static int events_by_start(const void *a, const void *b, void *context)
{
    const struct op_events *e = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int nesting = outer_first(start_of_op_event(e, x), end_of(e, x), start_of_op_event(e, y), end_of(e, y));
    return nesting ? nesting : (x > y) - (x < y);
}

static void sort_bucket(struct op_events *e, uint32_t *entry, size_t count)
{
    if (count > FEW) {
        qsort_r(entry, count, sizeof *entry, events_by_start, e);
        return;
    }
    for (size_t i = 1; i < count; i++) {
        uint32_t one = entry[i];
        size_t at = i;
        for (; at && events_by_start(&entry[at - 1], &one, e) > 0; at--) entry[at] = entry[at - 1];
        entry[at] = one;
    }
}

static size_t bucket_of(const struct sorting *s, uint32_t entry)
{
    return (size_t)(((uint64_t)start_of_op_event(s->events, entry) - (uint64_t)s->first) >> s->shift);
}

static void note(void *context, uint32_t entry)
{
    struct sorting *s = context;
    int64_t start = start_of_op_event(s->events, entry);
    s->first = s->events->count ? MIN(s->first, start) : start;
    s->last = s->events->count ? MAX(s->last, start) : start;
    s->events->count++;
}

static void count_in_bucket(void *context, uint32_t entry)
{
    struct sorting *s = context;
    s->bucket[bucket_of(s, entry) + 1]++;
}

static void put_in_bucket(void *context, uint32_t entry)
{
    struct sorting *s = context;
    s->events->sorted[s->bucket[bucket_of(s, entry)]++] = entry;
}

static void sort(struct op_events *e)
{
    struct sorting s = {.events = e};
    each_entry(e, note, &s);
    uint64_t span = (uint64_t)s.last - (uint64_t)s.first;
    while (s.shift < 63 && span >> s.shift >= MIN(e->count / A_BUCKET + 1, MOST_BUCKETS)) s.shift++;
    s.buckets = (size_t)(span >> s.shift) + 1;
    s.bucket = mem_zero(s.buckets + 1, sizeof *s.bucket);
    each_entry(e, count_in_bucket, &s);
    for (size_t i = 1; i < s.buckets; i++) s.bucket[i] += s.bucket[i - 1];
    e->sorted = mem_resize(NULL, e->count, sizeof *e->sorted);
    each_entry(e, put_in_bucket, &s);
    for (size_t i = 0, from = 0; i < s.buckets; from = s.bucket[i++])
        sort_bucket(e, e->sorted + from, s.bucket[i] - from);
    free(s.bucket);
}

/* ---- the whole ---- */

void op_events_init(struct op_events *e, const struct process *p, struct names *names)
{
    *e = (struct op_events){.process = p, .names = names, .is_kineto = is_of_kineto(p)};
    e->main = main_thread(p);
    e->spans = (uint32_t)p->ranges.table.count;
    e->calls = e->spans + (uint32_t)(p->spans.table.count + p->in_file.ops);
    e->works = e->calls + (uint32_t)p->calls.table.count;
    e->blocks = e->works + (uint32_t)p->works.table.count;
    sort(e);
}

void op_events_free(struct op_events *e)
{
    free(e->sorted);
    *e = (struct op_events){0};
}
