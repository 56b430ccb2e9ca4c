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

#include "ask/left_out.h"
#include "write/emit.h"

/* ---- hashes ---- */

/* FNV-1a: the same in each run, unlike base/hash.h. */
static uint64_t fixed_hash(const char *text, size_t length)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static struct slice slice_of(const char *text)
{
    return (struct slice){text, strlen(text)};
}

/* Returns the text before its first zero. */
static struct slice up_to_zero(struct slice text)
{
    return (struct slice){text.at, text.length ? strnlen(text.at, text.length) : 0};
}

static void put_number(struct pfw *file, const char *before, int64_t number)
{
    out_puts(file->out, before);
    out_int(file->out, number);
}

static void begin_line(struct pfw *file, struct slice name, struct slice category, int64_t pid, int64_t tid)
{
    put_number(file, "{\"id\":", (int64_t)file->id++);
    out_puts(file->out, ",\"name\":");
    out_json_string(file->out, name.at, name.length);
    out_puts(file->out, ",\"cat\":");
    out_json_string(file->out, category.at, category.length);
    put_number(file, ",\"pid\":", pid);
    put_number(file, ",\"tid\":", tid);
}

static int64_t pid_of(const struct pfw *file)
{
    return MAX(file->process->pid, 0);
}

static void put_fact(struct pfw *file, const char *kind, const char *name, size_t length, const char *value)
{
    begin_line(file, slice_of(kind), slice_of("dftracer"), pid_of(file), pid_of(file));
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

/* Files and hosts become hashes; what the program told dftracer is taken apart. */
static bool is_own_key(const struct value *value)
{
    return value_has_key(value, "fname") || value_has_key(value, "hostname") || value_has_key(value, "fhash") ||
           value_has_key(value, "hhash") || value_has_key(value, "dftracer");
}

static struct slice object_of(struct slice said, const char *key)
{
    struct slice value = said.at ? json_member(said, key) : (struct slice){0};
    return value.length && *value.at == '{' ? value : (struct slice){0};
}

static void add_args(struct out *out, const struct event *event)
{
    struct emit e = {.out = out, .format = FORMAT_JSON, .list = {true}}; /* a list has no keys */
    for (size_t i = 0; i < event->arguments; i += value_length(&event->argument[i])) {
        const struct value *value = &event->argument[i];
        if (!value->has_key || is_own_key(value)) continue;
        out_write(out, ",", 1);
        value_print_key(out, value);
        out_write(out, ":", 1);
        e.filled[0] = false;
        value_print(&e, value);
    }
}

/* Returns the first control character at or behind `p`, or `end`. */
static const char *next_control(const char *p, const char *end)
{
    while (p < end && (unsigned char)*p >= 0x20) p++;
    return p;
}

/* True if an argument is printed as strict JSON on one line. */
static bool is_plain(const struct value *value)
{
    if (value->is_written) return false;
    if (value->kind == VALUE_TEXT) return !memchr(value->text.at, 0, value->text.length);
    const char *end = value->text.at + value->text.length;
    return value->kind != VALUE_JSON || (next_control(value->text.at, end) == end && json_is_clean(value->text));
}

static bool are_plain(const struct event *event)
{
    for (size_t i = 0; i < event->arguments; i++)
        if (!is_plain(&event->argument[i])) return false;
    return true;
}

/* Writes arguments as strict JSON on one line. What the program told dftracer of the event, its arguments (`inner`) and its
 * relations, stand among the others, as dftracer writes them. */
static void put_strict_args(struct pfw *file, const struct event *event, struct slice said, const struct event *inner)
{
    struct slice relations = object_of(said, "relations");
    struct out *args = &file->args;
    args->used = 0;
    add_args(args, event);
    add_args(args, inner);
    if (relations.at) {
        out_puts(args, ",\"relations\":");
        out_write(args, relations.at, relations.length);
    }
    if (!args->used) return;
    args->buffer[0] = '{'; /* in place of a comma */
    out_write(args, "}", 1);
    struct slice valid = strict_json(&file->strict, (struct slice){args->buffer, args->used});
    out_write(file->out, ",", 1);
    const char *p = valid.at + 1, *end = valid.at + valid.length - 1, *control;
    for (; (control = next_control(p, end)) < end; p = control + 1) {
        out_write(file->out, p, (size_t)(control - p));
        out_write(file->out, " ", 1);
    }
    out_write(file->out, p, (size_t)(end - p));
}

/* Writes the arguments of an event without files and hosts, which become hashes. */
static void put_args(struct pfw *file, const struct event *event, struct slice said, const struct event *inner,
                     const char *path)
{
    out_puts(file->out, ",\"args\":{\"hhash\":\"");
    out_puts(file->out, file->host);
    if (*path) {
        out_puts(file->out, "\",\"fhash\":\"");
        out_puts(file->out, path);
    }
    out_write(file->out, "\"", 1);
    if (said.at || !are_plain(event)) put_strict_args(file, event, said, inner);
    else add_args(file->out, event);
    out_puts(file->out, "}}\n");
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
static struct slice category_of(struct pfw *file, const struct event *event, struct slice said)
{
    struct slice own = said.at ? json_member(said, "cat") : (struct slice){0};
    const char *word = file->process->device_word ? file->process->device_word : "CUDA";
    struct text *text = &file->category;
    text->length = 0;
    if (own.length && *own.at == '"') {
        char *plain = json_text(own);
        text_puts(text, plain);
        free(plain);
        return (struct slice){text->data, text->length};
    }
    for (size_t i = 0; i < ARRAY_SIZE(categories) && event->category.at; i++) {
        if (!slice_is(event->category, categories[i].of_kineto)) continue;
        text_puts(text, word);
        text_puts(text, categories[i].of_dftracer);
        return (struct slice){text->data, text->length};
    }
    return event->category.length ? up_to_zero(event->category) : slice_of("event");
}

static int64_t shifted_us(const struct pfw *file, int64_t ns)
{
    ns = clock_shifted(&file->shift, ns);
    return ns / 1000 - (ns % 1000 < 0);
}

static void write_pfw_event(struct pfw *file, const struct event *event, int64_t start, int64_t end)
{
    struct slice said = value_object(event_argument(event, "dftracer"));
    struct event inner = {.args = object_of(said, "args")};
    event_split(&inner, &file->said);
    const struct value *said_name = event_argument(&inner, "fname");
    char path[17] = "", *file_text = value_text(said_name ? said_name : event_argument(event, "fname"));
    int64_t from = shifted_us(file, start), to = shifted_us(file, end);
    if (file_text) hash_of(file, "FH", file_text, strlen(file_text), path);
    begin_line(file, up_to_zero(event->name), category_of(file, event, said), pid_of(file),
               event->has & HAS_TID ? event->tid : pid_of(file));
    put_number(file, ",\"ts\":", from);
    put_number(file, ",\"dur\":", to - from);
    out_puts(file->out, ",\"ph\":\"X\"");
    put_args(file, event, said, &inner, path);
    file->events++;
    free(file_text);
}

/* Returns the arguments of an event as JSON that can be scanned; NULL: it has none. */
static char *copied_args(const struct event *event)
{
    struct text copy = {0};
    struct out printed;
    struct emit e = {.out = &printed, .format = FORMAT_JSON, .list = {true}}; /* a list has no keys */
    if (!event->has_args) return NULL;
    out_memory(&printed);
    if (event->values) value_print(&e, event->argument - 1); /* the object */
    else out_write(&printed, event->args.at, event->args.length);
    text_add(&copy, printed.buffer, printed.used);
    out_discard(&printed);
    return (char *)json_padded(&copy).at;
}

static void begin_pair(struct pfw *file, const struct event *event, uint32_t at)
{
    if (at == MAP_NONE) {
        at = (uint32_t)file->halves++;
        file->half = mem_grow(file->half, &file->half_capacity, file->halves, sizeof *file->half);
        map_put(&file->pair_of, event->id, at);
    } else {
        free(file->half[at].args);
    }
    file->half[at] = (struct half){event->ts, copied_args(event)};
}

/* Takes a half of a pair. Both have the name; the first half has the time of the beginning and the arguments. */
static void take_half(struct pfw *file, const struct event *event)
{
    uint32_t at = event->has & HAS_ID ? map_get(&file->pair_of, event->id) : MAP_NONE;
    struct half *half = at == MAP_NONE ? NULL : &file->half[at];
    if (event->phase == 'b' && event->has & HAS_ID) {
        begin_pair(file, event, at);
    } else if (half && event->ts >= half->start) {
        struct event both = *event;
        if (!both.has_args && half->args) {
            both.values = NULL;
            both.args = (struct slice){half->args, strlen(half->args)};
            event_split(&both, &file->arguments);
        }
        write_pfw_event(file, &both, half->start, event->ts);
        free(half->args);
        half->args = NULL;
    } else {
        file->left_out++;
    }
}

static void take_name(struct pfw *file, const struct event *event)
{
    bool is_name = event->name.at && slice_is(event->name, "thread_name");
    char *text = is_name ? value_text(event_argument(event, "name")) : NULL;
    if (!text || !(event->has & HAS_TID)) {
        free(text);
        return;
    }
    begin_line(file, slice_of("thread_name"), slice_of("dftracer"), pid_of(file), event->tid);
    out_puts(file->out, ",\"ph\":\"M\",\"args\":{\"name\":");
    out_json_string(file->out, text, strlen(text));
    out_puts(file->out, ",\"value\":\"thread_name\"}}\n");
    free(text);
}

static void take_event(void *context, const struct event *given)
{
    struct pfw *file = context;
    struct event own = *given, *event = &own;
    event_split(event, &file->arguments);
    bool is_moment = event->phase == 'i' || event->phase == 'I';
    if (event->phase == 'M') take_name(file, event);
    else if (event->category.at && slice_is(event->category, "dftracer")) return; /* start and end: written anew */
    else if (!(event->has & HAS_TS)) file->left_out++;
    else if (event->phase == 'X' && event->has & HAS_DUR)
        write_pfw_event(file, event, event->ts, add_ns(event->ts, event->dur));
    else if (is_moment) write_pfw_event(file, event, event->ts, event->ts);
    else if (event->phase == 'b' || event->phase == 'e') take_half(file, event);
    else file->left_out++;
}

/* ---- a process ---- */

static void put_self(struct pfw *file, const char *name, int64_t time)
{
    begin_line(file, slice_of(name), slice_of("dftracer"), pid_of(file), pid_of(file));
    put_number(file, ",\"ts\":", shifted_us(file, time));
    out_puts(file->out, ",\"dur\":0,\"ph\":\"X\"");
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
    (void)pid; /* the exported file has numbers of its own; dftracer keeps that of the process */
    file->process = process;
    forget_pairs(file);
    hash_of(file, "HH", host, strlen(host), file->host);
    if (process->command) hash_of(file, "SH", process->command, strlen(process->command), command);
    if (process->directory) hash_of(file, "SH", process->directory, strlen(process->directory), directory);
    snprintf(rank, sizeof rank, "%lld", (long long)process->rank);
    if (process->rank >= 0) put_fact(file, "PR", "rank", strlen("rank"), rank);
    struct text left_out = {0};
    left_out_describe(&left_out, process);
    if (left_out.length) put_fact(file, "PR", "left_out", strlen("left_out"), left_out.data);
    text_free(&left_out);
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
    out_memory(&file->args);
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
    out_discard(&file->args);
    text_free(&file->category);
    event_values_free(&file->arguments);
    event_values_free(&file->said);
    strict_free(&file->strict);
    *file = (struct pfw){0};
}
