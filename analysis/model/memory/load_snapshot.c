/* load_snapshot.c - loads memory snapshots of torch: blocks, refused requests and segments. */
#include <stdlib.h>
#include <string.h>

#include "model/frames.h"
#include "model/load/load_kineto.h"
#include "model/memory/snapshot_trace.h"

enum { LONGEST_FRAME = 4096 /* bytes of a function, and of a file */ };

struct loading {
    struct snapshot *snapshot;
    struct process *process;
    struct device_trace *trace; /* those of device_traces first, in their order */
    size_t traces, trace_capacity;
    struct map trace_of; /* index in `trace`, by device */
    uint32_t *stack;     /* the model's, by the snapshot's */
    uint64_t count[SNAPSHOT_ACTIONS];
    bool keeps;         /* the rows are wanted */
    uint64_t misstated; /* segments whose sums are not those of their blocks */
};

/* ---- stacks ---- */

/* torch's viewer leaves these out: parts of the way to Python and of the unwinder. */
static const char *const hidden_functions[] = {"unwind::unwind",    "CapturedTraceback::gather",
                                               "gather_with_cpp",   "_start",
                                               "__libc_start_main", "PyEval_",
                                               "PyObject_",         "PyFunction_"};
static const char *const hidden_files[] = {"core/boxing",
                                           "/Register",
                                           "/Redispatch",
                                           "pythonrun.c",
                                           "Modules/main.c",
                                           "Objects/call.c",
                                           "Objects/methodobject.c",
                                           "pycore_ceval.h",
                                           "ceval.c",
                                           "cpython/abstract.h"};

static bool has_any(const char *text, size_t length, const char *const *parts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memmem(text, length, parts[i], strlen(parts[i]))) return true;
    return false;
}

static struct slice text_of(const struct snapshot *s, uint32_t number)
{
    struct slice text = {"", 0};
    if (number != SNAPSHOT_NONE) text.at = snapshot_pool_get(&s->texts, number, &text.length);
    text.length = MIN(text.length, (size_t)LONGEST_FRAME);
    return text;
}

enum shown { PYTHON, NATIVE, HIDDEN };

/* Returns the name of a frame, `function<TAB>file<TAB>line`. */
static uint32_t frame_name(const struct snapshot *s, uint32_t number, struct names *names, uint8_t *shown)
{
    struct snapshot_frame frame;
    struct text text = {0};
    size_t length;
    memcpy(&frame, snapshot_pool_get(&s->frames, number, &length), sizeof frame);
    struct slice function = text_of(s, frame.function), file = text_of(s, frame.file);
    bool is_python = file.length >= 3 && memcmp(file.at + file.length - 3, ".py", 3) == 0;
    bool hides = has_any(function.at, function.length, hidden_functions, ARRAY_SIZE(hidden_functions)) ||
                 has_any(file.at, file.length, hidden_files, ARRAY_SIZE(hidden_files));
    *shown = hides ? HIDDEN : is_python || (file.length && file.at[0] == '<') ? PYTHON : NATIVE;
    text_add(&text, function.at, function.length);
    for (size_t i = 0; i < text.length; i++)
        if (text.data[i] == '\t') text.data[i] = ' ';
    text_puts(&text, "\t");
    if (!(file.length == 2 && memcmp(file.at, "??", 2) == 0)) text_add(&text, file.at, file.length); /* "??": unknown */
    text_format(&text, "\t%lld", (long long)frame.line);
    uint32_t name = names_add(names, text.data, text.length);
    text_free(&text);
    return name;
}

/* A stack of the model has its Python frames first. One that is all hidden is shown whole. */
static uint32_t stack_name(const struct snapshot *s, uint32_t number, struct names *names, const uint32_t *frame_of,
                           const uint8_t *shown)
{
    uint32_t all[TFI_STACK_FRAMES], frame[TFI_STACK_FRAMES];
    size_t length, count = 0;
    const char *bytes = snapshot_pool_get(&s->stacks, number, &length);
    size_t frames = length / sizeof *all;
    memcpy(all, bytes, length);
    for (int of = PYTHON; of <= NATIVE; of++)
        for (size_t i = 0; i < frames; i++)
            if (shown[all[i]] == of) frame[count++] = frame_of[all[i]];
    for (size_t i = 0; !count && i < frames; i++) all[i] = frame_of[all[i]];
    return stack_add(names, count ? frame : all, count ? count : frames);
}

