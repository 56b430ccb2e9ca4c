/* load_kineto.c - fills the model from a Kineto trace: counts each event, and keeps the wanted ones.
 *
 * Nearly every event shares its category, name and thread with a recent one, so a small cache is tried before a
 * slower look-up. Times are kept as they stand and shifted by the file's base at the end, because the base may follow
 * the events. A lost event is counted by its cause, not by its category.
 */
#include "model/load/load_kineto.h"

#include "base/kernel_names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/kineto/kineto_comm.h"
#include "model/kineto/kineto_axis.h"
#include "model/kineto/kineto_info.h"
#include "model/kineto/kineto_npu.h"
#include "model/kineto/kineto_ops.h"
#include "model/load/name_cache.h"
#include "model/step_ranges.h"

/* Limits within which sums and differences fit: 36 years before the base to 73 years after it. */
static const int64_t FIRST_NS = -((int64_t)1 << 60), LAST_NS = (int64_t)1 << 61, LONGEST_NS = (int64_t)1 << 60;

enum { CATEGORY_CACHE = 64, MOST_CATEGORIES = 4096 };

/* A category of the file. */
struct tally {
    char *name;
    size_t length;
    enum event_class event_class;
    bool is_pairs; /* arrows from forward to backward operators */
    bool is_npu;   /* tasks of an NPU, or arrows from operators to them */
    bool is_span;  /* an event of the profiler, not of the program */
    uint64_t count;
};

struct kineto_load {
    struct names *names;
    struct process *process;
    struct needs needs;
    struct tally *kind;
    size_t kinds, kind_capacity;
    struct names kind_names;             /* name numbers are indices in `kind` */
    uint32_t kind_cache[CATEGORY_CACHE]; /* index + 1 in `kind` */
    struct name_cache name_cache;
    struct threads_seen threads;
    struct kineto_info info;
    struct kineto_comm comm;
    struct npu_tasks npu;
    uint64_t faults[NO_FAULT];
    uint64_t other_phase; /* events of an unknown phase */
    uint32_t events;      /* events before the current one */
    struct map demangled; /* demangled kernel names, by the names in the file */
};

/* ---- classes ---- */

static const struct {
    struct slice name;
    enum event_class event_class;
} class_rows[] = {
#define CATEGORY(name, event_class) {{name, sizeof name - 1}, CLASS_##event_class},
#define DEVICE_WORD(prefix, word)
#include "model/categories.def"
#undef CATEGORY
#undef DEVICE_WORD
};

static const struct {
    const char *prefix, *word;
} device_words[] = {
#define CATEGORY(name, event_class)
#define DEVICE_WORD(prefix, word) {prefix, word},
#include "model/categories.def"
#undef CATEGORY
#undef DEVICE_WORD
};

static enum event_class class_of(struct slice category)
{
    for (size_t i = 0; i < ARRAY_SIZE(class_rows) && category.at; i++) {
        const struct slice *name = &class_rows[i].name;
        if (category.length == name->length && memcmp(category.at, name->at, name->length) == 0)
            return class_rows[i].event_class;
    }
    return CLASS_OTHER;
}

/* Old traces have the profiler's steps among the operators. */
static enum event_class class_with_name(enum event_class event_class, struct slice name)
{
    uint64_t number;
    return event_class == CLASS_OPERATOR && step_number(name, &number) ? CLASS_ANNOTATION : event_class;
}

enum event_class kineto_class(struct slice category, struct slice name)
{
    return class_with_name(class_of(category), name);
}

static bool is_pairs(struct slice category)
{
    return category.at && (slice_is(category, "fwdbwd") || slice_is(category, "forward_backward"));
}

/* ---- the table of an event ---- */

static bool time_is_good(const struct kineto_event *event)
{
    return event->ts >= FIRST_NS && event->ts <= LAST_NS && (!(event->has & HAS_DUR) || event->dur <= LONGEST_NS);
}

static bool is_whole(const struct kineto_event *event)
{
    return (event->has & (HAS_TS | HAS_DUR)) == (HAS_TS | HAS_DUR) && event->dur >= 0 && time_is_good(event);
}

