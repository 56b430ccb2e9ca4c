/* load_dftracer.c - fills the model from a dftracer trace: counts each event, and keeps the wanted ones.
 *
 * Times are kept in the unit that the file names first. If it names its unit only behind its events, they are converted
 * at the end. A file or a host is a text, or a hash whose text a metadata event gives, as a rule before its first use;
 * a hash that is explained later, or never, is resolved at the end.
 */
#include "model/load/load_dftracer.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "model/kineto/kineto_info.h"
#include "model/load/name_cache.h"
#include "model/ranges/step_ranges.h"

/* Limits within which sums and differences fit: 73 years since 1970. */
static const int64_t LAST_NS = (int64_t)1 << 61;
/* Times above it are nanoseconds, in a file that names no unit: as microseconds they would lie behind the year 5000. */
static const int64_t NO_MICROSECONDS = 100000000000000000;

enum { MOST_CATEGORIES = 4096, MOST_FACTS = 1024, LONGEST_FACT = 4096 };

/* A hash and its text. */
struct hashed {
    uint32_t name; /* NAME_NONE: not explained yet */
    char text[32]; /* the hash, as written */
    uint32_t length;
};

struct fixup {
    size_t at; /* in ios */
    uint32_t hashed;
};

struct dftracer_load {
    struct names *names;
    struct process *process;
    struct needs needs;
    struct name_cache name_cache;
    struct threads_seen threads;
    struct kineto_info info;   /* rank, host and names of threads */
    struct kineto_event place; /* of the current event, for `threads` */
    struct map kind_of;        /* index in `kind`, by name */
    struct tally {
        uint32_t name;
        uint64_t count;
    } * kind;
    size_t kinds, kind_capacity;
    struct map hashed_of; /* index in `hashed`, by the hash's text */
    struct hashed *hashed;
    size_t hashes, hash_capacity;
    struct fixup *fixup; /* calls whose file is a hash without a text */
    size_t fixups, fixup_capacity;
    char *command, *directory; /* hashes */
    uint32_t host;             /* of the first event that names one */
    uint32_t host_hashed;      /* index + 1 in `hashed`: the host is a hash */
    struct map hosts;
    bool has_unit, is_guessed;
    unsigned unit;
    bool started, ended;
    size_t facts;
    uint64_t more_facts;
    struct faults faults;
    uint64_t no_stage; /* rows of several calls of a stage */
};

/* ---- classes ---- */

static bool text_is(const struct dftracer_event *event, enum dftracer_text which, const char *text)
{
    return event->text[which].at && slice_is(event->text[which], text);
}

static bool begins(struct slice text, const char *with)
{
    size_t length = strlen(with);
    return text.at && text.length >= length && memcmp(text.at, with, length) == 0;
}

/* Older traces have no types; their categories tell the layers apart. */
static bool is_of_device_or_library(struct slice category)
{
    return begins(category, "CUDA_") || begins(category, "HIP_") || slice_is(category, "MPI") ||
           slice_is(category, "MPIIO") || slice_is(category, "HDF5") || slice_is(category, "FUNC");
}

enum dftracer_class dftracer_class(const struct dftracer_event *event)
{
    if (event->phase == 'M') return DFTRACER_META;
    if (text_is(event, DFT_CATEGORY, "dftracer")) return DFTRACER_SELF;
    if (event->phase != 'X' && !dftracer_has(event, DFT_CALLS)) return DFTRACER_OTHER;
    if (text_is(event, DFT_CATEGORY, "POSIX") || text_is(event, DFT_CATEGORY, "STDIO")) return DFTRACER_IO;
    if (dftracer_has(event, DFT_TYPE) && event->number[DFT_TYPE]) {
        int64_t type = event->number[DFT_TYPE];
        return type == DFT_OF_C || type == DFT_OF_CPP || type == DFT_OF_PYTHON ? DFTRACER_STAGE : DFTRACER_OTHER;
    }
    return event->text[DFT_CATEGORY].at && is_of_device_or_library(event->text[DFT_CATEGORY]) ? DFTRACER_OTHER
                                                                                              : DFTRACER_STAGE;
}

