/* analysis_runs.c - sorted arrays of few and of many runs, against the order that their numbers give. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/runs.h"
#include "unit.h"

enum { MOST = 3000 };

struct item {
    uint32_t key, number; /* number: in order of the array before it was sorted */
    uint64_t more[2];
};

static size_t compared;

static int by_key(const void *a, const void *b, void *context)
{
    const uint32_t *x = a, *y = b;
    (*(size_t *)context)++;
    return (*x > *y) - (*x < *y);
}

/* Fills `items` with runs of about `length`, whose keys are below `keys`. */
static void fill(struct item *items, size_t count, size_t length, uint32_t keys)
{
    uint32_t key = 0;
    for (size_t i = 0; i < count; i++) {
        bool ends = (size_t)rand() % length == 0;
        key = ends ? (uint32_t)rand() % keys : key + (uint32_t)rand() % 3;
        items[i] = (struct item){key, (uint32_t)i, {key, ~key}};
    }
}

/* Sorts the first `size` bytes of each item as an array of its own. Returns the number of items that are wrong: Check's
 * assertions take longer than a comparison. */
static size_t wrong_when_sorted(const struct item *items, size_t count, size_t size)
{
    char *array = calloc(count + 1, size);
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) memcpy(array + i * size, &items[i], size);
    sort_runs(array, count, size, by_key, &compared);
    for (size_t i = 0; i < count; i++) {
        struct item item = {0}, before = {0};
        memcpy(&item, array + i * size, size);
        if (i) memcpy(&before, array + (i - 1) * size, size);
        wrong += item.key < before.key;
        wrong += i && size > sizeof item.key && item.key == before.key && item.number <= before.number;
        wrong += size == sizeof item && item.more[1] != (~(uint64_t)item.more[0] & UINT32_MAX);
        wrong += size > sizeof item.key && items[item.number].key != item.key;
    }
    free(array);
    return wrong;
}

START_TEST(runs_of_any_length)
{
    static const size_t lengths[] = {1, 2, 10, 40, 200, MOST};
    static const size_t sizes[] = {sizeof(uint32_t), sizeof(uint64_t), 2 * sizeof(uint64_t), sizeof(struct item)};
    struct item items[MOST];
    srand(7);
    for (size_t round = 0; round < 600; round++) {
        size_t count = (size_t)rand() % (round % 2 ? MOST : 40);
        fill(items, count, lengths[round % 6], round % 5 ? 2000 : 5);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            ck_assert_uint_eq(wrong_when_sorted(items, count, sizes[i]), 0);
    }
}
END_TEST

/* A late item costs a search, and an array in order nothing but a look at each pair. */
START_TEST(few_comparisons)
{
    struct item items[MOST];
    for (uint32_t i = 0; i < MOST; i++) items[i] = (struct item){.key = 10 * i, .number = i};
    compared = 0;
    sort_runs(items, MOST, sizeof *items, by_key, &compared);
    ck_assert_uint_eq(compared, MOST - 1);
    items[MOST / 2].key = 10 * (MOST / 2 - 5) + 1;
    compared = 0;
    sort_runs(items, MOST, sizeof *items, by_key, &compared);
    ck_assert_uint_lt(compared, MOST + 40);
    ck_assert_uint_eq(items[MOST / 2 - 4].number, MOST / 2);
}
END_TEST

START_TEST(nothing)
{
    compared = 0;
    sort_runs(NULL, 0, 8, by_key, &compared);
    uint64_t one = 1;
    sort_runs(&one, 1, sizeof one, by_key, &compared);
    ck_assert_uint_eq(compared, 0);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("runs");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, runs_of_any_length);
    tcase_add_test(tcase, few_comparisons);
    tcase_add_test(tcase, nothing);
    return unit_run(tcase);
}