static inline enum kineto_table table_of(const struct kineto_event *event, enum event_class event_class, bool pairs)
{
    if (event->phase == 'X') {
        return event_class >= CLASS_OTHER || !is_whole(event) ? TABLE_NONE
               : ON_DEVICE(event_class)                       ? TABLE_WORKS
               : event_class == CLASS_ANNOTATION              ? TABLE_RANGES
                                                              : TABLE_SPANS;
    }
    bool is_end = event->phase == 's' || event->phase == 'f';
    return is_end && pairs && (event->has & (HAS_TS | HAS_ID)) == (HAS_TS | HAS_ID) && time_is_good(event)
               ? TABLE_FORWARDS
               : TABLE_NONE;
}

enum kineto_table kineto_table(const struct kineto_event *event, enum event_class event_class)
{
    return table_of(event, event_class, is_pairs(event->category));
}

/* ---- caches ---- */

static uint32_t name_of(void *context, struct slice name)
{
    struct kineto_load *load = context;
    return cached_name(&load->name_cache, name);
}

static void add_tally(struct kineto_load *load, struct slice category)
{
    load->kind = mem_grow(load->kind, &load->kind_capacity, load->kinds + 1, sizeof *load->kind);
    struct tally *kind = &load->kind[load->kinds++];
    *kind = (struct tally){.name = mem_text(category.at, category.length),
                           .length = category.length,
                           .event_class = class_of(category),
                           .is_pairs = is_pairs(category),
                           .is_npu = slice_is(category, "async_npu") || is_npu_task(category),
                           .is_span = slice_is(category, "Trace")};
}

/* Returns a category for an event without a usable one, from its phase. */
static struct slice stand_in(const struct kineto_event *event)
{
    const char *name = event->phase == 'M'                                                 ? "metadata"
                       : event->phase == 'i' || event->phase == 'I'                        ? "instant"
                       : event->phase == 'C'                                               ? "counter"
                       : event->phase == 's' || event->phase == 't' || event->phase == 'f' ? "flow"
                                                                                           : "no category";
    return (struct slice){name, strlen(name)};
}

static struct tally *tally_of(struct kineto_load *load, const struct kineto_event *event)
{
    struct slice category = event->phase == 'M' || !event->category.length ? stand_in(event) : event->category;
    uint32_t *cached = &load->kind_cache[quick_hash(category) % CATEGORY_CACHE];
    struct tally *kind = *cached ? &load->kind[*cached - 1] : NULL;
    if (kind && kind->length == category.length && memcmp(kind->name, category.at, category.length) == 0) return kind;
    if (load->kinds >= MOST_CATEGORIES) /* more categories cannot be displayed usefully */
        category = (struct slice){"other categories", 16};
    uint32_t place = names_add(&load->kind_names, category.at, category.length);
    if (place == load->kinds) add_tally(load, category);
    *cached = place + 1;
    return &load->kind[place];
}

/* ---- keeping ---- */

/* Notes the event that became row `at` of a table. */
static void note_number(struct kineto_load *load, uint32_t **number, size_t *capacity, size_t at)
{
    if (!load->needs.event_numbers) return;
    *number = mem_grow(*number, capacity, at + 1, sizeof **number);
    (*number)[at] = load->events;
}

static void keep_range(struct kineto_load *load, const struct kineto_event *event, uint32_t thread)
{
    struct ranges *r = &load->process->ranges;
    static const char any_step[] = ANY_STEP;
    bool details = load->needs.details;
    uint64_t number;
    bool is_step = step_number(event->name, &number);
    ranges_reserve(r, 1, details);
    size_t at = r->table.count++;
    r->start[at] = event->ts;
    r->end[at] = event->ts + event->dur;
    r->id[at] = is_step ? number : NO_ID;
    r->name[at] = name_of(load, is_step ? (struct slice){any_step, sizeof any_step - 1} : event->name);
    r->thread[at] = thread;
    r->domain[at] = NAME_NONE;
    /* Asynchronous ranges are not marked in the trace, but those of c10d's backends always are (c10d::Work). */
    r->flags[at] = TFI_RANGE_STAGE | TFI_RANGE_NESTED | (is_backend_work(event->name) ? TFI_RANGE_ASYNC : 0);
    r->depth[at] = 0;
    r->step[at] = is_step ? (uint32_t)MIN(number, NO_PLACE - 2) : NO_PLACE;
    r->cpu[at] = -1;
    note_number(load, &load->process->numbers.range, &load->process->numbers.range_capacity, at);
    if (details) r->detail[at] = (struct range_detail){0};
    if (load->needs.all_spans) {
        struct op_detail detail = {0};
        take_op_detail(event, load->info.with_flops, name_of, load, &detail);
        if (event->has & HAS_EXTERNAL) map_put(&load->process->range_of_id, event->external, (uint32_t)at);
        if (detail.shapes != NAME_NONE || detail.modules != NAME_NONE || detail.stack != NAME_NONE)
            range_inputs_add(load->process, at, &detail);
    }
}