/* ---- hashes ---- */

static uint32_t add_hashed(struct dftracer_load *load, struct slice hash, uint32_t name)
{
    load->hashed = mem_grow(load->hashed, &load->hash_capacity, load->hashes + 1, sizeof *load->hashed);
    struct hashed *hashed = &load->hashed[load->hashes];
    *hashed = (struct hashed){.name = name, .length = (uint32_t)MIN(hash.length, sizeof hashed->text - 1)};
    memcpy(hashed->text, hash.at, hashed->length);
    map_put(&load->hashed_of, hash_text(hash.at, hash.length), (uint32_t)load->hashes);
    return (uint32_t)load->hashes++;
}

/* Returns the index of a hash's text. */
static uint32_t hashed_of(struct dftracer_load *load, struct slice hash)
{
    uint32_t at = map_get(&load->hashed_of, hash_text(hash.at, hash.length));
    return at == MAP_NONE ? add_hashed(load, hash, NAME_NONE) : at;
}

/* Takes the text of a hash. Old hashes are short, so that another process of the file may use the same one for another
 * text: events read so far keep the text that they found. */
static void explain(struct dftracer_load *load, struct slice hash, struct slice text)
{
    uint32_t name = cached_name(&load->name_cache, text);
    uint32_t at = map_get(&load->hashed_of, hash_text(hash.at, hash.length));
    if (at == MAP_NONE || (load->hashed[at].name != NAME_NONE && load->hashed[at].name != name))
        add_hashed(load, hash, name);
    else load->hashed[at].name = name;
}

/* Returns the text of a hash; of one that was never explained "(hash 5692)". */
static uint32_t explained(struct dftracer_load *load, uint32_t at)
{
    const struct hashed *hashed = &load->hashed[at];
    if (hashed->name != NAME_NONE) return hashed->name;
    char *shown = string_format("(hash %.*s)", (int)hashed->length, hashed->text);
    uint32_t name = names_add(load->names, shown, strlen(shown));
    free(shown);
    return name;
}

/* ---- facts about the process ---- */

static void take_place(struct kineto_event *place, const struct dftracer_event *event)
{
    place->has = HAS_DUR | (dftracer_has(event, DFT_PID) ? HAS_PID : 0) | (dftracer_has(event, DFT_TID) ? HAS_TID : 0);
    place->pid = dftracer_has(event, DFT_PID) ? event->number[DFT_PID] : -1;
    place->tid = dftracer_has(event, DFT_TID) ? event->number[DFT_TID] : 0;
}

static void add_fact(struct dftracer_load *load, const char *key, struct slice value)
{
    if (!value.at || value.length > LONGEST_FACT || !*key) return;
    if (load->facts >= MOST_FACTS) {
        load->more_facts++;
        return;
    }
    char *text = mem_text(value.at, value.length);
    pairs_add(load->process->metadata, key, text);
    load->facts++;
    free(text);
}

/* Converts times from one unit to another one. */
static void rescale(int64_t *times, size_t count, unsigned from, unsigned to)
{
    int64_t by = dftracer_ns(1, MAX(from, to)) / dftracer_ns(1, MIN(from, to));
    for (size_t i = 0; i < count; i++) {
        if (times[i] <= 0) continue;
        times[i] = from > to ? times[i] / by : MIN(times[i], LAST_NS / by) * by;
    }
}

/* Converts the times that were read with a guessed unit. */
static void rescale_all(struct process *p, unsigned from, unsigned to)
{
    rescale(p->ranges.start, p->ranges.table.count, from, to);
    rescale(p->ranges.end, p->ranges.table.count, from, to);
    rescale(p->ios.start, p->ios.table.count, from, to);
    rescale(p->ios.end, p->ios.table.count, from, to);
    for (size_t i = 0; i < p->ios.sum_count; i++) {
        struct io_sum *sum = &p->ios.sums[i];
        rescale(&sum->total, 1, from, to);
        rescale(&sum->shortest, 1, from, to);
        rescale(&sum->longest, 1, from, to);
    }
    for (size_t i = 0; i < p->threads; i++) {
        rescale(&p->thread[i].first, 1, from, to);
        rescale(&p->thread[i].last, 1, from, to);
    }
    rescale(&p->first, 1, from, to);
    rescale(&p->last, 1, from, to);
    p->earliest = p->first;
}

