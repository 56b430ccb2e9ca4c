/* load_kineto.c - fills the model from a Kineto trace: counts each event, and keeps the wanted ones.
 *
 * Nearly every event shares its category, name and thread with a recent one, so a small cache is tried before a
 * slower look-up. Times are kept as they stand and shifted by the file's base at the end, because the base may follow
 * the events. A lost event is counted by its cause, not by its category.
 */
#include "model/load/load_kineto.h"

#include <stdlib.h>
#include <string.h>

#include "model/kineto/kineto_axis.h"
#include "model/kineto/kineto_nesting.h"
#include "model/kineto/kineto_ops.h"
#include "model/load/kineto_keep.h"
#include "model/ranges/step_ranges.h"

/* Limits within which sums and differences fit: 36 years before the base to 73 years after it. */
static const int64_t FIRST_NS = -((int64_t)1 << 60), LAST_NS = (int64_t)1 << 61, LONGEST_NS = (int64_t)1 << 60;

/* Later times count from 1970. */
static const int64_t ABSOLUTE_NS = (int64_t)1 << 59;

static const struct {
    const char *prefix, *word;
} device_words[] = {
#define CATEGORY(name, event_class)
#define DEVICE_WORD(prefix, word) {prefix, word},
#include "model/categories.def"
#undef CATEGORY
#undef DEVICE_WORD
};

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

static void add_tally(struct kineto_load *load, struct slice category)
{
    load->kind = mem_grow(load->kind, &load->kind_capacity, load->kinds + 1, sizeof *load->kind);
    struct tally *kind = &load->kind[load->kinds++];
    *kind = (struct tally){.name = mem_text(category.at, category.length),
                           .length = category.length,
                           .event_class = kineto_class_of(category),
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
    uint32_t *cached = &load->kind_cache[hash_of_samples(category) % CATEGORY_CACHE];
    struct tally *kind = *cached ? &load->kind[*cached - 1] : NULL;
    if (kind && kind->length == category.length && memcmp(kind->name, category.at, category.length) == 0) return kind;
    if (load->kinds >= MOST_CATEGORIES) /* more categories cannot be displayed usefully */
        category = (struct slice){"other categories", 16};
    uint32_t place = names_add(&load->kind_names, category.at, category.length);
    if (place == load->kinds) add_tally(load, category);
    *cached = place + 1;
    return &load->kind[place];
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
        keep_counters(load, event);
}

static void take_whole(struct kineto_load *load, const struct kineto_event *event, const struct tally *kind)
{
    enum event_class event_class = kineto_class_with_name(kind->event_class, event->name);
    const struct needs *needs = &load->needs;
    uint32_t thread = 0;
    if (event->phase == 'X' && !kind->is_span) {
        extend(load->process, event);
        load->process->has_device_work |= ON_DEVICE(event_class);
    }
    bool is_launch = kind->is_pairs || (kind->is_npu && event->phase == 's');
    if (!ON_DEVICE(event_class) && !kind->is_span && (event->phase == 'X' || is_launch))
        thread = threads_take(&load->threads, load->process, load->names, event);
    if (event->phase == 'X' && !kind->is_span) {
        judge_take(&load->judge, event, event_class, thread);
        if (needs->health) rules_take(&load->rules, event, event_class);
    }
    load->process->has_text_thread |= thread && event->phase == 'X' && event->tid_text.at;
    switch (table_of(event, event_class, kind->is_pairs)) {
    case TABLE_RANGES:
        if (needs->ranges) keep_range(load, event, thread);
        if (needs->collectives && is_backend_work(event->name))
            comm_take_annotation(&load->comm, load->process, event, thread);
        break;
    case TABLE_SPANS:
        if (needs->collectives && event_class == CLASS_OPERATOR && slice_is(event->name, "record_param_comms"))
            comm_take_call(&load->comm, load->process, event, thread);
        if ((needs->collectives || needs->device) && event_class == CLASS_OPERATOR)
            comm_take_operator(&load->comm, event);
        if (event_class == CLASS_API ? needs->launches : needs->operators || needs->launchers)
            keep_span(load, event, thread, event_class);
        break;
    case TABLE_WORKS:
        if (needs->device && kind->is_npu) npu_take_task(&load->npu, event, load->process->works.table.count);
        if (needs->device || needs->collectives) keep_work(load, event, event_class);
        break;
    case TABLE_FORWARDS:
        if (needs->operators || needs->launchers || needs->launches) keep_forward(load, event, thread);
        break;
    default:
        if (kind->is_npu && (needs->operators || needs->launchers)) npu_take_arrow(&load->npu, event, thread);
        if (needs->arrows && event->phase == 's' && event->has & HAS_ID && slice_is(event->category, "ac2g"))
            map_put(&load->process->arrows, event->id, 1);
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
        if (!load->faults.count[fault]++) load->faults.place[fault] = load->damage->at + 1;
        return;
    }
    struct tally *kind = tally_of(load, event);
    kind->count++;
    rows_take(&load->rows, event, event->phase == 'X' ? kind->event_class : CLASS_OTHER);
    if (event->phase != 'M') load->process->earliest = MIN(load->process->earliest, event->ts);
    if (event->phase == 'M') {
        info_take_event(&load->info, event);
    } else if (event->phase == 'X' || (event->phase && strchr("iIRstfCSTpFNDPO", event->phase))) {
        take_start(load->process, event);
        take_whole(load, event, kind);
    } else {
        load->other_phase++;
    }
}

static void load_kineto_event(void *context, const struct kineto_event *event)
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
    faults_conclude(&load->faults, p, notes);
    process_lose(p, "other_phase", load->other_phase, true);
    process_lose(p, "impossible_time", damage->impossible, true);
    p->health.doubt[DOUBT_OTHER_PHASE] = (struct doubt){load->other_phase, damage->events, 0, false};
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
    kineto_nest(p, !load->info.base && p->earliest > ABSOLUTE_NS);
    judge_conclude(&load->judge, &p->health);
    rules_conclude(&load->rules, &p->health);
    doubts_say(&p->health, load->needs, notes);
    for (size_t i = 0; i < load->kinds; i++)
        if (load->kind[i].count) process_count(p, (uint32_t)i, load->kind[i].name, load->kind[i].count);
    name_devices(load);
    npu_conclude(&load->npu, p);
    comm_conclude(&load->comm, p, &load->judge, load->needs); /* the judge has times as they stand in the file */
    kineto_set_axis(p, load->info.base);
    fold_names(p, load->names);
    threads_conclude(&load->threads, p);
    info_conclude(&load->info, load->names, p, notes);
    p->complete = !damage->cut && !damage->broken;
}