static void keep_span(struct kineto_load *load, const struct kineto_event *event, uint32_t thread,
                      enum event_class event_class)
{
    struct spans *s = &load->process->spans;
    spans_reserve(s, 1);
    size_t at = s->table.count++;
    s->start[at] = event->ts;
    s->end[at] = event->ts + event->dur;
    s->id[at] = event_class == CLASS_API ? (event->has & HAS_CORRELATION ? event->correlation : NO_ID)
                                         : (event->has & HAS_EXTERNAL ? event->external : NO_ID);
    s->name[at] = name_of(load, event->name);
    s->thread[at] = thread;
    s->event_class[at] = (uint8_t)event_class;
    note_number(load, &load->process->numbers.span, &load->process->numbers.span_capacity, at);
    if (load->needs.all_spans && event_class == CLASS_OPERATOR) {
        struct op_detail detail;
        take_op_detail(event, load->info.with_flops, name_of, load, &detail);
        op_details_add(&s->details, at, &detail);
    }
    if (load->needs.all_spans && event_class == CLASS_API && !(event->has & HAS_EXTERNAL && event->external))
        bits_add(&load->process->unlinked, at);
    if (event_class == CLASS_OPERATOR && event->has & HAS_STREAM && event->stream != -1) {
        struct process *p = load->process;
        p->streamed = mem_grow(p->streamed, &p->streamed_capacity, p->streamed_count + 1, sizeof *p->streamed);
        p->streamed[p->streamed_count++] = (uint32_t)at;
    }
}

/* Returns the lane of a work. If its arguments name no stream, its row does: "stream 7", or a number. */
static uint32_t lane_of(struct kineto_load *load, const struct kineto_event *event)
{
    int64_t device = event->has & HAS_DEVICE ? event->device : event->has & HAS_PID ? event->pid : -1;
    int64_t stream = event->has & HAS_STREAM ? event->stream : event->has & HAS_TID ? event->tid : -1;
    static const char prefix[] = "stream ";
    size_t skip = sizeof prefix - 1;
    if (!(event->has & (HAS_STREAM | HAS_TID)) && event->tid_text.length > skip &&
        memcmp(event->tid_text.at, prefix, skip) == 0) {
        struct number number;
        json_number(event->tid_text.at + skip, 0, &number);
        stream = number.state == NUMBER_GOOD && number.magnitude <= INT64_MAX ? (int64_t)number.magnitude : -1;
    }
    return process_lane(load->process, device, stream, event->has & HAS_STREAM);
}

/* Returns the demangled name of a kernel if the profiler left it mangled; each name is demangled once. */
static uint32_t kernel_name(struct kineto_load *load, struct slice name)
{
    uint32_t number = name_of(load, name);
    bool mangled = name.length > 2 && memcmp(name.at, "_Z", 2) == 0;
    if (!mangled || load->names->are_of_kineto) return number;
    uint32_t known = map_get(&load->demangled, number);
    if (known == MAP_NONE) {
        char *text = mem_text(name.at, name.length), *shown = demangled_name(text);
        known = shown ? names_add(load->names, shown, strlen(shown)) : number;
        map_put(&load->demangled, number, known);
        free(shown);
        free(text);
    }
    return known;
}

static bool is_copy(const struct kineto_event *event, enum event_class event_class)
{
    return event_class == CLASS_MEMCPY || event_class == CLASS_MEMSET ||
           (event->name.length > 3 && (memcmp(event->name.at, "Mem", 3) == 0 || memcmp(event->name.at, "dma", 3) == 0));
}

