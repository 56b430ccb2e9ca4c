/* util.c - memory, growing texts, messages and a map of numbers. */
#include "base/util.h"

#include "base/hash.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "base/progress.h"

#include "pattern.h"

/* ---- memory ---- */

static __thread struct mem_guard *guarding;

void mem_guard(struct mem_guard *guard)
{
    guard->outer = guarding;
    guard->held = NULL;
    guarding = guard;
}

void mem_unguard(struct mem_guard *guard)
{
    guarding = guard->outer;
}

void mem_hold(pthread_mutex_t *lock)
{
    pthread_mutex_lock(lock);
    if (guarding) guarding->held = lock;
}

void mem_release(pthread_mutex_t *lock)
{
    if (guarding) guarding->held = NULL;
    pthread_mutex_unlock(lock);
}

_Noreturn void mem_lack(void)
{
    struct mem_guard *guard = guarding;
    if (!guard) {
        fputs("tfanalyze: out of memory; give fewer inputs at once, or read fewer in parallel (-j 1)\n", stderr);
        exit(1);
    }
    guarding = guard->outer;
    if (guard->held) pthread_mutex_unlock(guard->held);
    longjmp(guard->place, 1);
}

static void *or_lack(void *memory)
{
    if (!memory) mem_lack();
    return memory;
}

void *mem_zero(size_t count, size_t size)
{
    return or_lack(calloc(count ? count : 1, size ? size : 1));
}

void *mem_resize(void *memory, size_t count, size_t size)
{
    return or_lack(reallocarray(memory, count ? count : 1, size));
}

void *mem_enlarge(void *memory, size_t *capacity, size_t need, size_t size)
{
    size_t wanted = *capacity + *capacity / 2 + 8;
    wanted = MAX(wanted, need);
    memory = mem_resize(memory, wanted, size);
    *capacity = wanted; /* set after the allocation, which may jump to a guard while others still use the array */
    return memory;
}

char *mem_text(const char *bytes, size_t length)
{
    char *copy = mem_resize(NULL, length + 1, 1);
    memcpy(copy, bytes, length);
    copy[length] = 0;
    return copy;
}

void table_reserve(void *table, const struct layout *layout, size_t columns, size_t more)
{
    struct table *head = table;
    if (head->count + more <= head->capacity) return;
    size_t wanted = head->capacity + head->capacity / 2 + 64;
    head->capacity = MAX(wanted, head->count + more);
    for (size_t i = 0; i < columns; i++) {
        void **array = (void **)((char *)table + layout[i].pointer);
        *array = mem_resize(*array, head->capacity, layout[i].item);
    }
}

void table_free(void *table, const struct layout *layout, size_t columns)
{
    for (size_t i = 0; i < columns; i++) {
        void **array = (void **)((char *)table + layout[i].pointer);
        free(*array);
        *array = NULL;
    }
    *(struct table *)table = (struct table){0};
}

/* ---- texts ---- */

void text_add(struct text *text, const char *bytes, size_t length)
{
    text->data = mem_grow(text->data, &text->capacity, text->length + length + 1, 1);
    if (length) memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = 0;
}

void text_puts(struct text *text, const char *string)
{
    text_add(text, string, strlen(string));
}

