/* analysis_sets.c - the sorted list against an array that is searched from one end to the other, many tallies that
 * change at once against an array of numbers, rows found by a key, and sorting against qsort. */
#include <stdlib.h>
#include <string.h>

#include "base/sets/rows_by_key.h"
#include "base/sets/sort.h"
#include "base/sets/sorted_list.h"
#include "base/sets/tallies.h"
#include "base/util.h"
#include "unit.h"

/* ---- the sorted list ---- */

enum { ITEMS = 3000, CHANGES = 20000, HIGH = 4, LOW = 2000 };

struct item {
    uint64_t key[2];
    int value;
};

static int compare(const uint64_t *a, const uint64_t *b)
{
    if (a[0] != b[0]) return a[0] < b[0] ? -1 : 1;
    return (a[1] > b[1]) - (a[1] < b[1]);
}

/* Checks a found item: it is the only one on the right side of the key that has no other one between. */
static void check_found(const struct item *found, const struct item *item, size_t count, const uint64_t *key, int side,
                        bool or_equal)
{
    const struct item *best = NULL;
    for (size_t i = 0; i < count; i++) {
        int order = side * compare(item[i].key, key);
        if (order < 0 || (order == 0 && !or_equal)) continue;
        if (!best || side * compare(item[i].key, best->key) < 0) best = &item[i];
    }
    ck_assert_int_eq(!found, !best);
    if (best) {
        ck_assert_int_eq(compare(found->key, best->key), 0);
        ck_assert_int_eq(found->value, best->value);
    }
}

static void check_order(const struct sorted *sorted, size_t count)
{
    size_t walked = 0;
    const uint64_t lowest[2] = {0};
    ck_assert_uint_eq(sorted->count, count);
    for (const struct item *at = sorted_from(sorted, lowest), *next; at; at = next) {
        next = sorted_above(sorted, at->key);
        if (next) ck_assert_int_lt(compare(at->key, next->key), 0);
        walked++;
    }
    ck_assert_uint_eq(walked, count);
}

/* The list first grows to many leaves, and then shrinks to nothing. */
START_TEST(searches_and_changes)
{
    static struct item item[ITEMS];
    struct sorted sorted = {.item = sizeof(struct item), .words = 2};
    size_t count = 0;
    srand(7);
    for (int step = 0; step < CHANGES; step++) {
        struct item new = {{(uint64_t)(rand() % HIGH) << 40, (uint64_t)(rand() % LOW)}, rand()};
        bool grows = rand() % 8 < (step < CHANGES / 2 ? 6 : 1);
        size_t at = 0;
        while (at < count && compare(item[at].key, new.key)) at++;
        if (grows && at == count && count < ITEMS) {
            const struct item *inserted = sorted_insert(&sorted, &new);
            ck_assert_int_eq(inserted->value, new.value);
            item[count++] = new;
        } else if (!grows) {
            if (at == count && count && rand() % 4) at = (size_t)rand() % count;
            if (at < count) memcpy(new.key, item[at].key, sizeof new.key);
            ck_assert_int_eq(sorted_remove(&sorted, new.key), at < count);
            if (at < count) item[at] = item[--count];
        }
        if (step % 16) continue;
        const uint64_t key[2] = {(uint64_t)(rand() % HIGH) << 40, (uint64_t)(rand() % LOW)};
        check_found(sorted_below(&sorted, key), item, count, key, -1, false);
        check_found(sorted_up_to(&sorted, key), item, count, key, -1, true);
        check_found(sorted_from(&sorted, key), item, count, key, 1, true);
        check_found(sorted_above(&sorted, key), item, count, key, 1, false);
        if (step % 1024 == 0) check_order(&sorted, count);
    }
    check_order(&sorted, count);
    sorted_free(&sorted);
    ck_assert_ptr_null(sorted_from(&sorted, item[0].key));
}
END_TEST

/* ---- tallies ---- */

enum { TALLIES_MOST = 70, STEPS = 3000 };

/* Plain numbers, and which of them are watched. */
struct plain {
    int64_t value[TALLIES_MOST];
    bool is_watched[TALLIES_MOST];
};

static void change(struct tallies *tallies, struct plain *plain, size_t count)
{
    size_t at = (size_t)rand() % count, last = at + (size_t)rand() % (count - at);
    int64_t number = rand() % 5 - 2;
    switch (rand() % 4) {
    case 0:
        plain->value[at] = rand() % 4;
        tallies_set(tallies, at, plain->value[at]);
        break;
    case 1:
        plain->is_watched[at] = !plain->is_watched[at];
        tallies_watch(tallies, at, plain->is_watched[at]);
        break;
    default:
        for (size_t i = at; i <= last; i++) plain->value[i] = MAX(plain->value[i] + number, 0);
        tallies_add(tallies, at, last, number);
    }
}

