/* pfw.c - turns the events of an export into lines as dftracer 1.0 to 2.0 writes them: letters for phases and brackets
 * around the lines, with the hexadecimal hashes of later versions. Tools of all versions read this form.
 *
 * Times are whole microseconds since 1970. Both ends of an event are rounded down, so that an event inside another one
 * stays inside. A hash is a function of its text, as in dftracer, so that files can be put together. If two texts of a file
 * clash, the later one takes the next number.
 */
#include "write/dftracer/pfw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- hashes ---- */

/* FNV-1a: the same in each run, unlike base/hash.h. */
static uint64_t fixed_hash(const char *text, size_t length)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static void begin_line(struct pfw *file, const char *name, const char *category, int64_t pid, int64_t tid)
{
    out_format(file->out, "{\"id\":%llu,\"name\":", (unsigned long long)file->id++);
    out_json_string(file->out, name, strlen(name));
    out_puts(file->out, ",\"cat\":");
    out_json_string(file->out, category, strlen(category));
    out_format(file->out, ",\"pid\":%lld,\"tid\":%lld", (long long)pid, (long long)tid);
}

static int64_t pid_of(const struct pfw *file)
{
    return MAX(file->process->pid, 0);
}

static void put_fact(struct pfw *file, const char *kind, const char *name, size_t length, const char *value)
{
    begin_line(file, kind, "dftracer", pid_of(file), pid_of(file));
    out_puts(file->out, ",\"ph\":\"M\",\"args\":{\"name\":");
    out_json_string(file->out, name, length);
    out_puts(file->out, ",\"value\":");
    out_json_string(file->out, value, strlen(value));
    out_puts(file->out, "}}\n");
}

/* Writes the hash of a text to `hash`, and explains it in the file at its first use. */
static void hash_of(struct pfw *file, const char *kind, const char *text, size_t length, char hash[17])
{
    size_t at = map_number(&file->hashed, names_add(&file->texts, text, length));
    bool is_new = at == file->hashes;
    if (is_new) {
        uint64_t number = fixed_hash(text, length);
        while (map_get(&file->taken, number) != MAP_NONE) number++;
        map_put(&file->taken, number, 1);
        file->hash = mem_grow(file->hash, &file->hash_capacity, ++file->hashes, sizeof *file->hash);
        file->hash[at] = number;
    }
    snprintf(hash, 17, "%016llx", (unsigned long long)file->hash[at]);
    if (is_new) put_fact(file, kind, text, length, hash);
}

/* ---- arguments ---- */

static bool is_own_key(struct slice key)
{
    return json_is_key(key, "fname") || json_is_key(key, "hostname") || json_is_key(key, "fhash") ||
           json_is_key(key, "hhash");
}

static struct slice object_of(struct slice args, const char *key)
{
    struct slice value = args.at ? json_member(args, key) : (struct slice){0};
    return value.length && *value.at == '{' ? value : (struct slice){0};
}

static void add_args(struct pfw *file, struct slice args)
{
    struct slice key, value;
    while (args.at && json_next(&args, &key, &value)) {
        if (!key.at || is_own_key(key) || json_is_key(key, "dftracer")) continue;
        text_puts(&file->args, file->args.length > 1 ? ",\"" : "\"");
        text_add(&file->args, key.at, key.length);
        text_puts(&file->args, "\":");
        text_add(&file->args, value.at, value.length);
    }
}

/* Collects the arguments of an event as an object on one line, without files and hosts: these become hashes. `said` is
 * what the program told dftracer of the event: its arguments stand among the others, as dftracer writes them. */
static void collect_args(struct pfw *file, struct slice args, struct slice said)
{
    struct slice relations = object_of(said, "relations");
    file->args.length = 0;
    text_puts(&file->args, "{");
    add_args(file, args);
    add_args(file, object_of(said, "args"));
    if (relations.at) {
        text_puts(&file->args, file->args.length > 1 ? ",\"relations\":" : "\"relations\":");
        text_add(&file->args, relations.at, relations.length);
    }
    text_puts(&file->args, "}");
    struct slice valid = strict_json(&file->strict, (struct slice){file->args.data, file->args.length});
    if (valid.at != file->args.data) {
        file->args.length = 0;
        text_add(&file->args, valid.at, valid.length);
    }
    for (size_t i = 0; i < file->args.length; i++)
        if ((unsigned char)file->args.data[i] < 0x20) file->args.data[i] = ' ';
}

