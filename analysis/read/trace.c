/* trace.c - describes a trace as a whole: its header entries, whether its process lives, and what was lost. */
#include "read/trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "pattern.h"

/* ---- notes ---- */

void notes_add(struct notes *notes, enum note_level level, const char *format, ...)
{
    char *line = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&line, format, arguments) < 0) line = string_format("%s", format);
    va_end(arguments);
    notes->note = mem_grow(notes->note, &notes->capacity, notes->count + 1, sizeof *notes->note);
    notes->note[notes->count++] = (struct note){level, line};
}

bool notes_have(const struct notes *notes, enum note_level level)
{
    for (size_t i = 0; i < notes->count; i++)
        if (notes->note[i].level == level) return true;
    return false;
}

void notes_cut(struct notes *notes, size_t count)
{
    while (notes->count > count) free(notes->note[--notes->count].text);
}

void notes_free(struct notes *notes)
{
    for (size_t i = 0; i < notes->count; i++) free(notes->note[i].text);
    free(notes->note);
    *notes = (struct notes){0};
}

/* ---- pairs ---- */

/* Limits the number of entries that are read from a header or footer. */
enum { MOST_PAIRS = 4096 };

static struct pair *find_pair(const struct pairs *pairs, const char *key)
{
    uint32_t first = map_get(&pairs->place, hash_text(key, strlen(key)));
    for (size_t i = first; i < pairs->count; i++) /* the first entry matches, unless two hashes collide */
        if (strcmp(pairs->pair[i].key, key) == 0) return &pairs->pair[i];
    return NULL;
}

static void set_pair(struct pairs *pairs, const char *key, const char *value, size_t length)
{
    struct pair *pair = find_pair(pairs, key);
    if (!pair && pairs->count < MOST_PAIRS) {
        pairs->pair = mem_grow(pairs->pair, &pairs->capacity, pairs->count + 1, sizeof *pairs->pair);
        uint64_t hash = hash_text(key, strlen(key));
        if (map_get(&pairs->place, hash) == MAP_NONE) map_put(&pairs->place, hash, (uint32_t)pairs->count);
        pair = &pairs->pair[pairs->count++];
        *pair = (struct pair){.key = string_format("%s", key)};
    }
    if (pair) {
        free(pair->value);
        pair->value = mem_text(value, length);
    }
}

void pairs_parse(struct pairs *pairs, const char *payload, size_t bytes)
{
    const char *at = payload, *end = payload + bytes;
    while (at < end && pairs->count < MOST_PAIRS) {
        const char *key = at, *stop = memchr(at, 0, (size_t)(end - at));
        if (!stop) return;
        const char *value = stop + 1;
        stop = memchr(value, 0, (size_t)(end - value));
        size_t length = (size_t)((stop ? stop : end) - value);
        if (*key) set_pair(pairs, key, value, length);
        at = value + length + 1;
    }
}

void pairs_add(struct pairs *pairs, const char *key, const char *value)
{
    if (*key && pairs->count < MOST_PAIRS) set_pair(pairs, key, value, strlen(value));
}

const char *pairs_get(const struct pairs *pairs, const char *key)
{
    const struct pair *pair = find_pair(pairs, key);
    return pair ? pair->value : NULL;
}

bool pairs_number(const struct pairs *pairs, const char *key, uint64_t *value)
{
    const char *text = pairs_get(pairs, key);
    return text && tfi_whole_number(text, 0, UINT64_MAX, value);
}

void pairs_free(struct pairs *pairs)
{
    for (size_t i = 0; i < pairs->count; i++) {
        free(pairs->pair[i].key);
        free(pairs->pair[i].value);
    }
    free(pairs->pair);
    map_free(&pairs->place);
    *pairs = (struct pairs){0};
}

const char *trace_info(const struct trace *trace, const char *key)
{
    const char *value = pairs_get(&trace->info, key);
    return value || !trace->live ? value : pairs_get(&trace->live->info, key);
}

bool trace_number(const struct trace *trace, const char *key, uint64_t *value)
{
    const char *text = trace_info(trace, key);
    return text && tfi_whole_number(text, 0, UINT64_MAX, value);
}

struct ring trace_ring(const struct trace *trace)
{
    struct ring ring = {0};
    bool known = pairs_number(&trace->info, "flight.chunks", &ring.chunks) &&
                 pairs_number(&trace->info, "flight.records", &ring.records) &&
                 pairs_number(&trace->info, "flight.since", &ring.since);
    return known ? ring : (struct ring){0};
}

/* ---- drops counted by the library ---- */

const struct drop drop_table[] = {
#define DROP(number, name, lost, text) {number, #name, lost, text},
#include "drops.def"
#undef DROP
};
const size_t drop_count = ARRAY_SIZE(drop_table);

void trace_drops(const struct trace *trace, uint64_t drops[TFI_MAX_DROPS])
{
    for (size_t i = 0; i < trace->footer.count; i++) {
        const struct pair *pair = &trace->footer.pair[i];
        uint64_t value;
        for (size_t k = 0; k < drop_count && strncmp(pair->key, "drop.", 5) == 0; k++)
            if (strcasecmp(pair->key + 5, drop_table[k].name) == 0 &&
                tfi_whole_number(pair->value, 0, UINT64_MAX, &value))
                drops[drop_table[k].number] = MAX(drops[drop_table[k].number], value);
    }
    for (size_t k = 0; trace->live && k < drop_count; k++) {
        int number = drop_table[k].number;
        drops[number] = MAX(drops[number], trace->live->drops[number]);
    }
}

