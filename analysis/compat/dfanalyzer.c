/* dfanalyzer.c - answers io by the approximation of dftracer-analyzer 0.0.9: sums by second instead of intervals.
 *
 * Its summary of the layer POSIX (categories POSIX and STDIO) adds the calls up twice. First it adds the durations of
 * each function and thread by the second of the clock in which the middle of a call lies. Each of these sums then counts
 * in the second of its earliest call, counted from the first event of all traces. The time of the layer is the sum over
 * these seconds of the longest sum of one thread. Its size is the sum of the bytes that read and write functions
 * returned; failed calls count in the number of calls only. Frozen: it follows that release and gains nothing.
 */
#include "compat/dfanalyzer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/io/io_choice.h"
#include "ask/io/io_reduction.h"
#include "commands/io.h"

struct slice {
    int64_t second;
    uint32_t process, thread, function;
    int64_t earliest; /* start of the earliest call */
    int64_t total;    /* summed durations */
};

struct slices {
    struct slice *slice;
    size_t count, capacity;
    size_t settled; /* the first ones are sorted and distinct */
    uint64_t calls, bytes;
};

enum { SHORTEST_TAIL = 1024 };
static const int64_t second_ns = 1000000000;

static int64_t second_of(int64_t time)
{
    return time / second_ns - (time % second_ns < 0);
}

static int by_place(const void *a, const void *b)
{
    const struct slice *x = a, *y = b;
    if (x->second != y->second) return by_number(x->second, y->second);
    if (x->process != y->process) return by_number(x->process, y->process);
    return x->thread != y->thread ? by_number(x->thread, y->thread) : by_number(x->function, y->function);
}

static void settle_slices(struct slices *s)
{
    size_t kept = 0;
    if (s->settled == s->count) return;
    qsort(s->slice, s->count, sizeof *s->slice, by_place);
    for (size_t i = 0; i < s->count; i++) {
        struct slice *last = kept ? &s->slice[kept - 1] : NULL;
        if (last && by_place(last, &s->slice[i]) == 0) {
            last->total = add_ns(last->total, s->slice[i].total);
            last->earliest = MIN(last->earliest, s->slice[i].earliest);
        } else {
            s->slice[kept++] = s->slice[i];
        }
    }
    s->count = s->settled = kept;
}

static void add_slice(struct slices *s, struct slice slice)
{
    if (s->count - s->settled > s->settled + SHORTEST_TAIL) settle_slices(s);
    s->slice = mem_grow(s->slice, &s->capacity, s->count + 1, sizeof *s->slice);
    s->slice[s->count++] = slice;
}

static void add_call(struct slices *slices, const struct ios *ios, size_t call)
{
    enum io_kind kind = ios->of_name[ios->function[call]].kind;
    int64_t start = ios->start[call], middle = start + (ios->end[call] - start) / 2;
    slices->calls += ios_calls(ios, call);
    if (kind == IO_READ || kind == IO_WRITE) slices->bytes += ios_bytes(ios, call);
    add_slice(slices,
              (struct slice){second_of(middle), 0, ios->thread[call], ios->function[call], start, ios_time(ios, call)});
}

/* Adds the slices of the process with that number. A process is added once. */
static void add_slices(struct slices *slices, const struct slices *from, uint32_t process)
{
    slices->calls += from->calls;
    slices->bytes += from->bytes;
    for (size_t i = 0; i < from->count; i++) {
        struct slice slice = from->slice[i];
        slice.process = process;
        add_slice(slices, slice);
    }
}

/* Returns the time of the layer and empties the slices; `first` is the time of the first event of all traces. */
static int64_t time_of(struct slices *slices, int64_t first)
{
    int64_t total = 0;
    settle_slices(slices);
    for (size_t i = 0; i < slices->count; i++) {
        slices->slice[i].second = second_of(slices->slice[i].earliest - first);
        slices->slice[i].function = 0;
    }
    slices->settled = 0;
    settle_slices(slices);
    for (size_t i = 0; i < slices->count;) {
        int64_t longest = 0, second = slices->slice[i].second;
        for (; i < slices->count && slices->slice[i].second == second; i++)
            longest = MAX(longest, slices->slice[i].total);
        total = add_ns(total, longest);
    }
    slices->count = slices->settled = 0;
    return total;
}