static void take_copied(struct process *p, const struct kineto_event *event, size_t work)
{
    struct slice at = event->args, key, value;
    struct copied copied = {.work = (uint32_t)work};
    int64_t bytes;
    while (at.at && json_next(&at, &key, &value)) {
        if (json_is_key(key, "bytes") && json_int(value, &bytes) && bytes >= 0) {
            copied.has_bytes = true;
            copied.bytes = (uint64_t)bytes;
        } else if (json_is_key(key, "memory bandwidth (GB/s)")) {
            copied.gbs = json_double(value);
            if (!isfinite(copied.gbs)) copied.gbs = 0;
        }
    }
    process_copied(p, copied);
}

static void take_waited(struct process *p, const struct kineto_event *event, size_t work)
{
    struct slice at = event->args, key, value;
    struct waited waited = {.work = (uint32_t)work, .stream = -1, .correlation = NO_ID};
    int64_t number;
    while (at.at && json_next(&at, &key, &value))
        if (json_is_key(key, "wait_on_stream") && json_int(value, &number) && number >= 0) waited.stream = number;
        else if (json_is_key(key, "wait_on_cuda_event_record_corr_id") && json_int(value, &number) && number >= 0)
            waited.correlation = (uint64_t)number;
    if (waited.stream < 0 && waited.correlation == NO_ID) return;
    p->waited = mem_grow(p->waited, &p->waited_capacity, p->waited_count + 1, sizeof *p->waited);
    p->waited[p->waited_count++] = waited;
}

static void keep_work(struct kineto_load *load, const struct kineto_event *event, enum event_class event_class)
{
    struct works *w = &load->process->works;
    works_reserve(w, 1);
    size_t at = w->table.count++;
    w->start[at] = event->ts;
    w->end[at] = event->ts + event->dur;
    w->correlation[at] = event->has & HAS_CORRELATION ? event->correlation : NO_ID;
    w->external[at] = event->has & HAS_EXTERNAL ? event->external : NO_ID;
    w->name[at] = kernel_name(load, event->name);
    w->lane[at] = lane_of(load, event);
    w->event_class[at] = (uint8_t)event_class;
    note_number(load, &load->process->numbers.work, &load->process->numbers.work_capacity, at);
    if (load->needs.copied && is_copy(event, event_class)) take_copied(load->process, event, at);
    if (load->needs.filling && event_class == CLASS_KERNEL) take_filling(event, load->process, at);
    if (load->needs.waited && event_class == CLASS_SYNC) take_waited(load->process, event, at);
    if (load->needs.device && event_class == CLASS_KERNEL && comm_describes(event))
        map_put(&load->process->described, at, 1);
    if (load->needs.collectives && event_class == CLASS_KERNEL)
        comm_take_kernel(&load->comm, load->process, event, w->name[at]);
    if (!load->needs.device) { /* only the collective is wanted */
        struct collectives *c = &load->process->collectives;
        if (c->count && c->collective[c->count - 1].work == at) c->collective[c->count - 1].work = NO_WORK;
        w->table.count--;
    }
}

static void keep_forward(struct kineto_load *load, const struct kineto_event *event, uint32_t thread)
{
    struct forwards *f = &load->process->forwards;
    forwards_reserve(f, 1);
    size_t at = f->table.count++;
    f->id[at] = event->id;
    f->time[at] = event->ts;
    f->thread[at] = thread;
    f->is_forward[at] = event->phase == 's';
}

/* ---- each event ---- */

/* Returns why an event is unusable, or NO_FAULT. */
static enum event_fault fault_of(const struct kineto_event *event)
{
    bool is_span = event->phase == 'X';
    if (event->phase == 'M') return NO_FAULT;
    return !(event->has & HAS_TS)               ? NO_TIME
           : is_span && !(event->has & HAS_DUR) ? NO_DURATION
           : is_span && event->dur < 0          ? NEGATIVE_DURATION
           : !time_is_good(event)               ? BAD_TIME
                                                : NO_FAULT;
}

bool kineto_is_kept(const struct kineto_event *event)
{
    return fault_of(event) == NO_FAULT;
}

static void extend(struct process *process, const struct kineto_event *event)
{
    int64_t end = event->ts + event->dur;
    process->first = process->has_time ? MIN(process->first, event->ts) : event->ts;
    process->last = process->has_time ? MAX(process->last, end) : end;
    process->has_time = true;
}