static void load_begin(struct kineto_load *load)
{
    load->comm.names = load->names;
    name_cache_init(&load->name_cache, load->names);
    load->process->metadata = mem_zero(1, sizeof *load->process->metadata);
    load->process->earliest = LAST_NS;
}

static void load_free(struct kineto_load *load)
{
    for (size_t i = 0; i < load->kinds; i++) free(load->kind[i].name);
    free(load->kind);
    names_free(&load->kind_names);
    name_cache_free(&load->name_cache);
    map_free(&load->demangled);
    threads_free(&load->threads);
    comm_free(&load->comm);
    npu_free(&load->npu);
    rows_free(&load->rows);
    judge_free(&load->judge);
    rules_free(&load->rules);
    info_free(&load->info);
}

static bool load_end(struct kineto_load *load, bool usable, const struct kineto_damage *damage, struct notes *notes)
{
    if (usable) conclude(load, damage, notes);
    load_free(load);
    return usable;
}

/* One reading of a file. */
struct once {
    const char *path;
    struct names *names;
    struct needs needs;
    struct notes *notes;
    atomic_ullong *done;
    struct stream_way *limits; /* receives the limits of times */
};

/* Finds the processes of a file that holds several. */
static void divide(struct kineto_load *load, const struct once *once)
{
    struct kineto_parts **parts = load->parts;
    *parts = rows_divide(&load->rows, &load->info);
    if (*parts) rows_find_launches(&load->rows, *parts, once->path, &load->process->way);
    else if (load->info.is_merge && load->rows.parts && load->rows.parts->count == 1)
        info_take_part(&load->info, &load->rows.parts->part[0]);
}

