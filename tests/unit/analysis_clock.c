/* analysis_clock.c - from ticks to nanoseconds: rates, interrupted readings, steps, and impossible readings. */
#include <stdlib.h>

#include "base/util.h"
#include "model/clock.h"
#include "tfi_trace.h"
#include "unit.h"

static const uint64_t REAL = 1700000000000000000u;

static void add_pair(struct clock *clock, uint64_t ticks, uint64_t monotonic, uint64_t realtime, uint64_t error)
{
    clock_add(clock, TFI_CLOCK_REALTIME, ticks, realtime, error);
    clock_add(clock, TFI_CLOCK_MONOTONIC, ticks, monotonic, error);
    clock_add(clock, TFI_CLOCK_DEVICE, ticks, 5, error);
    clock_add(clock, 99, ticks, 5, error);
}

START_TEST(straight_lines_between_readings)
{
    struct clock clock = {0};
    add_pair(&clock, 3000, 2000, REAL + 1500, 10);
    add_pair(&clock, 1000, 1000, REAL + 500, 10);
    add_pair(&clock, 4000, 2100, REAL + 1600, 10);
    clock_build(&clock);
    ck_assert(clock.has_rate && clock.has_axis && clock.steps == 0);
    ck_assert_int_eq(clock_ns(&clock, 1000), REAL + 500);
    ck_assert_int_eq(clock_ns(&clock, 2000), REAL + 1000);
    ck_assert_int_eq(clock_ns(&clock, 3500), REAL + 1550);
    /* Outside the readings the average rate holds: 1100 ns in 3000 ticks. */
    ck_assert_int_eq(clock_ns(&clock, 7000), REAL + 1600 + 1100);
    ck_assert_int_eq(clock_ns(&clock, 0), REAL + 500 - 367);
    clock_free(&clock);
}
END_TEST

START_TEST(it_never_runs_backwards)
{
    struct clock clock = {0};
    srand(3);
    for (uint64_t i = 0; i < 50; i++)
        add_pair(&clock, i * 1000003, i * 412345 + (uint64_t)rand() % 90, REAL + i * 412345, 20);
    clock_build(&clock);
    int64_t last = INT64_MIN;
    for (uint64_t ticks = 0; ticks < 60000000; ticks += 997) {
        int64_t now = clock_ns(&clock, ticks);
        ck_assert_int_ge(now, last);
        last = now;
    }
    clock_free(&clock);
}
END_TEST

START_TEST(an_interrupted_reading_is_not_used)
{
    struct clock clock = {0};
    add_pair(&clock, 0, 0, REAL, 50);
    add_pair(&clock, 500000, 900000, REAL + 900000, 800000);
    add_pair(&clock, 1000000, 1000000, REAL + 1000000, 60);
    clock_build(&clock);
    ck_assert_int_eq(clock_ns(&clock, 500000), REAL + 500000);
    ck_assert_uint_eq(clock.steps, 0);
    clock_free(&clock);
}
END_TEST

START_TEST(a_step_of_realtime_is_flagged_and_does_not_bend_time)
{
    struct clock clock = {0};
    add_pair(&clock, 0, 0, REAL, 5);
    add_pair(&clock, 1000000, 1000000, REAL + 1000000, 5);
    add_pair(&clock, 2000000, 2000000, REAL + 2000000 - 3000000, 5);
    add_pair(&clock, 3000000, 3000000, REAL + 3000000 - 3000000 + 900000, 5); /* less than a millisecond: slewed */
    clock_build(&clock);
    ck_assert_uint_eq(clock.steps, 1);
    ck_assert_int_eq(clock.step[0].by, -3000000);
    ck_assert_int_eq(clock.step[0].at, REAL + 2000000);
    ck_assert_int_eq(clock_ns(&clock, 2500000) - clock_ns(&clock, 1500000), 1000000);
    clock_free(&clock);
}
END_TEST

START_TEST(a_counter_of_nanoseconds_needs_no_rate)
{
    struct clock clock = {.is_nanoseconds = true};
    clock_build(&clock);
    ck_assert(clock.has_rate && !clock.has_axis);
    ck_assert_int_eq(clock_ns(&clock, 123456789012345678u), 123456789012345678);
    clock_free(&clock);
    clock = (struct clock){.is_nanoseconds = true};
    add_pair(&clock, 9007199254740993, 9007199254740999, REAL, 5);
    clock_build(&clock);
    ck_assert_int_eq(clock_ns(&clock, 9007199254740993), REAL);
    ck_assert_int_eq(clock_ns(&clock, 9007199254741000), REAL + 7);
    clock_free(&clock);
}
END_TEST

