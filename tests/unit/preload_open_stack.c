/* preload_open_stack.c - the open stages of a thread, compared after each step with a plain list. */
#include <stdlib.h>
#include <string.h>

#include "record/thread.h"
#include "stage/open_names.h"
#include "stage/open_stack.h"
#include "unit.h"

enum { STEPS = 30000, DOMAINS = TFI_OPEN_DOMAINS + 8, NAMES = 50, MOST = 3000 };

static struct tfi_thread thread;
static struct tfi_open model[MOST];
static int open_ones;
static uint64_t state, ids;

static uint32_t below(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static int innermost(uint32_t domain)
{
    int i = open_ones;
    while (i-- > 0 && !(model[i].domain == domain && model[i].flags & TFI_RANGE_NESTED)) continue;
    return i;
}

static void put(uint32_t domain, bool nested)
{
    struct tfi_open open = {.id = ++ids,
                            .order = ++thread.orders,
                            .domain = domain,
                            .name = 1 + below(NAMES),
                            .flags = TFI_RANGE_STAGE | (nested ? TFI_RANGE_NESTED : 0)};
    ck_assert(tfi_open_put(&thread, &open));
    model[open_ones++] = open;
}

static void take(int64_t index, int at)
{
    ck_assert_int_ge(index, 0);
    ck_assert_uint_eq(thread.open[index].id, model[at].id);
    tfi_open_take(&thread, (uint32_t)index);
    memmove(&model[at], &model[at + 1], (size_t)(--open_ones - at) * sizeof *model);
}

static void pop(uint32_t domain)
{
    int64_t index = tfi_open_innermost(&thread, domain);
    int at = innermost(domain);
    if (at < 0) ck_assert_int_eq(index, -1);
    else take(index, at);
}

static void check_names(void)
{
    int count[NAMES + 1] = {0};
    for (int i = 0; i < open_ones; i++) count[model[i].name]++;
    for (uint32_t name = 1; name <= NAMES; name++) ck_assert_int_eq(tfi_open_already(&thread, name), count[name] > 0);
}

/* Asserts once, because Check writes a message for each assertion. */
static void check_all(void)
{
    int at = 0, different = 0;
    for (uint32_t i = 0; i < thread.nr_open; i++) {
        if (!thread.open[i].id) continue;
        different += thread.open[i].id != model[at++].id;
    }
    ck_assert_int_eq(at, open_ones);
    ck_assert_int_eq(different, 0);
    ck_assert_uint_eq(thread.nr_open - thread.nr_holes, (uint32_t)open_ones);
    check_names();
}

/* Does one random step. The number of open stages rises and falls. */
static void step(int i)
{
    uint32_t what = below(8), domain = below(4) ? below(3) : below(DOMAINS);
    bool growing = i / 4000 % 2 == 0;
    if (open_ones < MOST && what < (growing ? 5u : 3u)) {
        put(domain, below(3) > 0);
    } else if (what < 6 || !open_ones) {
        pop(domain);
    } else {
        int at = (int)below(4) ? (int)below((uint32_t)open_ones) : 0;
        take(tfi_open_find(&thread, model[at].order, model[at].id), at);
    }
}

START_TEST(test_any_order)
{
    state = (uint64_t)_i + 1;
    for (int i = 0; i < STEPS; i++) {
        step(i);
        if (i % 97 == 0) check_all();
    }
    ck_assert_int_eq(tfi_open_find(&thread, thread.orders + 1, 1), -1);
    tfi_open_empty(&thread);
    open_ones = 0;
    check_all();
    pop(0);
}
END_TEST

/* A jump out of a push leaves the table ahead of the stack, a jump out of a pop leaves it behind. */
START_TEST(test_wrong_tables)
{
    for (int i = 0; i < 100; i++) put(i % 2, true);
    thread.domains[0].innermost = thread.orders + 7;
    thread.domains[1].innermost = model[10].order;
    for (int i = 0; i < 50; i++) pop(0);
    pop(0);
    ck_assert_int_eq(open_ones, 50);
    for (int i = 0; i < 51; i++) pop(1);
    ck_assert_int_eq(open_ones, 0);
}
END_TEST

/* The stack holds sixty thousand stages, wherever its holes are. */
START_TEST(test_queue)
{
    static uint64_t order[60000];
    int lost = 0;
    for (uint32_t i = 0; i < 300000; i++) {
        struct tfi_open open = {.id = i + 1, .order = ++thread.orders};
        uint32_t place = i % 60000;
        if (i >= 60000) {
            int64_t index = tfi_open_find(&thread, order[place], i + 1 - 60000);
            if (index < 0) lost++;
            else tfi_open_take(&thread, (uint32_t)index);
        }
        order[place] = open.order;
        lost += !tfi_open_put(&thread, &open);
    }
    ck_assert_int_eq(lost, 0);
    ck_assert_uint_eq(thread.nr_open - thread.nr_holes, 60000);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("open_stack");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_any_order, 0, 4);
    tcase_add_test(tcase, test_wrong_tables);
    tcase_add_test(tcase, test_queue);
    return unit_run(tcase);
}