/* Returns false if the reading does not count (load_kineto.h). */
static bool load_once(const struct once *once, struct process *process, struct kineto_parts **parts, bool *usable)
{
    struct kineto_load load = {.names = once->names, .process = process, .needs = once->needs, .parts = parts};
    const struct kineto_sink sink = {.context = &load, .event = load_kineto_event, .member = on_member};
    struct kineto_damage damage = {0}; /* so it stays where the file cannot be opened */
    load.damage = &damage;
    load_begin(&load);
    *usable = kineto_read(once->path, &process->way, &sink, &damage, once->notes, once->done);
    const struct stream_way *way = &process->way;
    struct stream_way *limits = once->limits;
    if (*usable && !way->parts && !way->has_limits)
        limits->has_limits = judge_limits(&load.judge, &limits->not_before, &limits->not_after);
    if (way->parts) info_take_part(&load.info, &way->parts->part[way->part]);
    else if (*usable) divide(&load, once);
    *usable = load_end(&load, *usable, &damage, once->notes);
    return !damage.in_doubt;
}

bool load_kineto(const char *path, const struct stream_way *way, struct names *names, struct needs needs,
                 struct process *process, struct notes *notes, atomic_ullong *done, struct kineto_parts **parts)
{
    struct stream_way next = *way;
    const struct once once = {path, names, needs, notes, done, &next};
    bool usable;
    for (int readings = 0; readings < 3; readings++) {
        size_t before = notes->count;
        bool counts = load_once(&once, process, parts, &usable);
        if ((counts && next.has_limits == process->way.has_limits) || readings == 2) break;
        notes_cut(notes, before);
        parts_free(*parts);
        *parts = NULL;
        next.exact |= !counts;
        const char *kind = process->kind;
        process_free(process);
        process_init(process, path, kind);
        process->way = next;
    }
    return usable;
}

/* ---- several processes ---- */

struct many {
    const struct kineto_parts *parts;
    struct kineto_load *load;
};

static void on_event_of_many(void *context, const struct kineto_event *event)
{
    struct many *many = context;
    struct kineto_event own = *event;
    load_kineto_event(&many->load[kineto_part(many->parts, &own)], &own);
}

static void on_member_of_many(void *context, struct slice key, struct slice value)
{
    struct many *many = context;
    for (size_t i = 0; i < many->parts->count; i++) on_member(&many->load[i], key, value);
}

void load_kineto_parts(const char *path, const struct kineto_parts *parts, struct names *names, struct needs needs,
                       struct process *process, struct notes *notes, atomic_ullong *done)
{
    struct many many = {parts, mem_zero(parts->count, sizeof *many.load)};
    const struct kineto_sink sink = {.context = &many, .event = on_event_of_many, .member = on_member_of_many};
    struct kineto_damage damage;
    struct stream_way way = process->way;
    way.part = PART_ALL;
    for (size_t i = 0; i < parts->count; i++) {
        many.load[i] = (struct kineto_load){.names = names, .process = &process[i], .needs = needs, .damage = &damage};
        load_begin(&many.load[i]);
    }
    kineto_read(path, &way, &sink, &damage, notes, done);
    struct doubt *unmarked = &process->health.doubt[DOUBT_UNMARKED];
    unmarked->of = parts->count;
    for (size_t i = 0; i < parts->count; i++) unmarked->count += parts->part[i].is_guessed;
    for (size_t i = 0; i < parts->count; i++) {
        info_take_part(&many.load[i].info, &parts->part[i]);
        if (i) damage.bad = 0; /* counted once */
        load_end(&many.load[i], true, &damage, notes);
    }
    free(many.load);
}

bool load_kineto_bytes(const struct kineto_bytes *bytes, struct names *names, struct needs needs,
                       struct process *process, struct notes *notes)
{
    struct kineto_load load = {.names = names, .process = process, .needs = needs};
    const struct kineto_sink sink = {.context = &load, .event = load_kineto_event, .member = on_member};
    struct kineto_damage damage;
    load.damage = &damage;
    load_begin(&load);
    bool usable = kineto_read_bytes(bytes, &sink, &damage, notes);
    return load_end(&load, usable, &damage, notes);
}