START_TEST(one_reading_gives_no_rate)
{
    struct clock clock = {0};
    clock_build(&clock);
    ck_assert(!clock.has_rate && !clock.has_axis);
    ck_assert_int_eq(clock_ns(&clock, 77), 77);
    clock_free(&clock);
    clock = (struct clock){0};
    add_pair(&clock, 100, 5000, REAL, 5);
    clock_build(&clock);
    ck_assert(!clock.has_rate && clock.has_axis);
    ck_assert_int_eq(clock_ns(&clock, 107), REAL + 7);
    clock_free(&clock);
}
END_TEST

START_TEST(readings_that_cannot_be_do_no_harm)
{
    static const uint64_t odd[] = {0, 1, 1000, UINT64_MAX, UINT64_MAX / 2, INT64_MAX, 1u << 31, REAL};
    for (size_t a = 0; a < ARRAY_SIZE(odd); a++) {
        for (size_t b = 0; b < ARRAY_SIZE(odd); b++) {
            for (size_t c = 0; c < ARRAY_SIZE(odd); c++) {
                struct clock clock = {.is_nanoseconds = a == b};
                add_pair(&clock, odd[a], odd[b], odd[c], odd[(a + b) % 8]);
                add_pair(&clock, odd[c], odd[a], odd[b], odd[c]);
                add_pair(&clock, odd[b], odd[c], odd[a], 0);
                clock_build(&clock);
                struct clock_stretch stretch = {0};
                for (size_t i = 0; i < 3 * ARRAY_SIZE(odd); i++) {
                    uint64_t ticks = odd[i / 3] + i % 3; /* the second and third near the first */
                    int64_t ns = clock_ns(&clock, ticks);
                    ck_assert(ns >= -4000000000000000000 && ns <= 4000000000000000000);
                    ck_assert_int_eq(clock_ns_near(&clock, &stretch, ticks), ns);
                }
                clock_free(&clock);
            }
        }
    }
}
END_TEST

START_TEST(near_readings_convert_as_all_others)
{
    struct clock clock = {0};
    uint64_t last = 100000000, span = last / 2 * 3;
    size_t inside = 0;
    srand(4);
    for (uint64_t ticks = 0; ticks <= last; ticks += last / 50)
        add_pair(&clock, ticks, 5000000000000 + ticks * 4 / 11 + (uint64_t)rand() % 900, REAL + ticks * 4 / 11, 10);
    clock_build(&clock);
    struct clock_stretch stretch = {0};
    for (uint64_t i = 0, ticks = 0; i < 100000; i++) {
        ticks = i % 7 ? ticks + (uint64_t)rand() % 2000 : (uint64_t)rand() % span; /* also beyond the last reading */
        inside += ticks - stretch.from < stretch.ticks;
        ck_assert_int_eq(clock_ns_near(&clock, &stretch, ticks), clock_ns(&clock, ticks));
    }
    ck_assert_uint_gt(inside, 80000);
    clock.shift = (struct clock_shift){.origin = REAL, .offset = 7, .drift = 1e-6};
    stretch = (struct clock_stretch){0};
    for (uint64_t ticks = 0; ticks < last; ticks += last / 1000)
        ck_assert_int_eq(clock_ns_near(&clock, &stretch, ticks), clock_ns(&clock, ticks));
    clock_free(&clock);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("clock");
    tcase_add_test(tcase, straight_lines_between_readings);
    tcase_add_test(tcase, it_never_runs_backwards);
    tcase_add_test(tcase, an_interrupted_reading_is_not_used);
    tcase_add_test(tcase, a_step_of_realtime_is_flagged_and_does_not_bend_time);
    tcase_add_test(tcase, a_counter_of_nanoseconds_needs_no_rate);
    tcase_add_test(tcase, one_reading_gives_no_rate);
    tcase_add_test(tcase, readings_that_cannot_be_do_no_harm);
    tcase_add_test(tcase, near_readings_convert_as_all_others);
    return unit_run(tcase);
}