/* Keeps spans that only `ops` needs, memory events and counters. */
static void take_more(struct kineto_load *load, const struct kineto_event *event, enum event_class event_class,
                      uint32_t thread)
{
    if (load->needs.all_spans && event_class > CLASS_OTHER && event->phase == 'X')
        keep_span(load, event, thread, event_class);
    else if ((load->needs.all_spans || load->needs.all_blocks) && event->phase == 'i' &&
             slice_is(event->name, "[memory]"))
        take_block(event, &load->process->blocks);
    else if (load->needs.memory && event->phase == 'i' && slice_is(event->name, "[OutOfMemory]"))
        take_block(event, &load->process->ooms);
    else if (load->needs.counters && event->phase == 'X' && is_whole(event) &&
             slice_is(event->category, "cuda_profiler_range"))
        take_counters(event, kernel_name(load, event->name), name_of, load, &load->process->counters);
}

static void take_whole(struct kineto_load *load, const struct kineto_event *event, const struct tally *kind)
{
    enum event_class event_class = class_with_name(kind->event_class, event->name);
    const struct needs needs = load->needs;
    uint32_t thread = 0;
    if (event->phase == 'X' && !kind->is_span) extend(load->process, event);
    bool is_launch = kind->is_pairs || (kind->is_npu && event->phase == 's');
    if (!ON_DEVICE(event_class) && !kind->is_span && (event->phase == 'X' || is_launch))
        thread = threads_take(&load->threads, load->process, load->names, event);
    load->process->has_text_thread |= thread && event->phase == 'X' && event->tid_text.at;
    switch (table_of(event, event_class, kind->is_pairs)) {
    case TABLE_RANGES:
        if (needs.ranges) keep_range(load, event, thread);
        if (needs.collectives && is_backend_work(event->name))
            comm_take_annotation(&load->comm, load->process, event, thread);
        break;
    case TABLE_SPANS:
        if (needs.collectives && event_class == CLASS_OPERATOR && slice_is(event->name, "record_param_comms"))
            comm_take_call(&load->comm, load->process, event, thread);
        if (event_class == CLASS_API ? needs.launches : needs.operators || needs.launchers)
            keep_span(load, event, thread, event_class);
        break;
    case TABLE_WORKS:
        if (needs.device && kind->is_npu) npu_take_task(&load->npu, event, load->process->works.table.count);
        if (needs.device || needs.collectives) keep_work(load, event, event_class);
        break;
    case TABLE_FORWARDS:
        if (needs.operators || needs.launchers || needs.launches) keep_forward(load, event, thread);
        break;
    default:
        if (kind->is_npu && (needs.operators || needs.launchers)) npu_take_arrow(&load->npu, event, thread);
        take_more(load, event, event_class, thread);
        break;
    }
}

/* Takes the start of torch's profile from the instant event with which Kineto marks it. */
static void take_start(struct process *process, const struct kineto_event *event)
{
    static const char name[] = "Iteration Start: PyTorch Profiler";
    if (event->phase == 'i' && event->name.length == sizeof name - 1 &&
        memcmp(event->name.at, name, sizeof name - 1) == 0) {
        process->profile_start = event->ts;
        process->has_profile_start = true;
    }
}

static void take_event(struct kineto_load *load, const struct kineto_event *event)
{
    enum event_fault fault = fault_of(event);
    if (event->has & HAS_DUR && event->category.at) {
        load->process->has_float_ts |= (event->has & HAS_FLOAT_TS) != 0;
        load->process->has_float_dur |= (event->has & HAS_FLOAT_DUR) != 0;
    }
    if (fault != NO_FAULT) {
        load->faults[fault]++;
        return;
    }
    struct tally *kind = tally_of(load, event);
    kind->count++;
    if (event->phase != 'M') load->process->earliest = MIN(load->process->earliest, event->ts);
    if (event->phase == 'M') {
        info_take_event(&load->info, event);
    } else if (event->phase && strchr("XiIRstfCSTpFNDPO", event->phase)) {
        take_start(load->process, event);
        take_whole(load, event, kind);
    } else {
        load->other_phase++;
    }
}

