/* load_flight.c - loads the collectives of a flight recorder's dump, and the Python frames of the last one.
 *
 * An entry is a call of a process group. It has ended once it is retired or completed; an entry of gloo has no time of
 * its end, so the moment of its call stands for it. A dump names no rank: it comes from the command line or from the
 * file's name. The recorder keeps the latest entries only, and a dump may have the active ones only; the numbers of the
 * last calls, which every dump has, show whether the last ones are there.
 *
 * A pickle may use one large value many times, so that reading each entry in full could take the square of the file's
 * size. The ranks of a group are read once, and the rest of all entries up to MOST_STEPS.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/frames.h"
#include "model/load/load_kineto.h"
#include "read/torch/flight.h"

enum {
    MAIN = 1,
    MOST_ENTRIES = 1 << 20,
    MOST_STEPS = 1 << 28, /* bytes of texts and sizes of tensors */
    LONGEST_NUMBER = 24,  /* characters */
    LONGEST_FRAME = 4096, /* bytes of a function, and of a file */
};

struct dump {
    struct process *process;
    struct names *names;
    json_t *root;
    int64_t last;       /* time of the last call */
    const json_t *open; /* the last entry that has not ended */
    uint64_t bad;       /* entries that are none */
    uint64_t steps;
    struct map members, size; /* of the text of a group's ranks, by its address: name, and number of ranks */
};

static uint32_t text_name(struct dump *d, const json_t *text)
{
    if (!json_is_string(text)) return NAME_NONE;
    d->steps += json_string_length(text);
    return names_add(d->names, json_string_value(text), json_string_length(text));
}

static int64_t number_of(const json_t *object, const char *key, int64_t unknown)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value)) return json_integer_value(value);
    bool is_short = json_is_string(value) && json_string_length(value) <= LONGEST_NUMBER;
    return is_short ? strtoll(json_string_value(value), NULL, 10) : unknown;
}

/* ---- entries ---- */

/* Returns the number of elements of all tensors in a list of shapes. */
static uint64_t elements_of(struct dump *d, const json_t *shapes)
{
    uint64_t all = 0;
    if (!json_is_array(shapes)) return UNKNOWN_COUNT;
    for (size_t i = 0; i < json_array_size(shapes); i++) {
        if (d->steps > MOST_STEPS) return UNKNOWN_COUNT;
        const json_t *shape = json_array_get(shapes, i);
        uint64_t count = 1;
        d->steps += 1 + json_array_size(shape);
        for (size_t k = 0; k < json_array_size(shape); k++) {
            json_int_t size = json_integer_value(json_array_get(shape, k));
            if (size < 0 || __builtin_mul_overflow(count, (uint64_t)size, &count)) return UNKNOWN_COUNT;
        }
        if (__builtin_add_overflow(all, count, &all)) return UNKNOWN_COUNT;
    }
    return all;
}

static const json_t *group_config(const struct dump *d, const char *group)
{
    const json_t *all = json_object_get(d->root, "pg_config"), *own = json_object_get(all, group);
    return own ? own : strcmp(group, "0") == 0 ? json_object_get(all, "") : NULL; /* gloo's default group has no name */
}

static void take_members(struct dump *d, struct collective *c, const json_t *ranks)
{
    uint64_t key = (uint64_t)(uintptr_t)ranks;
    uint32_t size = map_get(&d->size, key);
    if (size == MAP_NONE) {
        size = 1;
        for (const char *at = json_string_value(ranks); *at; at++) size += *at == ',';
        map_put(&d->size, key, size);
        map_put(&d->members, key, text_name(d, ranks));
    }
    c->members = map_get(&d->members, key);
    c->size = size;
}

static void take_group(struct dump *d, struct collective *c, const json_t *entry)
{
    const json_t *group = json_object_get(entry, "process_group"), *name = json_array_get(group, 0);
    c->communicator = text_name(d, name);
    c->description = text_name(d, json_array_get(group, 1));
    if (!json_is_string(name)) return;
    const json_t *ranks = json_object_get(group_config(d, json_string_value(name)), "ranks");
    if (!json_is_string(ranks)) return;
    take_members(d, c, ranks);
    if (strcmp(json_string_value(name), "0") == 0) d->process->world = c->size; /* the default group */
}

