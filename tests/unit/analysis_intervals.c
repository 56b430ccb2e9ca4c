/* analysis_intervals.c - sets of intervals against a plain array of moments, and intervals of negative length. */
#include <stdlib.h>
#include <string.h>

#include "base/sets/intervals.h"
#include "base/util.h"
#include "unit.h"

enum { MOMENTS = 64, ROUNDS = 400 };

/* Makes a random set, and the array of the moments in it. */
static struct intervals random_set(bool moment[MOMENTS])
{
    struct intervals set = {0};
    memset(moment, 0, MOMENTS * sizeof *moment);
    for (int i = rand() % 12; i > 0; i--) {
        int start = rand() % MOMENTS, end = start + rand() % 9 - 1;
        end = MIN(end, MOMENTS);
        intervals_add(&set, start, end);
        for (int at = start; at < end; at++) moment[at] = true;
    }
    intervals_merge(&set);
    return set;
}

static void check_is(const struct intervals *set, const bool moment[MOMENTS])
{
    int64_t total = 0;
    size_t runs = 0;
    for (int i = 0; i < MOMENTS; i++) {
        total += moment[i];
        runs += moment[i] && (i == 0 || !moment[i - 1]);
    }
    ck_assert_int_eq(intervals_total(set), total);
    ck_assert_uint_eq(set->count, runs);
    for (size_t i = 1; i < set->count; i++) ck_assert_int_lt(set->interval[i - 1].end, set->interval[i].start);
}

START_TEST(unions_and_overlaps)
{
    srand(5);
    for (int round = 0; round < ROUNDS; round++) {
        bool in_a[MOMENTS], in_b[MOMENTS], in_both[MOMENTS];
        int64_t overlap = 0;
        struct intervals a = random_set(in_a), b = random_set(in_b);
        struct intervals both = intervals_union(&a, &b);
        for (int i = 0; i < MOMENTS; i++) {
            in_both[i] = in_a[i] || in_b[i];
            overlap += in_a[i] && in_b[i];
        }
        check_is(&a, in_a);
        check_is(&b, in_b);
        check_is(&both, in_both);
        ck_assert_int_eq(intervals_overlap(&a, &b), overlap);
        ck_assert_int_eq(intervals_overlap(&b, &a), overlap);
        intervals_free(&a);
        intervals_free(&b);
        intervals_free(&both);
    }
}
END_TEST

START_TEST(combinations)
{
    srand(6);
    for (int round = 0; round < ROUNDS; round++) {
        bool in[INTERVALS_SETS][MOMENTS];
        struct intervals set[INTERVALS_SETS];
        int64_t total[INTERVALS_COMBINATIONS] = {0}, expected[INTERVALS_COMBINATIONS] = {0};
        for (size_t i = 0; i < INTERVALS_SETS; i++) set[i] = random_set(in[i]);
        for (int at = 0; at < MOMENTS; at++) expected[in[0][at] | in[1][at] << 1 | in[2][at] << 2]++;
        intervals_combine(set, INTERVALS_SETS, total);
        for (size_t bits = 1; bits < INTERVALS_COMBINATIONS; bits++) ck_assert_int_eq(total[bits], expected[bits]);
        ck_assert_int_eq(total[0], 0);
        for (size_t i = 0; i < INTERVALS_SETS; i++) intervals_free(&set[i]);
    }
}
END_TEST

/* HTA's rounding can make work end before it starts. */
START_TEST(an_interval_of_less_than_nothing)
{
    struct interval backwards[] = {{5, 4}}, around[] = {{0, 10}};
    struct intervals set[] = {{around, 1, 1}, {NULL, 0, 0}, {backwards, 1, 1}};
    int64_t total[INTERVALS_COMBINATIONS] = {0};
    intervals_combine(set, INTERVALS_SETS, total);
    ck_assert_int_eq(total[1], 9); /* between 4 and 5 the sum is 1 - 4 = -3 */
    ck_assert_int_eq(total[4] + total[5], 0);
    set[0] = (struct intervals){backwards, 1, 1};
    set[2] = (struct intervals){around, 1, 1};
    memset(total, 0, sizeof total);
    intervals_combine(set, INTERVALS_SETS, total);
    ck_assert_int_eq(total[4], 9);
    ck_assert_int_eq(total[3], 1); /* 4 - 1 */
}
END_TEST

START_TEST(nothing)
{
    struct intervals none = {0}, some = {0};
    int64_t total[INTERVALS_COMBINATIONS] = {0};
    intervals_add(&some, 3, 3);
    intervals_add(&some, 3, 2);
    ck_assert_uint_eq(some.count, 0);
    intervals_merge(&some);
    ck_assert_int_eq(intervals_overlap(&none, &some), 0);
    struct intervals both = intervals_union(&none, &some);
    ck_assert_uint_eq(both.count, 0);
    intervals_combine(&none, 1, total);
    ck_assert_int_eq(total[1], 0);
    intervals_free(&both);
    intervals_free(&some);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("intervals");
    tcase_add_test(tcase, unions_and_overlaps);
    tcase_add_test(tcase, combinations);
    tcase_add_test(tcase, an_interval_of_less_than_nothing);
    tcase_add_test(tcase, nothing);
    return unit_run(tcase);
}