/* Takes the unit that the file names. The first one counts. */
static void set_unit(struct dftracer_load *load, int unit)
{
    bool is_new = !load->has_unit || load->is_guessed;
    if (unit < 0 || !is_new) return;
    if (load->is_guessed && load->unit == UNIT_NS) unit = UNIT_NS; /* its times fit no other unit */
    if (load->is_guessed && load->unit != (unsigned)unit) rescale_all(load->process, load->unit, (unsigned)unit);
    load->unit = (unsigned)unit;
    load->has_unit = true;
    load->is_guessed = false;
}

static void take_process_fact(struct dftracer_load *load, const struct dftracer_event *event)
{
    char key[64] = "";
    struct slice name = event->text[DFT_META_NAME], value = event->text[DFT_META_VALUE];
    struct number number;
    if (!name.at || name.length >= sizeof key || memchr(name.at, 0, name.length)) return;
    memcpy(key, name.at, name.length);
    if (strcmp(key, "time_metric") == 0) set_unit(load, dftracer_unit(value));
    if (strcmp(key, "rank") == 0 && value.at) {
        char digits[24] = "";
        memcpy(digits, value.at, MIN(value.length, sizeof digits - 1));
        json_number(digits, 0, &number);
        bool good = number.state == NUMBER_GOOD && !number.negative && number.magnitude < INT32_MAX;
        load->info.rank = good ? (int64_t)number.magnitude + 1 : load->info.rank;
    }
    add_fact(load, key, value);
}

/* Takes the name of a thread, unless it is just its number. */
static void take_label(struct dftracer_load *load, const struct dftracer_event *event)
{
    struct slice name = event->text[DFT_META_NAME];
    struct kineto_event label = {.name = event->text[DFT_NAME], .args = event->args};
    bool is_number = true;
    for (size_t i = 0; i < name.length; i++) is_number &= name.at[i] >= '0' && name.at[i] <= '9';
    if (is_number || !text_is(event, DFT_NAME, "thread_name")) return;
    take_place(&label, event);
    info_take_event(&load->info, &label);
}

static void take_meta(struct dftracer_load *load, const struct dftracer_event *event)
{
    struct slice text = event->text[DFT_META_NAME], hash = event->text[DFT_META_VALUE];
    bool is_hash = text_is(event, DFT_NAME, "FH") || text_is(event, DFT_NAME, "HH") || text_is(event, DFT_NAME, "SH");
    if (is_hash && text.at && hash.at) explain(load, hash, text);
    else if (text_is(event, DFT_NAME, "PR") || text_is(event, DFT_NAME, "CM")) take_process_fact(load, event);
    else take_label(load, event);
}

static void copy_hash(char **to, struct slice args, const char *key)
{
    struct slice value = json_member(args, key);
    free(*to);
    *to = value.length ? json_text(value) : NULL;
}

/* Takes the events with which dftracer begins and ends a trace. */
static void take_self(struct dftracer_load *load, const struct dftracer_event *event)
{
    struct slice args = event->args, config, value;
    if (!args.at) return;
    if (text_is(event, DFT_NAME, "start")) {
        load->started = true;
        copy_hash(&load->command, args, "cmd_hash");
        copy_hash(&load->directory, args, "cwd");
        value = json_member(args, "version");
        if (value.length && *value.at != '"' && *value.at != '{') add_fact(load, "dftracer_version", value);
    } else if (text_is(event, DFT_NAME, "end")) {
        load->ended = true;
        config = json_member(args, "cfg");
        value = config.length && *config.at == '{' ? json_member(config, "time_metric") : (struct slice){0};
        if (value.length > 2 && *value.at == '"')
            set_unit(load, dftracer_unit((struct slice){value.at + 1, value.length - 2}));
    }
}

