/* aggregates.c - sums over the whole run of TFI_MODE=flight: by stage, kernel, collective and sampled line.
 *
 * Stages are counted as they end, in their threads; all else as its chunk is appended. The tables have a fixed number of
 * places. What finds none is counted under the name 0, `other`, of its kind. A value whose bucket finds no place is in
 * the sums, and counted in `unplaced`: there are no quantiles then. All numbers only grow, by atomic additions, so no
 * table needs a lock.
 *
 * A call of a stage is slow if it takes longer than each of three limits: the median of the calls before it plus 8 times their
 * median absolute deviation, 5/4 of the median, and the median plus a millisecond. The background thread finds these out at
 * most once a second, from the 16th call on, and again once there are an eighth more calls.
 */
#include "flight/aggregates.h"

#include <string.h>

#include "base/sys.h"
#include "base/tfi.h"
#include "record/clock.h"
#include "record/strings.h"
#include "sketch.h"
#include "tfi_trace.h"

#define MOST_KEYS 4096u
#define MOST_PLACES 65536u
#define MOST_SHARE 32u   /* megabytes from which on the tables are as large as that */
#define PROBES 64u       /* longest search for a place */
#define FEWEST_CALLS 16u /* of a stage that is judged */
#define DEVIATIONS 8u
#define BUCKET_ROOM 4096u
#define COUNT_BITS TFI_AGGREGATE_COUNT_BITS
#define MOST_COUNT (((uint64_t)1 << COUNT_BITS) - 1)
#define ROW_BYTES sizeof(struct tfi_rec_aggregate)

_Static_assert(TFI_BUCKETS <= BUCKET_ROOM, "a key has room for each bucket");
_Static_assert(MOST_KEYS *ROW_BYTES + MOST_PLACES * 8 < TFI_AGGREGATES_BYTES, "all rows fit");

struct aggregate {
    uint64_t key; /* what << 32 | name, 0: free */
    uint64_t count, sum, again, most, unplaced;
    uint64_t least; /* its complement, so that it grows too */
    uint64_t slow;  /* of a stage: a call that takes longer is slow; 0: unknown */
    uint64_t usual;
    uint64_t judged; /* calls when that was found out */
};

struct place {
    uint64_t key; /* (index of the aggregate + 1) << 12 | bucket, 0: free */
    uint64_t count;
};

static struct {
    struct aggregate *aggregate;
    struct place *place;
    uint64_t *copy;        /* of the places that have values: key << COUNT_BITS | count */
    uint32_t taken;        /* places in the copy */
    uint32_t keys, places; /* powers of two; 0: no tables */
    uint64_t values;
} all;

/* ---- the tables ---- */

void tfi_aggregates_begin(uint64_t mb)
{
    uint32_t share = 1;
    while (share * 2 <= mb && share < MOST_SHARE) share *= 2;
    if (!all.aggregate) all.aggregate = tfi_map(MOST_KEYS * sizeof *all.aggregate);
    if (!all.place) all.place = tfi_map(MOST_PLACES * sizeof *all.place);
    if (!all.copy) all.copy = tfi_map(MOST_PLACES * sizeof *all.copy);
    bool ok = all.aggregate && all.place && all.copy;
    all.places = ok ? MOST_PLACES / MOST_SHARE * share : 0;
    __atomic_store_n(&all.keys, ok ? MOST_KEYS / MOST_SHARE * share : 0, __ATOMIC_RELEASE);
}

void tfi_aggregates_restart(void)
{
    if (all.keys) {
        memset(all.aggregate, 0, all.keys * sizeof *all.aggregate);
        memset(all.place, 0, all.places * sizeof *all.place);
    }
    all.keys = all.places = 0;
    all.values = 0;
}

uint64_t tfi_aggregates_values(void)
{
    return __atomic_load_n(&all.values, __ATOMIC_RELAXED);
}

static uint32_t hash_of(uint64_t key)
{
    return (uint32_t)(key * 0x9e3779b97f4a7c15u >> 40);
}