/* ---- one process ---- */

struct taken {
    struct slices slices;
    uint64_t events;     /* of all kinds, calls on files or not */
    int64_t first, last; /* bounds of all events; first is above last: none */
};

/* Returns the number of events without those that only describe others. */
static uint64_t events_of(const struct process *process)
{
    uint64_t events = process->events;
    bool is_pfw = strcmp(process->kind, "dftracer") == 0;
    for (size_t i = 0; is_pfw && i < process->kind_count; i++)
        if (strcmp(process->kinds[i].name, "metadata") == 0) events -= MIN(events, process->kinds[i].count);
    return events;
}

static void *reduce_dfanalyzer(struct scope *of)
{
    const struct process *process = of->process;
    const struct ios *ios = &process->ios;
    struct taken *taken = mem_zero(1, sizeof *taken);
    struct io_scope scope;
    taken->events = events_of(process);
    taken->first = process->has_time ? process->first : INT64_MAX;
    taken->last = process->has_time ? process->last : INT64_MIN;
    io_scope_init(&scope, of);
    for (size_t i = 0; i < ios->table.count; i++)
        if (io_scope_has(&scope, ios->thread[i], ios->start[i])) add_call(&taken->slices, ios, i);
    io_scope_free(&scope);
    return taken;
}

static void free_taken(void *summary)
{
    struct taken *taken = summary;
    free(taken->slices.slice);
    free(taken);
}

static bool stands_alone(const struct options *options)
{
    return io_reduction.stands_alone(options);
}

const struct reduction dfanalyzer_calls = {stands_alone, reduce_dfanalyzer, free_taken, NULL};

/* ---- the answer ---- */

static bool refused(struct session *session)
{
    const struct options *o = &session->options;
    bool summary = o->layout == LAYOUT_ROWS || o->layout == LAYOUT_SUMMARY;
    if (summary && o->group_files == GROUP_FUNCTION && !is_filtered(o)) return false;
    complain(NULL,
             "--rules dfanalyzer gives the summary of whole traces; it takes no --layout, --group-by or filter but "
             "--rank and --pid");
    session->status = STATUS_USAGE;
    return true;
}

static struct taken unite(struct session *session)
{
    struct taken all = {.first = INT64_MAX, .last = INT64_MIN};
    void *const *taken = session_summaries(session);
    for (size_t i = 0; i < session->chosen.processes; i++) {
        const struct taken *one = taken[i];
        if (!one) continue;
        add_slices(&all.slices, &one->slices, (uint32_t)i);
        all.events += one->events;
        all.first = MIN(all.first, one->first);
        all.last = MAX(all.last, one->last);
    }
    return all;
}

static void emit_answer(struct session *session, struct taken *all)
{
    struct emit *e = &session->emit;
    int64_t time = time_of(&all->slices, all->first);
    double seconds = (double)time / 1e9;
    emit_keys(e, "layer,calls,time_us,bytes,calls_per_s,bandwidth_bps");
    emit_row(e);
    emit_text(e, "layer", "posix");
    emit_count(e, "calls", all->slices.calls);
    emit_us(e, "time_us", time);
    emit_bytes(e, "bytes", all->slices.bytes);
    emit_double(e, "calls_per_s", time > 0 ? (double)all->slices.calls / seconds : NAN);
    emit_double(e, "bandwidth_bps", time > 0 ? (double)all->slices.bytes / seconds : NAN);
    emit_row_end(e);
    emit_totals(e);
    if (all->first <= all->last) emit_us(e, "job_time_us", all->last - all->first);
    else emit_null(e, "job_time_us");
    emit_count(e, "events", all->events);
    emit_count(e, "processes", session->chosen.processes);
    emit_end(e);
}

void dfanalyzer_io(struct session *session)
{
    if (refused(session) || !session_ask(session, STYLE_TABLE)) return;
    struct taken all = unite(session);
    emit_answer(session, &all);
    io_end(session, all.slices.calls != 0);
    free(all.slices.slice);
}