/* ---- each event ---- */

/* Finds the time of an event in nanoseconds; of several calls, the interval's start and the sum of their durations.
 * Returns why it is unusable, or NO_FAULT. */
static enum event_fault find_time(struct dftracer_load *load, const struct dftracer_event *event)
{
    struct kineto_event *place = &load->place;
    enum dftracer_number dur = dftracer_has(event, DFT_DUR) ? DFT_DUR : DFT_ARG_DUR;
    bool is_sum = dftracer_has(event, DFT_CALLS);
    if (!dftracer_has(event, DFT_TS)) return NO_TIME;
    if (event->phase == 'X' && !is_sum && !dftracer_has(event, DFT_DUR)) return NO_DURATION;
    if (!load->has_unit) {
        load->has_unit = load->is_guessed = true;
        load->unit = event->number[DFT_TS] >= NO_MICROSECONDS ? UNIT_NS : UNIT_US;
    }
    place->ts = dftracer_ns(event->number[DFT_TS], load->unit);
    place->dur = dftracer_has(event, dur) ? dftracer_ns(event->number[dur], load->unit) : 0;
    if (is_sum && dftracer_has(event, DFT_DUR_SUM)) place->dur = dftracer_ns(event->number[DFT_DUR_SUM], load->unit);
    else if (is_sum && __builtin_mul_overflow(place->dur, event->number[DFT_CALLS], &place->dur)) return BAD_TIME;
    if (place->dur < 0) return NEGATIVE_DURATION;
    return place->ts < 0 || place->ts > LAST_NS || place->dur > LAST_NS / 2 ? BAD_TIME : NO_FAULT;
}

static void count_kind(struct dftracer_load *load, const struct dftracer_event *event)
{
    struct slice category = event->text[DFT_CATEGORY];
    static const struct slice meta = {"metadata", 8}, none = {"no category", 11}, other = {"other categories", 16};
    category = event->phase == 'M' ? meta : category.length ? category : none;
    uint32_t name = cached_name(&load->name_cache, category), at = map_get(&load->kind_of, name);
    if (at == MAP_NONE && load->kinds >= MOST_CATEGORIES) { /* more categories cannot be displayed usefully */
        name = cached_name(&load->name_cache, other);
        at = map_get(&load->kind_of, name);
    }
    if (at == MAP_NONE) {
        at = (uint32_t)load->kinds;
        load->kind = mem_grow(load->kind, &load->kind_capacity, load->kinds + 1, sizeof *load->kind);
        load->kind[load->kinds++] = (struct tally){name, 0};
        map_put(&load->kind_of, name, at);
    }
    load->kind[at].count++;
}

static void take_host(struct dftracer_load *load, const struct dftracer_event *event)
{
    struct slice text = event->text[DFT_HOST], hash = event->text[DFT_HOST_HASH];
    if (text.at) {
        uint32_t name = cached_name(&load->name_cache, text);
        if (name == load->host) return;
        load->host = load->host == NAME_NONE ? name : load->host;
        map_put(&load->hosts, name, 1);
    } else if (hash.at) {
        uint32_t at = hashed_of(load, hash);
        if (at + 1 == load->host_hashed) return;
        load->host_hashed = load->host_hashed ? load->host_hashed : at + 1;
        map_put(&load->hosts, (uint64_t)1 << 32 | at, 1);
    }
}

static void keep_stage(struct dftracer_load *load, const struct dftracer_event *event, uint32_t thread)
{
    struct ranges *r = &load->process->ranges;
    bool details = load->needs.details;
    ranges_reserve(r, 1, details);
    size_t at = r->table.count++;
    r->start[at] = load->place.ts;
    r->end[at] = load->place.ts + load->place.dur;
    r->id[at] = NO_ID;
    r->name[at] = cached_name(&load->name_cache, event->text[DFT_NAME]);
    r->thread[at] = thread;
    r->domain[at] = NAME_NONE;
    r->flags[at] = TFI_RANGE_STAGE | TFI_RANGE_NESTED;
    r->depth[at] = 0;
    r->step[at] = NO_PLACE;
    r->cpu[at] = -1;
    if (details) r->detail[at] = (struct range_detail){0};
}