/* Makes the key that of a free word, or finds that it is. */
static bool is_or_becomes(uint64_t *word, uint64_t key)
{
    uint64_t found = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    if (TFI_LIKELY(found == key)) return true;
    if (found) return false;
    return __atomic_compare_exchange_n(word, &found, key, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || found == key;
}

/* Returns the place of a key; NULL: there is none. The first places are those of `other`, by kind. */
static struct aggregate *aggregate_of(uint32_t what, uint32_t name)
{
    uint64_t key = (uint64_t)what << 32 | name;
    uint32_t keys = __atomic_load_n(&all.keys, __ATOMIC_ACQUIRE), others = TFI_AGGREGATE_END;
    if (!keys) return NULL;
    for (uint32_t i = 0, at = hash_of(key); name && i < PROBES; i++) {
        struct aggregate *a = &all.aggregate[others + (at + i) % (keys - others)];
        if (is_or_becomes(&a->key, key)) return a;
    }
    struct aggregate *other = &all.aggregate[what];
    __atomic_store_n(&other->key, (uint64_t)what << 32, __ATOMIC_RELAXED);
    return other;
}

static void raise_to(uint64_t *word, uint64_t value)
{
    uint64_t found = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (value > found &&
           !__atomic_compare_exchange_n(word, &found, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}

static void grow_by(uint64_t *word, uint64_t value)
{
    __atomic_add_fetch(word, value, __ATOMIC_RELAXED);
}

static void count_in_bucket(struct aggregate *a, uint64_t value)
{
    uint64_t key = ((uint64_t)(a - all.aggregate) + 1) << 12 | tfi_bucket_of(value);
    for (uint32_t i = 0, at = hash_of(key); i < PROBES; i++) {
        struct place *place = &all.place[(at + i) & (all.places - 1)];
        if (!is_or_becomes(&place->key, key)) continue;
        grow_by(&place->count, 1);
        return;
    }
    grow_by(&a->unplaced, 1);
}

static void count_value(struct aggregate *a, uint64_t value)
{
    grow_by(&a->count, 1);
    grow_by(&a->sum, value);
    raise_to(&a->most, value);
    raise_to(&a->least, ~value);
    count_in_bucket(a, value);
    grow_by(&all.values, 1);
}

uint64_t tfi_aggregate_stage(uint32_t name, uint64_t ticks, bool again)
{
    struct aggregate *a = aggregate_of(TFI_AGGREGATE_STAGE, name);
    if (!a) return 0;
    uint64_t slow = __atomic_load_n(&a->slow, __ATOMIC_ACQUIRE);
    count_value(a, ticks);
    if (again) grow_by(&a->again, ticks);
    return slow && ticks > slow ? __atomic_load_n(&a->usual, __ATOMIC_RELAXED) : 0;
}

/* ---- the rows of a chunk ---- */

static void count_row(uint32_t what, uint32_t name, uint64_t value)
{
    struct aggregate *a = aggregate_of(what, name);
    if (a) count_value(a, value);
}

/* The innermost frame of a stack: the number of its string; see tfi_trace.h. */
static uint32_t innermost_of(uint32_t stack)
{
    size_t length;
    const char *text = stack ? tfi_string_text(stack, &length) : NULL;
    uint32_t number = 0;
    for (size_t i = 0; text && i < length && text[i] != ' '; i++) {
        uint32_t digit = text[i] <= '9' ? (uint32_t)(text[i] - '0') : (uint32_t)(text[i] - 'a' + 10);
        number = number << 4 | (digit & 15);
    }
    return number == TFI_STRING_LOST ? 0 : number;
}

static void note_row(const struct tfi_rec *row)
{
    const void *at = row;
    const struct tfi_rec_kernel *kernel = at;
    const struct tfi_rec_collective *collective = at;
    const struct tfi_rec_sample *sample = at;
    if (row->kind == TFI_KIND_kernel) count_row(TFI_AGGREGATE_KERNEL, kernel->name, kernel->duration);
    else if (row->kind == TFI_KIND_collective)
        count_row(TFI_AGGREGATE_COLLECTIVE, collective->func, collective->duration);
    else if (row->kind == TFI_KIND_sample && sample->stack)
        count_row(TFI_AGGREGATE_LINE, innermost_of(sample->stack), sample->duration);
}

void tfi_aggregates_note(const void *rows, size_t bytes)
{
    const uint8_t *at = rows, *end = at + bytes;
    while (all.keys && (size_t)(end - at) >= sizeof(struct tfi_rec)) {
        const struct tfi_rec *row = (const struct tfi_rec *)at;
        if (row->size < sizeof *row || row->size > end - at) return;
        note_row(row);
        at += row->size;
    }
}

/* ---- the values by aggregate ---- */

/* Sorts numbers; there are few in most runs. */
static void sort_numbers(uint64_t *number, uint32_t count)
{
    uint32_t gap = 1;
    while (gap < count / 3) gap = gap * 3 + 1;
    for (; gap; gap /= 3) {
        for (uint32_t i = gap; i < count; i++) {
            uint64_t moved = number[i];
            uint32_t to = i;
            for (; to >= gap && number[to - gap] > moved; to -= gap) number[to] = number[to - gap];
            number[to] = moved;
        }
    }
}

/* Takes a copy of all places, by aggregate and then by bucket. Under the writer's lock. */
static void take_places(void)
{
    all.taken = 0;
    for (uint32_t i = 0; i < all.places; i++) {
        uint64_t key = __atomic_load_n(&all.place[i].key, __ATOMIC_ACQUIRE);
        uint64_t count = __atomic_load_n(&all.place[i].count, __ATOMIC_RELAXED);
        if (key && count) all.copy[all.taken++] = key << COUNT_BITS | (count < MOST_COUNT ? count : MOST_COUNT);
    }
    sort_numbers(all.copy, all.taken);
}

/* The buckets of one aggregate in the copy. */
struct stretch {
    const uint64_t *copy;
    uint32_t count;
};

static uint32_t bucket_of(uint64_t copied)
{
    return (uint32_t)(copied >> COUNT_BITS) & (BUCKET_ROOM - 1);
}

static uint64_t count_of(uint64_t copied)
{
    return copied & MOST_COUNT;
}

/* Returns the buckets of the aggregate `index`, which is not before that of the last call; `at` goes on behind them. */
static struct stretch stretch_of(uint32_t index, uint32_t *at)
{
    uint64_t owner = (uint64_t)index + 1;
    while (*at < all.taken && all.copy[*at] >> (COUNT_BITS + 12) < owner) ++*at;
    struct stretch s = {&all.copy[*at], 0};
    while (*at < all.taken && all.copy[*at] >> (COUNT_BITS + 12) == owner) s.count++, ++*at;
    return s;
}

/* ---- what is usual ---- */

static uint64_t sum_of_counts(struct stretch s)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s.count; i++) sum += count_of(s.copy[i]);
    return sum;
}

static uint64_t median_of(struct stretch s, uint64_t values)
{
    uint64_t before = 0;
    for (uint32_t i = 0; i < s.count; i++) {
        before += count_of(s.copy[i]);
        if (before > values / 2) return tfi_bucket_middle(bucket_of(s.copy[i]));
    }
    return 0;
}

/* The median of the distances from the median: two places move away from it, the nearer one first. */
static uint64_t deviation_of(struct stretch s, uint64_t values, uint64_t median)
{
    uint32_t above = 0;
    while (above < s.count && tfi_bucket_middle(bucket_of(s.copy[above])) < median) above++;
    uint64_t before = 0, distance = 0;
    for (uint32_t below = above; before <= values / 2 && (below > 0 || above < s.count);) {
        uint64_t down = below > 0 ? median - tfi_bucket_middle(bucket_of(s.copy[below - 1])) : UINT64_MAX;
        uint64_t up = above < s.count ? tfi_bucket_middle(bucket_of(s.copy[above])) - median : UINT64_MAX;
        distance = down < up ? down : up;
        before += count_of(s.copy[down < up ? --below : above++]);
    }
    return distance;
}

static uint64_t largest_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void judge(struct aggregate *a, struct stretch s)
{
    uint64_t values = sum_of_counts(s), median = median_of(s, values);
    uint64_t slow = median + DEVIATIONS * deviation_of(s, values, median);
    slow = largest_of(slow, median + median / 4);
    slow = largest_of(slow, median + (uint64_t)(1e6 / tfi_clock_ns_per_tick()));
    __atomic_store_n(&a->usual, largest_of(median, 1), __ATOMIC_RELAXED);
    __atomic_store_n(&a->slow, slow, __ATOMIC_RELEASE);
}

void tfi_aggregates_judge(void)
{
    uint32_t at = 0;
    bool taken = false;
    for (uint32_t i = TFI_AGGREGATE_END; i < all.keys; i++) {
        struct aggregate *a = &all.aggregate[i];
        uint64_t calls = __atomic_load_n(&a->count, __ATOMIC_RELAXED);
        bool is_stage = __atomic_load_n(&a->key, __ATOMIC_ACQUIRE) >> 32 == TFI_AGGREGATE_STAGE;
        if (!is_stage || calls < FEWEST_CALLS || calls < a->judged + a->judged / 8 + 1 || a->unplaced) continue;
        if (!taken) take_places();
        taken = true;
        a->judged = calls;
        judge(a, stretch_of(i, &at));
    }
}

/* ---- the rows of the trace ---- */

static size_t write_row(uint8_t *to, const struct aggregate *a, struct stretch s, uint64_t now)
{
    struct tfi_rec_aggregate *row = (struct tfi_rec_aggregate *)to;
    size_t bytes = sizeof *row + s.count * sizeof *row->buckets;
    uint64_t key = __atomic_load_n(&a->key, __ATOMIC_RELAXED);
    *row = (struct tfi_rec_aggregate){
        .rec = {TFI_KIND_aggregate, (uint16_t)bytes},
        .name = (uint32_t)key,
        .time = now,
        .what = (uint32_t)(key >> 32),
        .count = __atomic_load_n(&a->count, __ATOMIC_RELAXED),
        .sum = __atomic_load_n(&a->sum, __ATOMIC_RELAXED),
        .again = __atomic_load_n(&a->again, __ATOMIC_RELAXED),
        .least = ~__atomic_load_n(&a->least, __ATOMIC_RELAXED),
        .most = __atomic_load_n(&a->most, __ATOMIC_RELAXED),
        .unplaced = __atomic_load_n(&a->unplaced, __ATOMIC_RELAXED),
    };
    for (uint32_t i = 0; i < s.count; i++)
        row->buckets[i] = (uint64_t)bucket_of(s.copy[i]) << COUNT_BITS | count_of(s.copy[i]);
    return bytes;
}

size_t tfi_aggregates_write(uint8_t *to, uint64_t now, uint32_t *count)
{
    uint32_t at = 0;
    size_t bytes = 0;
    *count = 0;
    take_places();
    for (uint32_t i = 0; i < all.keys; i++) {
        const struct aggregate *a = &all.aggregate[i];
        struct stretch s = stretch_of(i, &at);
        if (!__atomic_load_n(&a->count, __ATOMIC_RELAXED)) continue;
        bytes += write_row(to + bytes, a, s, now);
        ++*count;
    }
    return bytes;
}
