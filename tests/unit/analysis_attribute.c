/* analysis_attribute.c - the four rules that assign work to a stage, launches with equal ids, operators. */

#include "ask/attribute.h"
#include "ask/stages/stage_table.h"
#include "unit.h"

static struct process process;
static struct attribution a;

static void setup(void)
{
    process_init(&process, "a.json", "kineto");
    process_lane(&process, 0, 7, true);
}

static void teardown(void)
{
    attribution_free(&a);
    process_free(&process);
}

static uint32_t add_stage(uint32_t thread, int64_t start, int64_t end)
{
    struct ranges *r = &process.ranges;
    ranges_reserve(r, 1, false);
    size_t at = r->table.count++;
    r->start[at] = start;
    r->end[at] = end;
    r->thread[at] = thread;
    r->flags[at] = TFI_RANGE_STAGE | TFI_RANGE_NESTED;
    r->id[at] = NO_ID;
    r->name[at] = 10 + (uint32_t)at;
    r->domain[at] = r->depth[at] = 0;
    return (uint32_t)at;
}

static uint32_t add_span(enum event_class event_class, uint32_t thread, int64_t start, int64_t end, uint64_t id)
{
    struct spans *s = &process.spans;
    spans_reserve(s, 1);
    size_t at = s->table.count++;
    s->start[at] = start;
    s->end[at] = end;
    s->thread[at] = thread;
    s->id[at] = id;
    s->name[at] = 5;
    s->event_class[at] = (uint8_t)event_class;
    return (uint32_t)at;
}

static uint32_t add_work(int64_t start, uint64_t correlation, uint64_t external)
{
    struct works *w = &process.works;
    works_reserve(w, 1);
    size_t at = w->table.count++;
    w->start[at] = start;
    w->end[at] = start + 10;
    w->correlation[at] = correlation;
    w->external[at] = external;
    w->name[at] = 6;
    w->lane[at] = 0;
    w->event_class[at] = CLASS_KERNEL;
    return (uint32_t)at;
}

static void add_arrow(uint64_t id, uint32_t thread, int64_t time, bool is_forward)
{
    struct forwards *f = &process.forwards;
    forwards_reserve(f, 1);
    size_t at = f->table.count++;
    f->id[at] = id;
    f->thread[at] = thread;
    f->time[at] = time;
    f->is_forward[at] = is_forward;
}

/* Adds a kernel launched by a call on this thread at this time. */
static uint32_t launch(uint32_t thread, int64_t time)
{
    static uint64_t id = 1000;
    add_span(CLASS_API, thread, time, time + 1, ++id);
    return add_work(time + 1000, id, NO_ID);
}

static void check_work(uint32_t work, uint32_t stage, enum via via)
{
    ck_assert_uint_eq(a.work[work].stage, stage);
    ck_assert_int_eq(a.work[work].via, (int)via);
}

START_TEST(the_innermost_stage_of_the_launching_thread)
{
    uint32_t outer = add_stage(1, 100, 200), inner = add_stage(1, 120, 150), other = add_stage(2, 100, 200);
    uint32_t first = launch(1, 100), in = launch(1, 120), last = launch(1, 149), after = launch(1, 150);
    uint32_t elsewhere = launch(2, 130), end = launch(1, 200), before = launch(1, 99);
    attribute(&a, &process, (struct needs){.operators_of_work = true});
    check_work(first, outer, VIA_THREAD);
    check_work(in, inner, VIA_THREAD);
    check_work(last, inner, VIA_THREAD);
    check_work(after, outer, VIA_THREAD);
    check_work(elsewhere, other, VIA_THREAD);
    check_work(end, NO_PLACE, VIA_NONE);
    check_work(before, NO_PLACE, VIA_NONE);
    ck_assert_uint_eq(stages_around(&a.paths, inner, 130), outer);
    ck_assert_uint_eq(stages_around(&a.paths, outer, 130), NO_PLACE);
}
END_TEST

START_TEST(stages_that_cross)
{
    uint32_t first = add_stage(1, 0, 100), second = add_stage(1, 50, 150), inside = add_stage(1, 110, 120);
    uint32_t both = launch(1, 60), late = launch(1, 105), deep = launch(1, 115);
    attribute(&a, &process, (struct needs){.operators_of_work = true});
    check_work(both, second, VIA_THREAD);
    check_work(late, second, VIA_THREAD);
    check_work(deep, inside, VIA_THREAD);
    ck_assert_uint_eq(stages_around(&a.paths, second, 60), first);
    ck_assert_uint_eq(stages_around(&a.paths, second, 105), NO_PLACE); /* the first one has ended */
}
END_TEST

