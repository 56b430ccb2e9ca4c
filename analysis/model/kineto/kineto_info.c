/* kineto_info.c - identifies the process and its threads from members and metadata events. */
#include "model/kineto/kineto_info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { MOST_LABELS = 1 << 16, MOST_PAIRS = 1 << 20, LONGEST_VALUE = 4096 };

/* ---- faults ---- */

void faults_conclude(const struct faults *faults, struct process *process, struct notes *notes)
{
    static const char *const causes[NO_FAULT][2] = {
        [NO_TIME] = {"no_time", "have no time"},
        [NO_DURATION] = {"no_duration", "have no duration"},
        [NEGATIVE_DURATION] = {"negative_duration", "have a negative duration"},
        [BAD_TIME] = {"bad_time", "have a time outside the range of a trace"},
    };
    for (size_t i = 0; i < NO_FAULT; i++) {
        char place[64] = "";
        process_lose(process, causes[i][0], faults->count[i], true);
        if (faults->place[i])
            snprintf(place, sizeof place, " (the first at byte %llu)", (unsigned long long)faults->place[i] - 1);
        if (faults->count[i])
            notes_add(notes, LOSS, "%llu events %s and were left out%s", (unsigned long long)faults->count[i],
                      causes[i][1], place);
    }
}

/* ---- threads ---- */

static size_t thread_place(const struct threads_seen *t, int64_t pid, int64_t tid)
{
    size_t place = (size_t)hash_numbers((uint64_t)pid, (uint64_t)tid) & (t->table_size - 1);
    for (; t->table[place]; place = (place + 1) & (t->table_size - 1)) {
        const struct thread_seen *seen = &t->seen[t->table[place] - 1];
        if (seen->pid == pid && seen->tid == tid) break;
    }
    return place;
}

static void grow_table(struct threads_seen *t)
{
    t->table_size = t->table_size ? 2 * t->table_size : 64;
    free(t->table);
    t->table = mem_zero(t->table_size, sizeof *t->table);
    for (size_t i = 0; i < t->count; i++) t->table[thread_place(t, t->seen[i].pid, t->seen[i].tid)] = (uint32_t)i + 1;
}

static size_t find_seen(struct threads_seen *t, struct process *process, int64_t pid, int64_t tid)
{
    if (t->last < t->count && t->seen[t->last].tid == tid && t->seen[t->last].pid == pid) return t->last;
    if (2 * (t->count + 1) > t->table_size) grow_table(t);
    size_t place = thread_place(t, pid, tid);
    if (!t->table[place]) {
        t->seen = mem_grow(t->seen, &t->capacity, t->count + 1, sizeof *t->seen);
        t->seen[t->count++] = (struct thread_seen){.pid = pid, .tid = tid};
        t->table[place] = (uint32_t)t->count;
        struct thread *thread = process_thread(process, (uint32_t)t->count); /* the same index in both arrays */
        thread->tid = (uint64_t)tid;
        thread->pid = pid;
    }
    return t->table[place] - 1;
}

/* Makes a thread number for a row whose tid is a text: rows with the same text are one thread. */
static int64_t number_of_text(struct slice text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < text.length; i++) hash = (hash ^ (unsigned char)text.at[i]) * UINT64_C(0x100000001b3);
    return (int64_t)(hash | UINT64_C(1) << 63);
}

uint32_t threads_take(struct threads_seen *t, struct process *process, struct names *names,
                      const struct kineto_event *event)
{
    bool named = !(event->has & HAS_TID) && event->tid_text.length;
    int64_t pid = event->has & HAS_PID ? event->pid : -1;
    int64_t tid = event->has & HAS_TID ? event->tid : named ? number_of_text(event->tid_text) : 0;
    t->last = find_seen(t, process, pid, tid);
    struct thread *thread = &process->thread[t->last];
    int64_t end = event->ts + (event->has & HAS_DUR ? event->dur : 0);
    thread->first = thread->has_time ? MIN(thread->first, event->ts) : event->ts;
    thread->last = thread->has_time ? MAX(thread->last, end) : end;
    if (!thread->has_time && named) thread->name = names_add(names, event->tid_text.at, event->tid_text.length);
    thread->has_time = true;
    t->seen[t->last].events++;
    return thread->serial;
}