static void keep_stage_name(struct dftracer_load *load, const struct dftracer_event *event)
{
    struct stage_names *names = &load->process->stage_names;
    uint32_t name = cached_name(&load->name_cache, event->text[DFT_NAME]);
    if (name == NAME_NONE || map_get(&names->known, name) != MAP_NONE) return;
    map_put(&names->known, name, 1);
    names->name = mem_grow(names->name, &names->capacity, names->count + 1, sizeof *names->name);
    names->name[names->count++] = name;
}

static int64_t number_or(const struct dftracer_event *event, enum dftracer_number which, int64_t unknown)
{
    return dftracer_has(event, which) ? event->number[which] : unknown;
}

/* Returns the bytes that a result of fread and fwrite, or their count, stands for: they count items. */
static int64_t bytes_of(const struct dftracer_event *event, int64_t count)
{
    int64_t bytes;
    if (count <= 0) return 0;
    if (!text_is(event, DFT_CATEGORY, "STDIO") || !dftracer_has(event, DFT_SIZE)) return count;
    return __builtin_mul_overflow(count, event->number[DFT_SIZE], &bytes) ? INT64_MAX : MAX(bytes, 0);
}

static void keep_sum(struct dftracer_load *load, const struct dftracer_event *event, size_t at)
{
    struct ios *ios = &load->process->ios;
    struct io_sum *sum = ios_sum(ios, at);
    int64_t calls = event->number[DFT_CALLS];
    sum->calls = (uint64_t)MAX(calls, 0);
    sum->total = load->place.dur;
    if (dftracer_has(event, DFT_ARG_DUR)) /* all calls lasted equally long */
        sum->shortest = sum->longest = dftracer_ns(event->number[DFT_ARG_DUR], load->unit);
    if (dftracer_has(event, DFT_DUR_MIN)) sum->shortest = dftracer_ns(event->number[DFT_DUR_MIN], load->unit);
    if (dftracer_has(event, DFT_DUR_MAX)) sum->longest = dftracer_ns(event->number[DFT_DUR_MAX], load->unit);
    if (ios->bytes[at] == IO_UNKNOWN) return;
    if (dftracer_has(event, DFT_RET_SUM)) {
        sum->bytes = bytes_of(event, event->number[DFT_RET_SUM]);
        sum->smallest = bytes_of(event, number_or(event, DFT_RET_MIN, 0));
        sum->largest = bytes_of(event, number_or(event, DFT_RET_MAX, 0));
    } else if (dftracer_has(event, DFT_RET)) {
        sum->smallest = sum->largest = ios->bytes[at];
        if (__builtin_mul_overflow(ios->bytes[at], calls, &sum->bytes)) sum->bytes = INT64_MAX;
    }
    ios->bytes[at] = sum->bytes;
    ios->result[at] = IO_NO_RESULT;
    if (dftracer_has(event, DFT_COUNT_SUM)) ios->requested[at] = bytes_of(event, event->number[DFT_COUNT_SUM]);
}

static void keep_path(struct dftracer_load *load, const struct dftracer_event *event, size_t at)
{
    struct ios *ios = &load->process->ios;
    struct slice file = event->text[DFT_FILE], hash = event->text[DFT_FILE_HASH];
    if (file.at) {
        ios->path[at] = cached_name(&load->name_cache, file);
    } else if (hash.at) {
        uint32_t hashed = hashed_of(load, hash);
        ios->path[at] = load->hashed[hashed].name;
        if (ios->path[at] != NAME_NONE) return;
        load->fixup = mem_grow(load->fixup, &load->fixup_capacity, load->fixups + 1, sizeof *load->fixup);
        load->fixup[load->fixups++] = (struct fixup){at, hashed};
    }
}