static void load_stacks(struct loading *l, struct names *names)
{
    const struct snapshot *s = l->snapshot;
    uint32_t *frame = mem_zero(s->frames.count, sizeof *frame);
    uint8_t *shown = mem_zero(s->frames.count, 1);
    l->stack = mem_zero(s->stacks.count, sizeof *l->stack);
    for (uint32_t i = 0; i < s->frames.count; i++) frame[i] = frame_name(s, i, names, &shown[i]);
    for (uint32_t i = 0; i < s->stacks.count; i++) l->stack[i] = stack_name(s, i, names, frame, shown);
    free(frame);
    free(shown);
}

/* ---- segments ---- */

static struct device_trace *trace_of(struct loading *l, int64_t device)
{
    uint32_t at = map_number(&l->trace_of, (uint64_t)device);
    if (at == l->traces) {
        l->trace = mem_grow(l->trace, &l->trace_capacity, l->traces + 1, sizeof *l->trace);
        l->trace[l->traces++] = (struct device_trace){.device = device};
    }
    return &l->trace[at];
}

static bool is_stated(uint64_t stated, uint64_t sum)
{
    return stated == SNAPSHOT_UNKNOWN || stated == sum;
}

/* Adds a segment with the sums of its blocks, and gives the blocks in use to its device's trace. */
static void take_segment(struct loading *l, const struct snapshot_segment *segment)
{
    struct process *p = l->process;
    const struct snapshot *s = l->snapshot;
    struct device_trace *trace = trace_of(l, segment->device);
    struct memory_segment sum = {.device = segment->device,
                                 .address = segment->address,
                                 .total = segment->total,
                                 .stream = segment->stream,
                                 .pool = {segment->pool[0], segment->pool[1]},
                                 .stack = segment->stack == SNAPSHOT_NONE ? NAME_NONE : l->stack[segment->stack],
                                 .is_small = segment->is_small,
                                 .is_expandable = segment->is_expandable};
    struct snapshot_cursor cursor = {0};
    uint64_t at = segment->address;
    uint32_t number;
    while (snapshot_next(s, &segment->blocks, &cursor, &number)) {
        const struct snapshot_block *block = &s->block[number];
        uint64_t requested = block->requested == SNAPSHOT_UNKNOWN ? block->size : block->requested;
        const struct older_block in_use = {block->address == SNAPSHOT_UNKNOWN ? at : block->address, requested,
                                           segment->stream, block->stack};
        sum.blocks++;
        if (block->state == SNAPSHOT_INACTIVE) sum.largest_free = MAX(sum.largest_free, block->size);
        else sum.active += block->size;
        if (block->state == SNAPSHOT_ALLOCATED) {
            sum.allocated += block->size;
            sum.requested += requested;
            snapshot_trace_in_use(trace, s, &in_use);
        }
        at += block->size;
    }
    trace->reserved += segment->total;
    l->misstated += !is_stated(segment->allocated, sum.allocated) || !is_stated(segment->active, sum.active) ||
                    at - segment->address != segment->total;
    if (!l->keeps) return;
    p->segment = mem_grow(p->segment, &p->segment_capacity, p->segments + 1, sizeof *p->segment);
    p->segment[p->segments++] = sum;
}

static void take_segments(struct loading *l, const struct snapshot_list *list)
{
    struct snapshot_cursor cursor = {0};
    uint32_t at;
    while (snapshot_next(l->snapshot, list, &cursor, &at)) take_segment(l, &l->snapshot->segment[at]);
}

/* ---- traces ---- */

/* Takes the events of a device: counts them, and finds the first and the last moment. */
static void count_events(struct loading *l, const struct snapshot_list *events)
{
    struct process *p = l->process;
    struct snapshot_cursor cursor = {0};
    uint32_t at;
    while (snapshot_next(l->snapshot, events, &cursor, &at)) {
        const struct snapshot_event *event = &l->snapshot->event[at];
        l->count[event->action]++;
        if (event->time_us == SNAPSHOT_UNKNOWN) continue;
        int64_t time = (int64_t)event->time_us * 1000;
        p->first = p->has_time ? MIN(p->first, time) : time;
        p->last = p->has_time ? MAX(p->last, time) : time;
        p->has_time = true;
    }
}

