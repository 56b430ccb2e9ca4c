/* util.h - memory, growing texts, messages and a map of numbers, used by every other file of the analyser.
 *
 * A failed allocation ends the program with one line, or, inside a guard, only the reading of the one file. Callers
 * check sizes taken from files before they call these functions.
 */
#ifndef TFA_UTIL_H
#define TFA_UTIL_H

#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof(*(a)))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* ---- memory ---- */
/* On a failed allocation a thread continues at `place`. Usage: mem_guard(), then `if (setjmp(guard.place) == 0)`
 * with the work, then mem_unguard(). A jump removes the guard by itself. Guards nest. */
struct mem_guard {
    jmp_buf place;
    struct mem_guard *outer;
    pthread_mutex_t *held; /* unlocked before the jump */
};
void mem_guard(struct mem_guard *guard);
void mem_unguard(struct mem_guard *guard);
void mem_hold(pthread_mutex_t *lock); /* locks it; code that holds it may allocate memory */
void mem_release(pthread_mutex_t *lock);
_Noreturn void mem_lack(void); /* out of memory: jumps to the guard, or ends the program */
void *mem_zero(size_t count, size_t size);
void *mem_resize(void *memory, size_t count, size_t size);
void *mem_enlarge(void *memory, size_t *capacity, size_t need, size_t size);
/* Makes room for `need` items in an array of `*capacity`, which grows by halves. Returns the array, which may have
 * moved. */
static inline void *mem_grow(void *memory, size_t *capacity, size_t need, size_t size)
{
    return need <= *capacity && memory ? memory : mem_enlarge(memory, capacity, need, size);
}
char *mem_text(const char *bytes, size_t length); /* a copy with a terminating zero */

/* One column of a table: the offset of its pointer in the table's struct, and the size of an item. */
struct layout {
    size_t pointer;
    size_t item;
};
/* The head of a table: a struct that begins with this. All its arrays grow together. */
struct table {
    size_t count;
    size_t capacity;
};
void table_reserve(void *table, const struct layout *layout, size_t columns, size_t more);
void table_free(void *table, const struct layout *layout, size_t columns);

/* ---- times ---- */
/* Adds nanoseconds and saturates: a damaged or hostile trace may contain durations of 200 years. */
static inline int64_t add_ns(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? (b > 0 ? INT64_MAX : INT64_MIN) : sum;
}
/* Subtracts with saturation, as add_ns adds. */
static inline int64_t less_ns(int64_t a, int64_t b)
{
    int64_t difference;
    return __builtin_sub_overflow(a, b, &difference) ? (b < 0 ? INT64_MAX : INT64_MIN) : difference;
}
/* Compares for qsort so that enclosing intervals come first: by start, then the longer one first. */
static inline int outer_first(int64_t start_a, int64_t end_a, int64_t start_b, int64_t end_b)
{
    if (start_a != start_b) return start_a < start_b ? -1 : 1;
    return (end_a < end_b) - (end_a > end_b);
}

/* Compares for qsort: the smaller number first. */
static inline int by_number(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* ---- texts ---- */
struct text {
    char *data; /* always ends with a zero that `length` does not count; NULL while empty */
    size_t length;
    size_t capacity;
};
void text_add(struct text *text, const char *bytes, size_t length);
void text_puts(struct text *text, const char *string);
void text_format(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends a time for people, such as "12.345 ms". */
void human_time(struct text *text, int64_t ns);
/* Appends a size such as "1.5 MiB". */
void human_bytes(struct text *text, uint64_t bytes);
void text_free(struct text *text);
char *string_format(const char *format, ...) __attribute__((format(printf, 1, 2))); /* the caller frees it */
/* Returns the entry of `names` nearest to `word` by edit distance, or NULL if none is near enough. */
const char *nearest(const char *word, const char *const *names, size_t count);
/* Writes `string` in lower case (ASCII), cut to fit. */
void lower_case(char *to, size_t size, const char *string);

/* ---- messages: `tfanalyze: FILE: what`, on stderr ---- */
void complain(const char *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Messages go to `text` from here on, a line each and without the name of the program. NULL: to stderr. */
void complain_into(struct text *text);

/* ---- a map from 64-bit numbers to 32-bit ones ---- */
struct map {
    uint64_t *keys;
    uint32_t *values; /* value + 1; 0: the place is free */
    size_t capacity;  /* a power of two, or 0 */
    size_t count;
};
#define MAP_NONE UINT32_MAX
uint32_t map_get(const struct map *map, uint64_t key); /* MAP_NONE if the key is absent */
void map_put(struct map *map, uint64_t key, uint32_t value);
/* Returns the key's number and assigns one if it is new: keys count from 0 in order of appearance. */
uint32_t map_number(struct map *map, uint64_t key);
void map_remove(struct map *map, uint64_t key);
uint32_t map_take(struct map *map, uint64_t key); /* removes the key and returns its value; MAP_NONE if it is absent */
void map_free(struct map *map);

#endif