static void text_vformat(struct text *text, const char *format, va_list arguments)
{
    char small[256];
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(small, sizeof small, format, arguments);
    if (length >= 0 && (size_t)length < sizeof small) {
        text_add(text, small, (size_t)length);
    } else if (length >= 0) {
        text->data = mem_grow(text->data, &text->capacity, text->length + (size_t)length + 1, 1);
        vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

void text_format(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    text_vformat(text, format, arguments);
    va_end(arguments);
}

void human_time(struct text *text, int64_t ns)
{
    double size = fabs((double)ns);
    if (size < 1e6) text_format(text, "%.3f us", (double)ns / 1e3);
    else if (size < 1e9) text_format(text, "%.3f ms", (double)ns / 1e6);
    else text_format(text, "%.3f s", (double)ns / 1e9);
}

void human_bytes(struct text *text, uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double size = (double)bytes / 1024;
    size_t unit = 0;
    if (bytes < 1024) {
        text_format(text, "%llu B", (unsigned long long)bytes);
        return;
    }
    for (; size >= 1024 && unit + 1 < ARRAY_SIZE(units); unit++) size /= 1024;
    text_format(text, "%.1f %s", size, units[unit]);
}

void text_free(struct text *text)
{
    free(text->data);
    *text = (struct text){0};
}

char *string_format(const char *format, ...)
{
    struct text text = {0};
    va_list arguments;
    va_start(arguments, format);
    text_add(&text, "", 0);
    text_vformat(&text, format, arguments);
    va_end(arguments);
    return text.data;
}

const char *nearest(const char *word, const char *const *names, size_t count)
{
    const char *best = NULL;
    size_t least = MAX(strlen(word) / 3, 2) + 1;
    for (size_t i = 0; i < count; i++) {
        size_t d = tfi_distance(word, strlen(word), names[i], strlen(names[i]));
        bool begins = strlen(word) >= 2 && strncmp(word, names[i], strlen(word)) == 0;
        if (begins) d = 1;
        if (d < least) {
            least = d;
            best = names[i];
        }
    }
    return best;
}

void lower_case(char *to, size_t size, const char *string)
{
    size_t i = 0;
    for (; i + 1 < size && string[i]; i++)
        to[i] = (char)(string[i] >= 'A' && string[i] <= 'Z' ? string[i] + 32 : string[i]);
    to[i] = 0;
}

/* ---- messages ---- */

static struct text *kept; /* receives the messages; NULL: stderr does. Guarded as stderr is, by progress_hold */

void complain_into(struct text *text)
{
    progress_hold();
    kept = text;
    progress_release();
}

void complain(const char *file, const char *format, ...)
{
    static const char program[] = "tfanalyze: ";
    struct text line = {0};
    va_list arguments;
    va_start(arguments, format);
    text_puts(&line, program);
    if (file) text_format(&line, "%s: ", file);
    text_vformat(&line, format, arguments);
    va_end(arguments);
    struct text shown = {0};
    text_visible(&shown, line.data, line.length); /* it may hold file names and texts of traces */
    text_puts(&shown, "\n");
    progress_hold();
    if (kept) text_puts(kept, shown.data + strlen(program));
    else fputs(shown.data, stderr);
    progress_release();
    text_free(&line);
    text_free(&shown);
}

/* ---- the map ---- */

static size_t map_home(const struct map *map, uint64_t key)
{
    return (size_t)hash_number(key) & (map->capacity - 1);
}

static size_t map_place(const struct map *map, uint64_t key)
{
    size_t place = map_home(map, key);
    while (map->values[place] && map->keys[place] != key) place = (place + 1) & (map->capacity - 1);
    return place;
}

uint32_t map_get(const struct map *map, uint64_t key)
{
    if (!map->capacity) return MAP_NONE;
    return map->values[map_place(map, key)] - 1; /* a free place gives 0 - 1 = MAP_NONE */
}

static void map_double(struct map *map)
{
    struct map bigger = {.capacity = map->capacity ? 2 * map->capacity : 64, .count = map->count};
    bigger.keys = mem_resize(NULL, bigger.capacity, sizeof *bigger.keys);
    bigger.values = mem_zero(bigger.capacity, sizeof *bigger.values);
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->values[i]) {
            size_t place = map_place(&bigger, map->keys[i]);
            bigger.keys[place] = map->keys[i];
            bigger.values[place] = map->values[i];
        }
    }
    free(map->keys);
    free(map->values);
    *map = bigger;
}

void map_put(struct map *map, uint64_t key, uint32_t value)
{
    if (2 * (map->count + 1) > map->capacity) map_double(map);
    size_t place = map_place(map, key);
    if (!map->values[place]) {
        map->keys[place] = key;
        map->count++;
    }
    map->values[place] = value + 1;
}

uint32_t map_number(struct map *map, uint64_t key)
{
    uint32_t number = map_get(map, key);
    if (number == MAP_NONE) {
        number = (uint32_t)map->count;
        map_put(map, key, number);
    }
    return number;
}

/* Moves colliding entries up into the freed place, so that no later search ends too early. */
uint32_t map_take(struct map *map, uint64_t key)
{
    size_t mask = map->capacity - 1, hole = map->capacity ? map_place(map, key) : 0;
    if (!map->capacity || !map->values[hole]) return MAP_NONE;
    uint32_t value = map->values[hole] - 1;
    for (size_t at = (hole + 1) & mask; map->values[at]; at = (at + 1) & mask) {
        size_t from_home = (at - map_home(map, map->keys[at])) & mask;
        if (from_home >= ((at - hole) & mask)) {
            map->keys[hole] = map->keys[at];
            map->values[hole] = map->values[at];
            hole = at;
        }
    }
    map->values[hole] = 0;
    map->count--;
    return value;
}

void map_remove(struct map *map, uint64_t key)
{
    map_take(map, key);
}

void map_free(struct map *map)
{
    free(map->keys);
    free(map->values);
    *map = (struct map){0};
}