void threads_conclude(struct threads_seen *t, struct process *process)
{
    struct map events = {0};
    uint32_t most = 0;
    for (size_t i = 0; i < t->count; i++) {
        uint32_t before = map_get(&events, (uint64_t)t->seen[i].pid);
        uint64_t sum = (before == MAP_NONE ? 0 : before) + t->seen[i].events;
        uint32_t kept = (uint32_t)MIN(sum, UINT32_MAX - 2);
        map_put(&events, (uint64_t)t->seen[i].pid, kept);
        if (kept > most && t->seen[i].pid >= 0) {
            most = kept;
            process->pid = t->seen[i].pid;
        }
    }
    map_free(&events);
}

void threads_free(struct threads_seen *t)
{
    free(t->seen);
    free(t->table);
}

/* ---- members ---- */

/* Returns a text for display; NULL if it is longer than LONGEST_VALUE. */
static char *shown_text(struct slice value)
{
    char *text = value.length <= LONGEST_VALUE ? json_text(value) : NULL;
    return text;
}

static void add_pair(struct kineto_info *info, const char *prefix, struct slice key, struct slice value)
{
    char *text = shown_text(value);
    if (text && info->pairs.length < MOST_PAIRS && key.length < 256 && !memchr(key.at, 0, key.length)) {
        text_puts(&info->pairs, prefix);
        text_add(&info->pairs, key.at, key.length);
        text_add(&info->pairs, "", 1);
        text_add(&info->pairs, text, strlen(text) + 1);
    }
    free(text);
}

static void add_number(struct kineto_info *info, const char *key, uint64_t number)
{
    text_puts(&info->pairs, key);
    text_add(&info->pairs, "", 1);
    text_format(&info->pairs, "%llu", (unsigned long long)number);
    text_add(&info->pairs, "", 1);
}

static void take_distributed(struct kineto_info *info, struct slice value)
{
    struct slice key, item;
    char name[128] = "";
    int64_t number;
    while (json_next(&value, &key, &item)) {
        bool has = json_int(item, &number) && number >= 0 && number < INT32_MAX;
        if (json_is_key(key, "rank")) {
            info->rank = has ? number + 1 : 0;
        } else if (json_is_key(key, "world_size")) {
            info->world = has ? number + 1 : 0;
        } else if (key.at && key.length <= sizeof name) {
            key = (struct slice){name, json_unescape(name, key.at, key.length)};
            add_pair(info, "distributedInfo.", key, item);
        }
    }
}

static void take_devices(struct kineto_info *info, struct slice value)
{
    struct slice key, item;
    uint64_t count = 0;
    while (json_next(&value, &key, &item)) {
        struct slice name = item.length && *item.at == '{' ? json_member(item, "name") : (struct slice){0};
        char number[32];
        int64_t id = (int64_t)count;
        if (name.length) {
            json_int(json_member(item, "id"), &id);
            snprintf(number, sizeof number, "device.%lld", (long long)id);
            add_pair(info, "", (struct slice){number, strlen(number)}, name);
        }
        count++;
    }
    add_number(info, "devices", count);
}

void info_take_member(struct kineto_info *info, struct slice key, struct slice value)
{
    int64_t number;
    if (slice_is(key, "baseTimeNanoseconds")) {
        info->bad_base = !json_int(value, &number) || number < 0 || number > 2000000000000000000;
        info->base = info->bad_base ? 0 : number;
    }
    if (slice_is(key, "tfinject") && *value.at == '{') {
        struct slice artefact = json_member(value, "artefact");
        info->is_merge = slice_is(artefact, "\"merge\"");
    }
    if (info->is_merge && slice_is(key, "inputs")) {
        text_add(&info->merged, value.at, value.length);
        json_padded(&info->merged);
        info->merged.length = value.length;
        return;
    }
    if (slice_is(key, "with_flops")) info->with_flops = json_int(value, &number) && number != 0;
    if (slice_is(key, "host_name")) {
        free(info->host);
        info->host = shown_text(value);
    } else if (slice_is(key, "distributedInfo") && *value.at == '{') {
        take_distributed(info, value);
    } else if (slice_is(key, "deviceProperties") && *value.at == '[') {
        take_devices(info, value);
    } else {
        add_pair(info, "", key, value);
    }
}