static void put_args(struct pfw *file, const char *path)
{
    out_format(file->out, ",\"args\":{\"hhash\":\"%s\"", file->host);
    if (*path) out_format(file->out, ",\"fhash\":\"%s\"", path);
    if (file->args.length > 2) out_puts(file->out, ",");
    out_write(file->out, file->args.data + 1, file->args.length - 1);
    out_puts(file->out, "}\n");
}

/* ---- events ---- */

static const struct {
    const char *of_kineto, *of_dftracer;
} categories[] = {
    {"kernel", "_KERNEL"},          {"gpu_memcpy", "_MEMCPY"},
    {"gpu_memset", "_MEMSET"},      {"cuda_sync", "_SYNC"},
    {"cuda_driver", "_DRIVER_API"}, {"cuda_runtime", "_RUNTIME_API"},
    {"overhead", "_OVERHEAD"},      {"gpu_user_annotation", "_MARKER"},
    {"npu_kernel", "_KERNEL"},      {"npu_memcpy", "_MEMCPY"},
    {"npu_sync", "_SYNC"},
};

/* dftracer's names for the work of devices begin with CUDA; those of other devices with their own word. */
static char *category_of(const struct pfw *file, const struct kineto_event *event, struct slice said)
{
    struct slice own = said.at ? json_member(said, "cat") : (struct slice){0};
    const char *word = file->process->device_word ? file->process->device_word : "CUDA";
    if (own.length && *own.at == '"') return json_text(own);
    for (size_t i = 0; i < ARRAY_SIZE(categories); i++)
        if (event->category.at && slice_is(event->category, categories[i].of_kineto))
            return string_format("%s%s", word, categories[i].of_dftracer);
    return event->category.length ? mem_text(event->category.at, event->category.length) : string_format("event");
}

static int64_t shifted_us(const struct pfw *file, int64_t ns)
{
    ns = clock_shifted(&file->shift, ns);
    return ns / 1000 - (ns % 1000 < 0);
}

static void put_event(struct pfw *file, const struct kineto_event *event, int64_t start, int64_t end)
{
    struct slice said = object_of(event->args, "dftracer"), inner = object_of(said, "args");
    char path[17] = "", *category = category_of(file, event, said),
         *name = mem_text(event->name.at ? event->name.at : "", event->name.length);
    struct slice with_name = inner.at && json_member(inner, "fname").at ? inner : event->args;
    struct slice file_name = with_name.at ? json_member(with_name, "fname") : (struct slice){0};
    char *file_text = file_name.length ? json_text(file_name) : NULL;
    int64_t from = shifted_us(file, start), to = shifted_us(file, end);
    if (file_text) hash_of(file, "FH", file_text, strlen(file_text), path);
    collect_args(file, event->args, said);
    begin_line(file, name, category, pid_of(file), event->has & HAS_TID ? event->tid : pid_of(file));
    out_format(file->out, ",\"ts\":%lld,\"dur\":%lld,\"ph\":\"X\"", (long long)from, (long long)(to - from));
    put_args(file, path);
    file->events++;
    free(file_text);
    free(category);
    free(name);
}

static void begin_pair(struct pfw *file, const struct kineto_event *event, uint32_t at)
{
    struct text args = {0};
    if (at == MAP_NONE) {
        at = (uint32_t)file->halves++;
        file->half = mem_grow(file->half, &file->half_capacity, file->halves, sizeof *file->half);
        map_put(&file->pair_of, event->id, at);
    } else {
        free(file->half[at].args);
    }
    if (event->args.at) text_add(&args, event->args.at, event->args.length);
    file->half[at] = (struct half){event->ts, event->args.at ? (char *)json_padded(&args).at : NULL};
}

/* Takes a half of a pair. Both have the name; the first half has the time of the beginning and the arguments. */
static void take_half(struct pfw *file, const struct kineto_event *event)
{
    uint32_t at = event->has & HAS_ID ? map_get(&file->pair_of, event->id) : MAP_NONE;
    struct half *half = at == MAP_NONE ? NULL : &file->half[at];
    if (event->phase == 'b' && event->has & HAS_ID) {
        begin_pair(file, event, at);
    } else if (half && event->ts >= half->start) {
        struct kineto_event whole = *event;
        if (!whole.args.at && half->args) whole.args = (struct slice){half->args, strlen(half->args)};
        put_event(file, &whole, half->start, event->ts);
        free(half->args);
        half->args = NULL;
    } else {
        file->left_out++;
    }
}