static void on_event(void *context, const struct kineto_event *event)
{
    struct kineto_load *load = context;
    struct event_numbers *numbers = &load->process->numbers;
    if (load->events == 0 && event->has & HAS_TS && event->has & HAS_DUR && event->category.at &&
        !slice_is(event->category, "Trace")) {
        numbers->has_first = true;
        numbers->first = event->ts;
    }
    take_event(load, event);
    load->events += load->events < NO_PLACE - 1;
}

static void on_member(void *context, struct slice key, struct slice value)
{
    struct kineto_load *load = context;
    info_take_member(&load->info, key, value);
}

/* ---- the whole trace ---- */

static void lose(struct kineto_load *load, const struct kineto_damage *damage, struct notes *notes)
{
    struct process *p = load->process;
    faults_conclude(load->faults, p, notes);
    process_lose(p, "other_phase", load->other_phase, false);
    process_lose(p, "bad_event", damage->bad, true);
    process_lose(p, "cut", damage->cut, true);
}

static void name_devices(const struct kineto_load *load)
{
    for (size_t i = 0; i < load->kinds; i++)
        for (size_t k = 0; k < ARRAY_SIZE(device_words); k++)
            if (strncmp(load->kind[i].name, device_words[k].prefix, strlen(device_words[k].prefix)) == 0)
                load->process->device_word = device_words[k].word;
}

static void conclude(struct kineto_load *load, const struct kineto_damage *damage, struct notes *notes)
{
    struct process *p = load->process;
    lose(load, damage, notes);
    for (size_t i = 0; i < load->kinds; i++)
        if (load->kind[i].count) process_count(p, (uint32_t)i, load->kind[i].name, load->kind[i].count);
    name_devices(load);
    npu_conclude(&load->npu, p);
    kineto_set_axis(p, load->info.base);
    threads_conclude(&load->threads, p);
    info_conclude(&load->info, load->names, p, notes);
    comm_conclude(&load->comm, p);
    p->complete = !damage->cut && !damage->broken;
}

static void load_begin(struct kineto_load *load)
{
    load->comm.names = load->names;
    name_cache_init(&load->name_cache, load->names);
    load->process->metadata = mem_zero(1, sizeof *load->process->metadata);
    load->process->earliest = LAST_NS;
}

static bool load_end(struct kineto_load *load, bool usable, const struct kineto_damage *damage, struct notes *notes)
{
    if (usable) conclude(load, damage, notes);
    for (size_t i = 0; i < load->kinds; i++) free(load->kind[i].name);
    free(load->kind);
    names_free(&load->kind_names);
    name_cache_free(&load->name_cache);
    map_free(&load->demangled);
    threads_free(&load->threads);
    comm_free(&load->comm);
    npu_free(&load->npu);
    info_free(&load->info);
    return usable;
}

/* Returns false if the reading does not count (load_kineto.h). */
static bool load_once(const char *path, struct names *names, struct needs needs, struct process *process,
                      struct notes *notes, atomic_ullong *done, bool *usable)
{
    struct kineto_load load = {.names = names, .process = process, .needs = needs};
    const struct kineto_sink sink = {.context = &load, .event = on_event, .member = on_member};
    struct kineto_damage damage;
    load_begin(&load);
    *usable = kineto_read(path, &process->way, &sink, &damage, notes, done);
    *usable = load_end(&load, *usable, &damage, notes);
    return !damage.in_doubt;
}

bool load_kineto(const char *path, const struct stream_way *way, struct names *names, struct needs needs,
                 struct process *process, struct notes *notes, atomic_ullong *done)
{
    bool usable;
    if (load_once(path, names, needs, process, notes, done, &usable)) return usable;
    struct stream_way exact = {.how = way->how, .exact = true, .threads = way->threads};
    const char *kind = process->kind;
    process_free(process);
    process_init(process, path, kind);
    process->way = exact;
    load_once(path, names, needs, process, notes, done, &usable);
    return usable;
}

bool load_kineto_bytes(const struct kineto_bytes *bytes, struct names *names, struct needs needs,
                       struct process *process, struct notes *notes)
{
    struct kineto_load load = {.names = names, .process = process, .needs = needs};
    const struct kineto_sink sink = {.context = &load, .event = on_event, .member = on_member};
    struct kineto_damage damage;
    load_begin(&load);
    bool usable = kineto_read_bytes(bytes, &sink, &damage, notes);
    return load_end(&load, usable, &damage, notes);
}