/* "gloo:all_reduce" */
static void take_operation(struct dump *d, struct collective *c, const json_t *entry)
{
    const json_t *name = json_object_get(entry, "profiling_name");
    const json_t *type = json_array_get(json_object_get(entry, "input_dtypes"), 0);
    c->name = text_name(d, name);
    if (json_is_string(name)) c->op = (uint8_t)collective_op_of(json_string_value(name), json_string_length(name));
    c->datatype = text_name(d, type);
    c->elements_in = elements_of(d, json_object_get(entry, "input_sizes"));
    c->elements_out = elements_of(d, json_object_get(entry, "output_sizes"));
    if (json_is_string(type)) collective_size(c, collective_type_bytes(json_string_value(type), false));
}

/* Takes the ranks of "nccl:send 0->1" and "nccl:recv 0<-1", numbered in the group: the first one is this process. */
static void take_ranks_of_message(struct collective *c, const char *name)
{
    const char *space = name ? strrchr(name, ' ') : NULL;
    long long own, other;
    int length = 0;
    if (!space) return;
    bool sends = sscanf(space, " %lld->%lld%n", &own, &other, &length) == 2 && !space[length];
    bool receives = !sends && sscanf(space, " %lld<-%lld%n", &own, &other, &length) == 2 && !space[length];
    if ((!sends && !receives) || own < 0 || other < 0 || own > INT32_MAX || other > INT32_MAX) return;
    c->rank = own;
    c->source = sends ? own : other;
    c->peer = sends ? other : own;
}

static bool has_ended(const json_t *entry)
{
    const json_t *state = json_object_get(entry, "state");
    return json_is_true(json_object_get(entry, "retired")) ||
           (json_is_string(state) && strcmp(json_string_value(state), "completed") == 0);
}

static void take_entry(struct dump *d, const json_t *entry)
{
    int64_t called = number_of(entry, "time_created_ns", -1), end = number_of(entry, "time_discovered_completed_ns", 0);
    bool is_message = json_is_true(json_object_get(entry, "is_p2p"));
    if (called < 0 || !json_is_array(json_object_get(entry, "process_group"))) {
        d->bad++;
        return;
    }
    struct collective *c = collectives_add(&d->process->collectives);
    take_operation(d, c, entry);
    take_group(d, c, entry);
    if (is_message) take_ranks_of_message(c, json_string_value(json_object_get(entry, "profiling_name")));
    c->sequence = number_of(entry, is_message ? "p2p_seq_id" : "collective_seq_id", UNKNOWN_NUMBER);
    c->thread = MAIN;
    c->call_start = called;
    if (has_ended(entry)) {
        c->call_end = called;
        c->start = called;
        c->end = MAX(end, called);
    }
    if (called < d->last) return;
    d->last = called;
    d->open = has_ended(entry) ? NULL : entry;
}

/* ---- the process ---- */

/* True if each group's last call, by the numbers beside the entries, is among the entries. */
static bool has_last_calls(const json_t *root)
{
    const char *group;
    json_t *status, *all = json_object_get(root, "pg_status"), *entries = json_object_get(root, "entries");
    struct map last = {0}; /* by number of the group; 0: none */
    bool whole = true;
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *entry = json_array_get(entries, i);
        int64_t number = number_of(entry, "collective_seq_id", 0);
        uint64_t key = (uint64_t)number_of(entry, "pg_id", 0);
        uint32_t before = map_get(&last, key), now = (uint32_t)MIN(MAX(number, 0), UINT32_MAX - 1);
        if (before == MAP_NONE || before < now) map_put(&last, key, now);
    }
    json_object_foreach(all, group, status)
    {
        uint32_t seen = map_get(&last, strtoull(group, NULL, 10));
        whole &= number_of(status, "last_enqueued_collective", 0) <= (seen == MAP_NONE ? 0 : (int64_t)seen);
    }
    map_free(&last);
    return whole;
}