static void keep_io(struct dftracer_load *load, const struct dftracer_event *event, uint32_t thread)
{
    struct ios *ios = &load->process->ios;
    size_t at = ios_add(ios);
    uint32_t library = cached_name(&load->name_cache, event->text[DFT_CATEGORY]);
    uint32_t name = cached_name(&load->name_cache, event->text[DFT_NAME]);
    ios->function[at] = ios_function(ios, load->names, library, name);
    ios->start[at] = load->place.ts;
    ios->end[at] = load->place.ts + load->place.dur;
    ios->thread[at] = thread;
    ios->result[at] = number_or(event, DFT_RET, IO_NO_RESULT);
    ios->offset[at] = number_or(event, DFT_OFFSET, IO_UNKNOWN);
    ios->fd[at] = (int32_t)MIN(MAX(number_or(event, DFT_FD, IO_UNKNOWN), IO_UNKNOWN), INT32_MAX);
    if (dftracer_has(event, DFT_RET)) ios->error[at] = ios->result[at] < 0 ? IO_SOME_ERROR : 0;
    enum io_kind kind = ios->of_name[ios->function[at]].kind;
    if (kind == IO_READ || kind == IO_WRITE || kind == IO_COPY) {
        if (dftracer_has(event, DFT_COUNT)) ios->requested[at] = bytes_of(event, event->number[DFT_COUNT]);
        if (dftracer_has(event, DFT_RET) || dftracer_has(event, DFT_RET_SUM))
            ios->bytes[at] = bytes_of(event, number_or(event, DFT_RET, 0));
    }
    keep_path(load, event, at);
    if (dftracer_has(event, DFT_CALLS)) keep_sum(load, event, at);
}

static void extend(struct process *process, int64_t start, int64_t end)
{
    process->first = process->has_time ? MIN(process->first, start) : start;
    process->last = process->has_time ? MAX(process->last, end) : end;
    process->earliest = process->first;
    process->has_time = true;
}

static void load_dftracer_event(void *context, const struct dftracer_event *event)
{
    struct dftracer_load *load = context;
    enum dftracer_class event_class = dftracer_class(event);
    if (event_class == DFTRACER_META) {
        count_kind(load, event);
        take_meta(load, event);
        return;
    }
    enum event_fault fault = find_time(load, event);
    if (fault != NO_FAULT) {
        load->faults.count[fault]++;
        return;
    }
    count_kind(load, event);
    take_host(load, event);
    extend(load->process, load->place.ts, load->place.ts + load->place.dur);
    take_place(&load->place, event);
    uint32_t thread = threads_take(&load->threads, load->process, load->names, &load->place);
    if (event_class == DFTRACER_SELF) take_self(load, event);
    else if (event_class == DFTRACER_IO && load->needs.io) keep_io(load, event, thread);
    else if (event_class == DFTRACER_STAGE && dftracer_has(event, DFT_CALLS)) load->no_stage++;
    else if (event_class == DFTRACER_STAGE && load->needs.ranges) keep_stage(load, event, thread);
    if (event_class == DFTRACER_STAGE && load->needs.stage_names) keep_stage_name(load, event);
}

/* ---- the whole trace ---- */

static char *text_of_hash(struct dftracer_load *load, const char *hash)
{
    struct slice slice = {hash, hash ? strlen(hash) : 0};
    uint32_t at = hash ? map_get(&load->hashed_of, hash_text(slice.at, slice.length)) : MAP_NONE;
    bool known = at != MAP_NONE && load->hashed[at].name != NAME_NONE;
    return known ? string_format("%s", names_get(load->names, load->hashed[at].name)->text) : NULL;
}

