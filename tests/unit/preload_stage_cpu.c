/* preload_stage_cpu.c - processor times between readings of the clock, against the clock itself. */
#include <time.h>

#include "stage/stage_cpu.h"
#include "unit.h"

enum { CALLS = 10000, MOST_AHEAD_NS = 40000, ROUNDING_NS = 100 };

static void let_the_rate_be_known(void)
{
    tfi_clock_choose();
    tfi_clock_init();
    struct timespec pause = {.tv_nsec = 2000000};
    while (!tfi_clock_rate()) nanosleep(&pause, NULL);
}

/* A time is never behind the clock, and ahead of it by one short distance at most, also behind a sleep. */
START_TEST(times_follow_the_clock)
{
    static struct tfi_thread self;
    let_the_rate_be_known();
    for (int i = 0; i < CALLS; i++) {
        uint64_t before = tfi_own_cpu_ns(), ns = tfi_cpu_self(&self, tfi_ticks()), after = tfi_own_cpu_ns();
        ck_assert_uint_ge(ns + ROUNDING_NS, before);
        ck_assert_uint_le(ns, after + MOST_AHEAD_NS);
        struct timespec pause = {.tv_nsec = 1000};
        if (i % 100 == 0) nanosleep(&pause, NULL);
    }
}
END_TEST

/* Most times need no reading. */
START_TEST(most_need_no_reading)
{
    static struct tfi_thread self;
    int readings = 0;
    let_the_rate_be_known();
    for (int i = 0; i < CALLS; i++) {
        uint64_t before = self.cpu.ticks;
        tfi_cpu_self(&self, tfi_ticks());
        readings += self.cpu.ticks != before;
    }
    ck_assert_int_gt(readings, 0);
    ck_assert_int_lt(readings, CALLS / 2);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("stage_cpu");
    tcase_add_test(tests, times_follow_the_clock);
    tcase_add_test(tests, most_need_no_reading);
    return unit_run(tests);
}