void info_take_part(struct kineto_info *info, const struct kineto_part *part)
{
    struct slice at = {part->members.data, part->members.length}, key, value;
    info->is_part = true;
    while (at.length && json_next(&at, &key, &value)) /* times of the merge count from its own base */
        if (key.at && !slice_is(key, "baseTimeNanoseconds")) info_take_member(info, key, value);
    info->rank = part->is_guessed ? 0 : part->rank + 1;
    if (part->host) {
        free(info->host);
        info->host = string_format("%s", part->host);
    }
}

/* ---- names of rows ---- */

void info_take_event(struct kineto_info *info, const struct kineto_event *event)
{
    bool is_process = slice_is(event->name, "process_name");
    bool has_ids = event->has & HAS_PID && (is_process || event->has & HAS_TID);
    if ((!is_process && !slice_is(event->name, "thread_name")) || !has_ids || info->labels >= MOST_LABELS) return;
    struct slice name = event->args.at ? json_member(event->args, "name") : (struct slice){0};
    char *text = name.length && *name.at == '"' ? shown_text(name) : NULL;
    if (text) {
        info->label = mem_grow(info->label, &info->label_capacity, info->labels + 1, sizeof *info->label);
        info->label[info->labels++] = (struct label){event->pid, event->tid, is_process, text};
    }
}

static int by_row(const void *a, const void *b)
{
    const struct label *x = a, *y = b;
    return x->is_process != y->is_process ? x->is_process - y->is_process
           : x->pid != y->pid             ? (x->pid > y->pid) - (x->pid < y->pid)
                                          : (x->tid > y->tid) - (x->tid < y->tid);
}

static const struct label *find_label(const struct kineto_info *info, int64_t pid, int64_t tid, bool is_process)
{
    struct label key = {pid, is_process ? 0 : tid, is_process, NULL};
    return info->labels ? bsearch(&key, info->label, info->labels, sizeof key, by_row) : NULL;
}

const char *info_process_name(const struct kineto_info *info, int64_t pid)
{
    for (size_t i = 0; i < info->labels; i++)
        if (info->label[i].is_process && info->label[i].pid == pid) return info->label[i].text;
    return NULL;
}

static void name_rows(struct kineto_info *info, struct names *names, struct process *process)
{
    const struct label *label;
    for (size_t i = 0; i < info->labels; i++) info->label[i].tid = info->label[i].is_process ? 0 : info->label[i].tid;
    if (info->labels) qsort(info->label, info->labels, sizeof *info->label, by_row);
    for (size_t i = 0; i < process->threads; i++) {
        struct thread *thread = &process->thread[i];
        if ((label = find_label(info, thread->pid, (int64_t)thread->tid, false)) != NULL)
            thread->name = names_add(names, label->text, strlen(label->text));
    }
    if (process->pid >= 0 && (label = find_label(info, process->pid, 0, true)) != NULL) {
        int64_t rank;
        size_t skip = info->is_part ? rank_label((struct slice){label->text, strlen(label->text)}, &rank) : 0;
        process->command = string_format("%s", label->text + skip);
    }
}

void info_conclude(struct kineto_info *info, struct names *names, struct process *process, struct notes *notes)
{
    process->rank = info->rank - 1;
    process->world = info->world - 1;
    process->host = info->host;
    info->host = NULL;
    pairs_parse(process->metadata, info->pairs.data ? info->pairs.data : "", info->pairs.length);
    name_rows(info, names, process);
    if (info->bad_base)
        notes_add(notes, LOSS, "its baseTimeNanoseconds is not a valid time: times count from the start of its clock");
}

void info_free(struct kineto_info *info)
{
    for (size_t i = 0; i < info->labels; i++) free(info->label[i].text);
    free(info->label);
    free(info->host);
    text_free(&info->merged);
    text_free(&info->pairs);
}
