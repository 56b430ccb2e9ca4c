/* analysis_io.c - sizes, time buckets and measures of sets against plain arrays. */
#include <stdlib.h>
#include <string.h>

#include "ask/io/buckets.h"
#include "ask/io/sizes.h"
#include "base/sets/measure.h"
#include "base/util.h"
#include "model/names.h"
#include "unit.h"

enum { ROUNDS = 300 };

static int by_value(const void *a, const void *b)
{
    return by_number(*(const int64_t *)a, *(const int64_t *)b);
}

START_TEST(percentiles_are_those_of_the_whole_list)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct sizes one = {0}, two = {0};
        size_t count = (size_t)(rand() % 900) + 1;
        int64_t *all = mem_zero(count, sizeof *all);
        for (size_t i = 0; i < count; i++) {
            all[i] = rand() % (round % 2 ? 7 : 100000);
            sizes_add(rand() % 3 ? &one : &two, all[i], 1);
        }
        sizes_add_all(&one, &two);
        sizes_settle(&one);
        qsort(all, count, sizeof *all, by_value);
        for (int quarter = 0; quarter <= 4; quarter++) {
            double at = quarter * 0.25 * (double)(count - 1);
            size_t below = (size_t)at, above = MIN(below + 1, count - 1);
            double want = (double)all[below] + (at - (double)below) * (double)(all[above] - all[below]);
            ck_assert_double_le(labs((long)sizes_percentile(&one, quarter * 0.25) - (long)want), 1.0);
        }
        ck_assert_int_eq(one.run[0].bytes, all[0]);
        ck_assert_int_eq(one.run[one.count - 1].bytes, all[count - 1]);
        free(all);
        sizes_free(&one);
        sizes_free(&two);
    }
}
END_TEST

START_TEST(measures_count_moments)
{
    enum { MOMENTS = 80 };
    for (int round = 0; round < ROUNDS; round++) {
        bool in_a[MOMENTS] = {0}, in_b[MOMENTS] = {0};
        struct intervals a = {0}, b = {0};
        for (int i = rand() % 14; i > 0; i--) {
            struct intervals *set = rand() % 2 ? &a : &b;
            int start = rand() % MOMENTS, end = start + rand() % 12;
            end = MIN(end, MOMENTS);
            intervals_add_merging(set, start, end);
            memset((set == &a ? in_a : in_b) + start, 1, (size_t)(end - start));
        }
        intervals_merge(&a);
        intervals_merge(&b);
        struct measure measure;
        measure_init(&measure, &a);
        int64_t both = 0;
        for (int i = 0; i < MOMENTS; i++) both += in_a[i] && in_b[i];
        ck_assert_int_eq(measure_overlap(&measure, &b), both);
        struct intervals common = intervals_common(&a, &b);
        ck_assert_int_eq(intervals_total(&common), both);
        for (int from = 0; from < MOMENTS; from += 7) {
            for (int to = 0; to <= MOMENTS; to += 5) {
                int64_t want = 0;
                for (int i = from; i < to; i++) want += in_a[i];
                ck_assert_int_eq(measure_between(&measure, from, to), want);
            }
        }
        measure_free(&measure);
        intervals_free(&common);
        intervals_free(&a);
        intervals_free(&b);
    }
}
END_TEST

START_TEST(touching_intervals_take_no_memory)
{
    struct intervals set = {0};
    for (int64_t i = 0; i < 100000; i++) intervals_add_merging(&set, i, i + 1);
    ck_assert_uint_lt(set.capacity, 64);
    for (int64_t i = 0; i < 1000; i++) intervals_add_merging(&set, 200000 + 2 * i, 200001 + 2 * i);
    intervals_merge(&set);
    ck_assert_uint_eq(set.count, 1001);
    ck_assert_int_eq(intervals_total(&set), 101000);
    intervals_free(&set);
}
END_TEST

/* Adds a read of one byte that begins at `time`. */
static void read_at(struct io_buckets *buckets, struct ios *ios, int64_t time)
{
    ios->start[0] = time;
    ios->end[0] = time + 5;
    ios->bytes[0] = 1;
    io_buckets_call(buckets, ios, 0);
}

START_TEST(buckets_keep_every_call)
{
    struct ios ios = {0};
    struct names names;
    names_init(&names);
    ios_add(&ios);
    ios.function[0] = ios_function(&ios, &names, names_add(&names, "POSIX", 5), names_add(&names, "read", 4));
    for (int round = 0; round < ROUNDS; round++) {
        struct io_buckets one = {0}, two = {0};
        int64_t spread = (int64_t)1 << (rand() % 55), count = 1 + rand() % 40, first = INT64_MAX, last = INT64_MIN;
        for (int64_t i = 0; i < count; i++) {
            int64_t time = ((int64_t)rand() << 24 ^ rand()) % spread - spread / 2;
            first = MIN(first, time);
            last = MAX(last, time);
            read_at(rand() % 2 ? &one : &two, &ios, time);
        }
        io_buckets_add(&one, &two);
        uint64_t calls = 0, bytes = 0;
        for (size_t i = 0; i < one.count; i++) {
            calls += one.bucket[i].calls;
            bytes += one.bucket[i].read_bytes;
        }
        ck_assert_uint_eq(calls, (uint64_t)count);
        ck_assert_uint_eq(bytes, (uint64_t)count);
        ck_assert_uint_le(one.count, IO_BUCKETS);
        ck_assert(one.bucket[0].calls && one.bucket[one.count - 1].calls);
        ck_assert_int_le(one.first * one.width, first);
        ck_assert_int_gt((one.first + (int64_t)one.count) * one.width, last);
        io_buckets_free(&one);
        io_buckets_free(&two);
    }
    ios_free(&ios);
    names_free(&names);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("io");
    tcase_add_test(tests, percentiles_are_those_of_the_whole_list);
    tcase_add_test(tests, measures_count_moments);
    tcase_add_test(tests, touching_intervals_take_no_memory);
    tcase_add_test(tests, buckets_keep_every_call);
    return unit_run(tests);
}