/* The number at the end of the name, as torch writes it. */
static int64_t rank_at_end(const char *path)
{
    size_t end = strlen(path);
    if (end > 5 && strcmp(path + end - 5, ".json") == 0) end -= 5;
    size_t from = end;
    while (from && path[from - 1] >= '0' && path[from - 1] <= '9') from--;
    return end > from && end - from < 10 ? strtoll(path + from, NULL, 10) : -1;
}

/* The frames of the call that has not ended show where the rank waits. */
static void take_frames(struct dump *d)
{
    struct process *p = d->process;
    const json_t *frames = json_object_get(d->open, "frames");
    uint32_t frame[TFI_STACK_FRAMES];
    size_t count = MIN(json_array_size(frames), TFI_STACK_FRAMES);
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_array_get(frames, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        const char *file = json_string_value(json_object_get(one, "filename"));
        char *text = string_format("%.*s\t%.*s\t%lld", LONGEST_FRAME, name ? name : "?", LONGEST_FRAME,
                                   file ? file : "?", (long long)number_of(one, "line", 0));
        frame[i] = names_add(d->names, text, strlen(text));
        free(text);
    }
    if (!count) return;
    p->silence = mem_zero(1, sizeof *p->silence);
    p->silences = 1;
    p->silence[0] = (struct silence){MAIN, 0, d->last, d->last, stack_add(d->names, frame, count), 0, NAME_NONE, false};
}

static void describe(struct dump *d, const char *path)
{
    struct process *p = d->process;
    struct thread *thread = process_thread(p, MAIN);
    p->rank = rank_at_end(path);
    p->has_time = thread->has_time = p->collectives.count > 0;
    p->first = p->collectives.count ? p->collectives.collective[0].call_start : 0;
    for (size_t i = 0; i < p->collectives.count; i++) p->first = MIN(p->first, p->collectives.collective[i].call_start);
    p->last = d->last;
    thread->first = p->first;
    thread->last = p->last;
    p->clock.has_axis = true;
    p->events = p->collectives.count;
    p->life = LIFE_DEAD; /* is_life_known stays false: nothing tells whether the process runs */
    p->read_at = 1;      /* there is no .live file that could be missing */
}

/* Loads a dump, and frees it; `why` tells why there is none, and is freed too. */
static bool load(json_t *root, char *why, const char *path, struct names *names, struct process *process,
                 struct notes *notes)
{
    struct dump d = {.process = process, .names = names, .root = root, .last = INT64_MIN};
    if (!root) {
        notes_add(notes, UNUSABLE, "%s", why);
        free(why);
        return false;
    }
    const json_t *entries = json_object_get(root, "entries");
    size_t count = MIN(json_array_size(entries), (size_t)MOST_ENTRIES), i = 0;
    while (i < count && d.steps < MOST_STEPS) take_entry(&d, json_array_get(entries, i++));
    d.bad += json_array_size(entries) - i;
    describe(&d, path);
    take_frames(&d);
    collectives_finish(&process->collectives);
    if (d.bad) {
        notes_add(notes, LOSS, "%llu entries are not valid; they were left out", (unsigned long long)d.bad);
        process_lose(process, "damaged", d.bad, true);
    }
    if (!has_last_calls(d.root)) {
        notes_add(notes, LOSS,
                  "lacks the last calls of a group: it was dumped with active calls only; dump all of them");
        process_lose(process, "missing", 1, true);
    }
    process->complete = !notes_have(notes, LOSS);
    map_free(&d.members);
    map_free(&d.size);
    json_decref(root);
    return true;
}

bool load_flight_bytes(const char *bytes, size_t length, const char *path, struct names *names, struct process *process,
                       struct notes *notes)
{
    char *why;
    json_t *root = flight_parse(bytes, length, &why);
    return load(root, why, path, names, process, notes);
}

bool load_flight(const char *path, const struct stream_way *way, struct names *names, struct needs needs,
                 struct process *process, struct notes *notes, atomic_ullong *done)
{
    char *why;
    json_t *root = flight_read(path, way->how, &why);
    (void)needs; /* a dump has collectives only */
    bool usable = load(root, why, path, names, process, notes);
    atomic_fetch_add_explicit(done, process->collectives.count, memory_order_relaxed);
    return usable;
}