/* Checks that a found zero is the next one of the plain numbers. */
struct walk {
    const struct plain *plain;
    size_t next;
};

static void skip_others(struct walk *walk, size_t end)
{
    while (walk->next < end && !(walk->plain->is_watched[walk->next] && !walk->plain->value[walk->next])) walk->next++;
}

static void check_zero(void *context, size_t at)
{
    struct walk *walk = context;
    skip_others(walk, at);
    ck_assert_uint_eq(walk->next++, at);
    ck_assert(walk->plain->is_watched[at] && !walk->plain->value[at]);
}

static void check_same(struct tallies *tallies, const struct plain *plain, size_t count)
{
    size_t zero = tallies_zero(tallies), zeros = 0;
    struct walk walk = {.plain = plain};
    if (rand() % 4 == 0) {
        tallies_zeros(tallies, check_zero, &walk);
        skip_others(&walk, count);
        ck_assert_uint_eq(walk.next, count);
    }
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(tallies_value(tallies, i), plain->value[i]);
        ck_assert_int_eq(tallies_watches(tallies, i), plain->is_watched[i]);
        zeros += plain->is_watched[i] && !plain->value[i];
    }
    ck_assert_int_eq(zero != TALLIES_NONE, zeros > 0);
    if (zeros) ck_assert(zero < count && plain->is_watched[zero] && !plain->value[zero]);
}

START_TEST(changes)
{
    static const size_t counts[] = {1, 2, 3, 8, 64, TALLIES_MOST};
    srand(8);
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        struct plain plain = {0};
        struct tallies tallies;
        tallies_init(&tallies, counts[i]);
        for (int step = 0; step < STEPS; step++) {
            change(&tallies, &plain, counts[i]);
            check_same(&tallies, &plain, counts[i]);
        }
        tallies_free(&tallies);
    }
}
END_TEST

START_TEST(nothing)
{
    struct tallies tallies = {0};
    ck_assert(tallies_zero(&tallies) == TALLIES_NONE);
    tallies_zeros(&tallies, check_zero, NULL);
}
END_TEST

/* ---- rows found by a key ---- */

struct row {
    int64_t rank;
    uint32_t name;
    bool is_device;
    uint64_t seen;
};

/* Keys that differ in one member have rows of their own, in the order of their appearance. */
START_TEST(rows_by_key)
{
    enum { RANKS = 50, NAMES = 40, ROUNDS = 3, KEY = offsetof(struct row, is_device) + sizeof(bool) };
    struct keyed keyed = {0};
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < 2 * RANKS * NAMES; i++) {
            const struct row key = {.rank = (int64_t)(i / 2 / NAMES) - 1, .name = i / 2 % NAMES, .is_device = i % 2};
            struct row *row = keyed_row(&keyed, &key, KEY, sizeof *row);
            ck_assert_uint_eq(row - (struct row *)keyed.row, i);
            ck_assert(row->rank == key.rank && row->name == key.name && row->is_device == key.is_device);
            ck_assert_uint_eq(row->seen++, round);
        }
    }
    ck_assert_uint_eq(keyed.count, 2 * RANKS * NAMES);
    keyed_free(&keyed);
    ck_assert(!keyed.count && !keyed.row);
}
END_TEST

/* ---- sorting ---- */

struct placed {
    uint64_t key;
    size_t place; /* in the array before it was sorted */
    char other[16];
};

static int by_key(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static int by_key_and_place(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    int order = by_key(a, b);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

/* Arrays of 0 to 40 ascending runs, some empty, with equal keys: equal ones keep their order where the runs are merged. */
START_TEST(sorting)
{
    enum { MOST = 40, LONGEST = 30, MERGED = 32 };
    srand(7);
    for (size_t runs = 0; runs <= MOST; runs++) {
        struct placed item[MOST * LONGEST], wanted[MOST * LONGEST];
        size_t count = 0;
        for (size_t run = 0; run < runs; run++) {
            uint64_t key = (uint64_t)rand() % 20;
            for (int left = rand() % LONGEST; left > 0; left--, count++) {
                key += (uint64_t)rand() % 3;
                item[count] = (struct placed){.key = key, .place = count};
            }
        }
        memcpy(wanted, item, count * sizeof *item);
        sort_items(item, count, sizeof *item, by_key);
        qsort(wanted, count, sizeof *wanted, by_key_and_place);
        for (size_t i = 0; i < count; i++) {
            ck_assert_uint_eq(item[i].key, wanted[i].key);
            if (runs <= MERGED) ck_assert_uint_eq(item[i].place, wanted[i].place);
        }
    }
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("sets");
    tcase_add_test(tests, searches_and_changes);
    tcase_add_test(tests, changes);
    tcase_add_test(tests, nothing);
    tcase_add_test(tests, rows_by_key);
    tcase_add_test(tests, sorting);
    return unit_run(tests);
}