static void find_traces(struct loading *l)
{
    const struct snapshot *s = l->snapshot;
    struct snapshot_cursor cursor = {0};
    uint32_t at;
    for (int64_t device = 0; snapshot_next(s, &s->traces, &cursor, &at); device++)
        trace_of(l, device)->events = s->list[at];
    if (s->host_trace.spans) trace_of(l, DEVICE_HOST)->events = s->host_trace;
    for (size_t i = 0; i < l->traces; i++) count_events(l, &l->trace[i].events);
    for (unsigned i = 0; i < SNAPSHOT_ACTIONS; i++)
        if (l->count[i]) process_count(l->process, i, snapshot_actions[i], l->count[i]);
}

static void add_rows(struct loading *l, struct names *names)
{
    const struct snapshot_rows rows = {.process = l->process,
                                       .allocator = names_add(names, "c10", 3),
                                       .pinned = names_add(names, "c10 pinned", 10),
                                       .stack = l->stack,
                                       .keeps = l->keeps,
                                       .has_time = l->process->has_time};
    for (size_t i = 0; i < l->traces; i++) snapshot_trace_add_older(&l->trace[i], &rows);
    for (size_t i = 0; i < l->traces; i++) snapshot_trace_add(&l->trace[i], l->snapshot, &rows);
}

/* ---- the process ---- */

static void lose(struct loading *l, struct notes *notes, uint64_t count, const char *what)
{
    if (!count) return;
    notes_add(notes, LOSS, "%llu %s", (unsigned long long)count, what);
    process_lose(l->process, "damaged", count, true);
}

static void judge(struct loading *l, struct notes *notes)
{
    uint64_t olders = 0, bytes = 0, losts = 0, astray = 0, doubted = 0;
    for (size_t i = 0; i < l->traces; i++) {
        olders += l->trace[i].olders;
        bytes += l->trace[i].bytes;
        losts += l->trace[i].losts;
        astray += l->trace[i].astray;
        doubted += l->trace[i].is_doubted;
    }
    lose(l, notes, l->snapshot->bad, "events, segments, blocks or lists are not valid; they were left out");
    lose(l, notes, losts, "blocks were allocated over another one, whose end is missing; it ends there");
    lose(l, notes, astray,
         "blocks of its events are in no segment at the end, or have another size there; their own events count");
    lose(l, notes, l->misstated, "segments state other sums than their blocks have; the blocks count");
    lose(l, notes, doubted, "devices reserve less than they use, by its events: what they reserve is unknown");
    if (l->count[SNAPSHOT_OTHER])
        notes_add(notes, NOTE, "%llu events have actions that this version does not know; they were left out",
                  (unsigned long long)l->count[SNAPSHOT_OTHER]);
    if (l->snapshot->deep)
        notes_add(notes, NOTE, "%llu call stacks have more than %u frames; the outermost were left out",
                  (unsigned long long)l->snapshot->deep, TFI_STACK_FRAMES);
    if (olders && l->process->events)
        notes_add(notes, NOTE,
                  "%llu blocks of %llu bytes are older than its first event: the recording began later, or kept its "
                  "last max_entries events only",
                  (unsigned long long)olders, (unsigned long long)bytes);
}

static void fill(struct loading *l, struct names *names, struct notes *notes)
{
    struct process *p = l->process;
    struct snapshot *s = l->snapshot;
    process_thread(p, SNAPSHOT_THREAD);
    find_traces(l);
    load_stacks(l, names);
    for (size_t i = 0; i < l->traces; i++) snapshot_trace_judge(&l->trace[i], s);
    take_segments(l, &s->all_segments);
    take_segments(l, &s->host_segments);
    for (size_t i = 0; i < l->traces; i++) snapshot_trace_judged(&l->trace[i], s);
    add_rows(l, names);
    judge(l, notes);
    p->clock.has_axis = true;
    p->complete = !notes_have(notes, LOSS);
}

static void loading_free(struct loading *l)
{
    for (size_t i = 0; i < l->traces; i++) snapshot_trace_free(&l->trace[i]);
    free(l->trace);
    map_free(&l->trace_of);
    free(l->stack);
    snapshot_free(l->snapshot);
}

bool load_snapshot(const char *path, const struct stream_way *way, struct names *names, struct needs needs,
                   struct process *process, struct notes *notes, atomic_ullong *done)
{
    struct snapshot snapshot;
    struct loading loading = {.snapshot = &snapshot, .process = process, .keeps = needs.memory};
    struct mem_guard guard;
    bool usable = snapshot_read(path, way, &snapshot, notes, done);
    mem_guard(&guard);
    if (setjmp(guard.place) == 0) {
        if (usable) fill(&loading, names, notes);
        mem_unguard(&guard);
        loading_free(&loading);
        return usable;
    }
    loading_free(&loading);
    mem_lack();
}