/* ---- the verdict ---- */

static const char *remedy(int drop)
{
    switch (drop) {
    case TFI_DROP_APPEND: return "free space on the run directory's disk, or set TFI_OUTPUT_DIR to another directory";
    case TFI_DROP_STRINGS:
        return "record fewer texts that differ each time: TFI_TENSOR_ADDRESSES=0, TFI_RECORD_SHAPES=0";
    case TFI_DROP_RING: return "raise TFI_FLIGHT_MB, or select stages with ENABLE_PROFILER_NAMES";
    case TFI_DROP_CAP: return "raise TFI_MAX_MB, or select stages with ENABLE_PROFILER_NAMES";
    default: return "select fewer stages with ENABLE_PROFILER_NAMES";
    }
}

static uint64_t judge_drops(const uint64_t drops[TFI_MAX_DROPS], struct notes *notes)
{
    uint64_t lost = 0;
    for (size_t k = 0; k < drop_count; k++) {
        uint64_t count = drops[drop_table[k].number];
        if (count && drop_table[k].lost) {
            lost += count;
            notes_add(notes, LOSS, "the library lost %llu %s: %s; for the next run, %s", (unsigned long long)count,
                      drop_table[k].number == TFI_DROP_STRINGS ? "names" : "records", drop_table[k].text,
                      remedy(drop_table[k].number));
        } else if (count) {
            notes_add(notes, NOTE, "%llu %s", (unsigned long long)count, drop_table[k].text);
        }
    }
    return lost;
}

static void judge_damage(const struct trace *trace, struct notes *notes)
{
    struct text line = {0};
    const char *again = "if this is a copy, copy the file again";
    if (trace->head_damaged) {
        notes_add(notes, LOSS,
                  "the first %zu bytes are damaged (expected " TFI_FILE_MAGIC "), but its blocks were found; %s",
                  sizeof(struct tfi_file_head), again);
    }
    if (trace->schema_damaged)
        notes_add(notes, LOSS, "the description of the records (SCHEMA) is lost; tfanalyze used its own");
    if (trace->places) {
        text_format(&line, "damaged in %u place%s, the first at byte %llu", trace->places, trace->places > 1 ? "s" : "",
                    (unsigned long long)trace->first_place);
    }
    /* A torn block at the end loses nothing if the trace has a live file or is still being written: its chunk is
     * still in the live file. */
    bool made_good = (trace->live || trace->life == LIFE_RUNNING) && !trace->lost_damaged;
    if (trace->torn && !(made_good && !trace->places))
        text_format(&line, "%scut at byte %llu", line.length ? "; " : "", (unsigned long long)trace->torn_at);
    if (line.length) {
        text_format(&line, ": %llu records lost", (unsigned long long)trace->lost_damaged);
        if (trace->gap_bytes)
            text_format(&line, " and %llu bytes that cannot be read", (unsigned long long)trace->gap_bytes);
        notes_add(notes, LOSS, "%s; the result covers the rest; %s%s", line.data, again,
                  trace->live || trace->fd < 0 ? "" : ", with its .live file if there is one");
    }
    text_free(&line);
}

uint64_t trace_judge(const struct trace *trace, const uint64_t drops[TFI_MAX_DROPS], struct notes *notes)
{
    judge_damage(trace, notes);
    if (trace->beyond) {
        notes_add(notes, LOSS, "%llu records are more than a file of its size can hold; they were left out",
                  (unsigned long long)trace->beyond);
    }
    if (trace->bad_records || trace->bad_bytes) {
        notes_add(notes, LOSS, "%llu records and %llu bytes are complete but not valid; they were left out",
                  (unsigned long long)trace->bad_records, (unsigned long long)trace->bad_bytes);
    }
    if (trace->lost_missing) {
        notes_add(notes, LOSS, "%llu chunks are missing, at least %llu records; the result covers the rest",
                  (unsigned long long)trace->missing_chunks, (unsigned long long)trace->lost_missing);
    }
    if (trace->life == LIFE_DEAD && !trace->live) {
        notes_add(notes, LOSS,
                  "its process ended without closing the trace, and the .live file with its last records is missing "
                  "(%s): an unknown number of records is lost",
                  trace_info(trace, "live") ? trace_info(trace, "live") : "beside it");
    } else if (trace->life == LIFE_DEAD) {
        notes_add(notes, NOTE, "its process was killed; everything recorded before that %s",
                  notes_have(notes, LOSS) ? "was read, except the losses above" : "was read");
    } else if (trace->life == LIFE_RUNNING) {
        notes_add(notes, NOTE, "its process is still running; the result covers everything recorded so far");
    }
    if (trace->unknown_blocks) notes_add(notes, NOTE, "%u blocks of unknown kinds were skipped", trace->unknown_blocks);
    return trace->lost_damaged + trace->lost_missing + trace->beyond + trace->bad_records + judge_drops(drops, notes);
}