START_TEST(a_backward_operator_belongs_to_its_forward)
{
    uint32_t forward = add_stage(1, 0, 50);
    add_stage(1, 60, 200); /* open during backward, on the thread that waits for it */
    add_span(CLASS_OPERATOR, 1, 10, 20, NO_ID);
    add_span(CLASS_OPERATOR, 2, 100, 140, NO_ID); /* evaluate_function */
    add_span(CLASS_OPERATOR, 2, 105, 130, NO_ID); /* MmBackward: the arrow ends here */
    add_span(CLASS_OPERATOR, 2, 150, 160, NO_ID); /* no arrow ends here */
    add_arrow(77, 1, 10, true);
    add_arrow(77, 2, 105, false);
    uint32_t in = launch(2, 110), around = launch(2, 135), without = launch(2, 155);
    attribute(&a, &process, (struct needs){.operators_of_work = true, .stages_of_spans = true});
    check_work(in, forward, VIA_FORWARD);
    check_work(around, forward, VIA_FORWARD);
    check_work(without, forward + 1, VIA_ONLY);
    ck_assert_int_eq(a.work[in].time, 10);
    ck_assert_uint_eq(a.span[2].stage, forward); /* MmBackward itself */
}
END_TEST

START_TEST(another_thread_has_the_only_stage)
{
    uint32_t one = add_stage(1, 0, 100), inner = add_stage(1, 10, 20), two = add_stage(3, 90, 200);
    uint32_t in = launch(2, 15), out = launch(2, 30), both = launch(2, 95), later = launch(2, 100),
             none = launch(2, 200);
    attribute(&a, &process, (struct needs){.operators_of_work = true});
    check_work(in, inner, VIA_ONLY);
    check_work(out, one, VIA_ONLY);
    check_work(both, NO_PLACE, VIA_NONE);
    check_work(later, two, VIA_ONLY);
    check_work(none, NO_PLACE, VIA_NONE);
}
END_TEST

START_TEST(launches_with_one_id)
{
    uint32_t early = add_span(CLASS_API, 1, 100, 110, 5), late = add_span(CLASS_API, 1, 300, 310, 5);
    uint32_t first = add_work(120, 5, NO_ID), second = add_work(320, 5, NO_ID), before = add_work(50, 5, NO_ID);
    uint32_t none = add_work(400, 6, NO_ID);
    attribute(&a, &process, (struct needs){.operators_of_work = true});
    ck_assert_uint_eq(a.launch[first], early);
    ck_assert_uint_eq(a.launch[second], late);
    ck_assert_uint_eq(a.launch[before], early);
    ck_assert_uint_eq(a.launch[none], NO_PLACE);
    ck_assert_uint_eq(a.doubled, 1);
    ck_assert_uint_eq(a.unlinked, 1);
}
END_TEST

START_TEST(operators_of_work)
{
    uint32_t stage = add_stage(1, 0, 1000);
    uint32_t outer = add_span(CLASS_OPERATOR, 1, 100, 200, 41), inner = add_span(CLASS_OPERATOR, 1, 120, 180, 42);
    uint32_t in = launch(1, 150), out = launch(1, 190), beside = launch(1, 250);
    uint32_t by_external = add_work(500, 99999, 42);
    attribute(&a, &process, (struct needs){.operators_of_work = true});
    ck_assert_uint_eq(a.op[in], inner);
    ck_assert_uint_eq(a.op[out], outer);
    ck_assert_uint_eq(a.op[beside], NO_PLACE);
    ck_assert_uint_eq(a.op[by_external], inner);
    check_work(by_external, stage, VIA_THREAD);
    ck_assert_uint_eq(a.unlinked, 0);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("attribute");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, the_innermost_stage_of_the_launching_thread);
    tcase_add_test(tcase, stages_that_cross);
    tcase_add_test(tcase, a_backward_operator_belongs_to_its_forward);
    tcase_add_test(tcase, another_thread_has_the_only_stage);
    tcase_add_test(tcase, launches_with_one_id);
    tcase_add_test(tcase, operators_of_work);
    return unit_run(tcase);
}
