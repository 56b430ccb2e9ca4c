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

/* Collects the arguments of an event as an object on one line, without files and hosts: these become hashes. */
static void collect_args(struct pfw *file, struct slice args)
{
    struct slice key, value;
    file->args.length = 0;
    text_puts(&file->args, "{");
    while (args.at && json_next(&args, &key, &value)) {
        if (!key.at || is_own_key(key)) continue;
        text_puts(&file->args, file->args.length > 1 ? ",\"" : "\"");
        text_add(&file->args, key.at, key.length);
        text_puts(&file->args, "\":");
        text_add(&file->args, value.at, value.length);
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
    {"kernel", "CUDA_KERNEL"},     {"gpu_memcpy", "CUDA_MEMCPY"},          {"gpu_memset", "CUDA_MEMSET"},
    {"cuda_sync", "CUDA_SYNC"},    {"cuda_driver", "CUDA_DRIVER_API"},     {"cuda_runtime", "CUDA_RUNTIME_API"},
    {"overhead", "CUDA_OVERHEAD"}, {"gpu_user_annotation", "CUDA_MARKER"},
};

static char *category_of(const struct kineto_event *event)
{
    for (size_t i = 0; i < ARRAY_SIZE(categories); i++)
        if (event->category.at && slice_is(event->category, categories[i].of_kineto))
            return string_format("%s", categories[i].of_dftracer);
    return event->category.length ? mem_text(event->category.at, event->category.length) : string_format("event");
}

static int64_t shifted_us(const struct pfw *file, int64_t ns)
{
    ns = clock_shifted(&file->shift, ns);
    return ns / 1000 - (ns % 1000 < 0);
}

static void put_event(struct pfw *file, const struct kineto_event *event, int64_t start, int64_t end)
{
    char path[17] = "", *category = category_of(event),
         *name = mem_text(event->name.at ? event->name.at : "", event->name.length);
    struct slice file_name = event->args.at ? json_member(event->args, "fname") : (struct slice){0};
    char *file_text = file_name.length ? json_text(file_name) : NULL;
    int64_t from = shifted_us(file, start), to = shifted_us(file, end);
    if (file_text) hash_of(file, "FH", file_text, strlen(file_text), path);
    collect_args(file, event->args);
    begin_line(file, name, category, pid_of(file), event->has & HAS_TID ? event->tid : pid_of(file));
    out_format(file->out, ",\"ts\":%lld,\"dur\":%lld,\"ph\":\"X\"", (long long)from, (long long)(to - from));
    put_args(file, path);
    file->events++;
    free(file_text);
    free(category);
    free(name);
}

/* Takes a half of a pair. The second half has the name, and the first half the time of the beginning. */
static void take_half(struct pfw *file, const struct kineto_event *event)
{
    uint32_t at = event->has & HAS_ID ? map_get(&file->pair_start, event->id) : MAP_NONE;
    if (event->phase == 'b' && event->has & HAS_ID) {
        at = at == MAP_NONE ? (uint32_t)file->starts++ : at;
        file->start = mem_grow(file->start, &file->start_capacity, file->starts, sizeof *file->start);
        file->start[at] = event->ts;
        map_put(&file->pair_start, event->id, at);
    } else if (at != MAP_NONE && event->ts >= file->start[at]) {
        put_event(file, event, file->start[at], event->ts);
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

static void begin_process(void *context, const struct process *process, int64_t pid)
{
    struct pfw *file = context;
    char command[17] = "", directory[17] = "", rank[24];
    const char *host = process->host ? process->host : "unknown";
    (void)pid; /* a number of the exported file: dftracer keeps that of the process */
    file->process = process;
    map_free(&file->pair_start);
    file->starts = 0;
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
    map_free(&file->pair_start);
    text_free(&file->args);
    strict_free(&file->strict);
    free(file->start);
    *file = (struct pfw){0};
}