static void take_name(struct pfw *file, const struct kineto_event *event)
{
    struct slice name = event->args.at ? json_member(event->args, "name") : (struct slice){0};
    char *text = slice_is(event->name, "thread_name") && name.length ? json_text(name) : NULL;
    if (!text || !(event->has & HAS_TID)) {
        free(text);
        return;
    }
    begin_line(file, "thread_name", "dftracer", pid_of(file), event->tid);
    out_puts(file->out, ",\"ph\":\"M\",\"args\":{\"name\":");
    out_json_string(file->out, text, strlen(text));
    out_puts(file->out, ",\"value\":\"thread_name\"}}\n");
    free(text);
}

static void take_event(void *context, const struct kineto_event *event)
{
    struct pfw *file = context;
    bool is_moment = event->phase == 'i' || event->phase == 'I';
    if (event->phase == 'M') take_name(file, event);
    else if (event->category.at && slice_is(event->category, "dftracer")) return; /* start and end: written anew */
    else if (!(event->has & HAS_TS)) file->left_out++;
    else if (event->phase == 'X' && event->has & HAS_DUR)
        put_event(file, event, event->ts, add_ns(event->ts, event->dur));
    else if (is_moment) put_event(file, event, event->ts, event->ts);
    else if (event->phase == 'b' || event->phase == 'e') take_half(file, event);
    else file->left_out++;
}

/* ---- a process ---- */

static void put_self(struct pfw *file, const char *name, int64_t time)
{
    begin_line(file, name, "dftracer", pid_of(file), pid_of(file));
    out_format(file->out, ",\"ts\":%lld,\"dur\":0,\"ph\":\"X\"", (long long)shifted_us(file, time));
}

static void forget_pairs(struct pfw *file)
{
    for (size_t i = 0; i < file->halves; i++) free(file->half[i].args);
    map_free(&file->pair_of);
    file->halves = 0;
}

static void begin_process(void *context, const struct process *process, int64_t pid)
{
    struct pfw *file = context;
    char command[17] = "", directory[17] = "", rank[24];
    const char *host = process->host ? process->host : "unknown";
    (void)pid; /* a number of the exported file: dftracer keeps that of the process */
    file->process = process;
    forget_pairs(file);
    hash_of(file, "HH", host, strlen(host), file->host);
    if (process->command) hash_of(file, "SH", process->command, strlen(process->command), command);
    if (process->directory) hash_of(file, "SH", process->directory, strlen(process->directory), directory);
    snprintf(rank, sizeof rank, "%lld", (long long)process->rank);
    if (process->rank >= 0) put_fact(file, "PR", "rank", strlen("rank"), rank);
    put_self(file, "start", process->has_time ? process->first : 0);
    out_format(file->out, ",\"args\":{\"hhash\":\"%s\"", file->host);
    if (*command) out_format(file->out, ",\"cmd_hash\":\"%s\"", command);
    if (*directory) out_format(file->out, ",\"cwd\":\"%s\"", directory);
    out_puts(file->out, ",\"writer\":\"tfanalyze " TFI_VERSION "\"}}\n");
}

static void end_process(void *context)
{
    struct pfw *file = context;
    put_self(file, "end", file->process->has_time ? file->process->last : 0);
    out_format(file->out, ",\"args\":{\"hhash\":\"%s\",\"num_events\":%llu}}\n", file->host,
               (unsigned long long)file->id - 2);
}

/* ---- the file ---- */

void pfw_open(struct pfw *file, struct out *out)
{
    *file = (struct pfw){.out = out, .id = 1};
    names_init(&file->texts);
    out_puts(out, "[\n");
}

struct event_taker pfw_taker(struct pfw *file)
{
    return (struct event_taker){
        .context = file, .begin = begin_process, .event = take_event, .end = end_process, .only_kept = true};
}

void pfw_close(struct pfw *file)
{
    out_puts(file->out, "]\n");
    names_free(&file->texts);
    map_free(&file->hashed);
    free(file->hash);
    map_free(&file->taken);
    forget_pairs(file);
    free(file->half);
    text_free(&file->args);
    strict_free(&file->strict);
    *file = (struct pfw){0};
}