static void lose(struct dftracer_load *load, const struct dftracer_damage *damage, struct notes *notes)
{
    struct process *p = load->process;
    faults_conclude(&load->faults, p, notes);
    process_lose(p, "aggregated_stage", load->no_stage, false);
    if (load->no_stage)
        notes_add(
            notes, NOTE,
            "%llu rows add up several calls of application-level functions: they have no single times, and are no "
            "stages",
            (unsigned long long)load->no_stage);
    if (load->more_facts)
        notes_add(notes, NOTE, "%llu more facts about the run are not shown", (unsigned long long)load->more_facts);
    process_lose(p, "bad_line", damage->bad, true);
    process_lose(p, "cut", damage->cut, true);
    if (load->started && !load->ended && !damage->cut && !damage->broken)
        notes_add(
            notes, NOTE,
            "has no end event: its process was killed, ran another program (exec), or still runs; its last events "
            "may be missing");
}

static void take_host_name(struct dftracer_load *load, struct notes *notes)
{
    uint32_t host = load->host != NAME_NONE ? load->host
                    : load->host_hashed     ? explained(load, load->host_hashed - 1)
                                            : NAME_NONE;
    if (host != NAME_NONE) load->info.host = string_format("%s", names_get(load->names, host)->text);
    if (load->hosts.count > 1)
        notes_add(notes, NOTE, "has events of %zu hosts: threads with equal numbers are taken as one",
                  load->hosts.count);
}

static void conclude(struct dftracer_load *load, const struct dftracer_damage *damage, struct notes *notes)
{
    struct process *p = load->process;
    lose(load, damage, notes);
    for (size_t i = 0; i < load->kinds; i++)
        process_count(p, (uint32_t)i, names_get(load->names, load->kind[i].name)->text, load->kind[i].count);
    for (size_t i = 0; i < load->fixups; i++) p->ios.path[load->fixup[i].at] = explained(load, load->fixup[i].hashed);
    fold_names(p, load->names);
    threads_conclude(&load->threads, p);
    take_host_name(load, notes);
    info_conclude(&load->info, load->names, p, notes);
    p->command = text_of_hash(load, load->command);
    p->directory = text_of_hash(load, load->directory);
    p->time_unit = load->has_unit ? load->unit : UNIT_US;
    p->clock.is_nanoseconds = true;
    clock_build(&p->clock);
    p->clock.has_axis = true;
    p->complete = !damage->cut && !damage->broken && !damage->bad && (!load->started || load->ended);
}

static void load_begin(struct dftracer_load *load)
{
    name_cache_init(&load->name_cache, load->names);
    load->process->metadata = mem_zero(1, sizeof *load->process->metadata);
    load->process->earliest = LAST_NS;
}

static bool load_end(struct dftracer_load *load, bool usable, const struct dftracer_damage *damage, struct notes *notes)
{
    if (usable) conclude(load, damage, notes);
    name_cache_free(&load->name_cache);
    threads_free(&load->threads);
    info_free(&load->info);
    map_free(&load->kind_of);
    map_free(&load->hashed_of);
    map_free(&load->hosts);
    free(load->kind);
    free(load->hashed);
    free(load->fixup);
    free(load->command);
    free(load->directory);
    return usable;
}

bool load_dftracer(const char *path, const struct stream_way *way, struct names *names, struct needs needs,
                   struct process *process, struct notes *notes, atomic_ullong *done)
{
    struct dftracer_load load = {.names = names, .process = process, .needs = needs};
    const struct dftracer_sink sink = {&load, load_dftracer_event};
    struct dftracer_damage damage;
    load_begin(&load);
    bool usable = dftracer_read(path, way->how, &sink, &damage, notes, done);
    return load_end(&load, usable, &damage, notes);
}

bool load_dftracer_bytes(const void *bytes, size_t length, size_t piece, size_t longest, struct names *names,
                         struct needs needs, struct process *process, struct notes *notes)
{
    struct dftracer_load load = {.names = names, .process = process, .needs = needs};
    const struct dftracer_sink sink = {&load, load_dftracer_event};
    struct dftracer_damage damage;
    load_begin(&load);
    bool usable = dftracer_read_bytes(bytes, length, piece, longest, &sink, &damage, notes);
    return load_end(&load, usable, &damage, notes);
}
