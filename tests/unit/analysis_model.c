/* analysis_model.c - matching of range ends with their beginnings, functions, and the tree of stages. */
#include <string.h>

#include "ask/stages/stage_table.h"
#include "unit.h"

static struct process process;
static const struct choice always = {.process = &process, .window = {INT64_MIN, INT64_MAX}};

static void setup(void)
{
    process_init(&process, "a.tfr", "tfr");
    process.clock.is_nanoseconds = true;
    clock_build(&process.clock);
}

static void teardown(void)
{
    process_free(&process);
}

static void add_begin(uint64_t id, int64_t time, uint32_t name, uint32_t flags)
{
    struct begins *b = &process.begins;
    size_t at = begins_add(b, id, true);
    b->time[at] = time;
    b->name[at] = name;
    b->flags[at] = flags;
    b->thread[at] = 1;
    b->domain[at] = b->depth[at] = 0;
    b->detail[at] = (struct range_detail){.category = (uint32_t)id};
}

static void add_end(uint64_t id, int64_t start, int64_t end, uint32_t name, uint32_t flags)
{
    struct ranges *r = &process.ranges;
    ranges_reserve(r, 1, true);
    size_t at = r->table.count++;
    r->start[at] = start;
    r->end[at] = end;
    r->id[at] = id;
    r->name[at] = name;
    r->flags[at] = flags;
    r->thread[at] = 1;
    r->domain[at] = r->depth[at] = 0;
    r->detail[at] = (struct range_detail){0};
    begins_meet(&process, true);
}

START_TEST(ends_meet_beginnings_in_any_order)
{
    enum { RANGES = 500 };
    for (uint64_t i = 0; i < RANGES; i++) {
        if (i % 3 != 1) add_begin(i, (int64_t)i, 5, TFI_RANGE_STAGE);
        add_end(i, (int64_t)i, (int64_t)i + 10, 5, TFI_RANGE_STAGE);
        if (i % 3 == 1) add_begin(i, (int64_t)i, 5, TFI_RANGE_STAGE);
    }
    process.last = 100000;
    add_begin(RANGES, 77, 6, TFI_RANGE_STAGE);
    process_finish(&process);
    const struct ranges *r = &process.ranges;
    ck_assert_uint_eq(r->table.count, RANGES + 1);
    for (size_t i = 0; i < RANGES; i++) ck_assert_uint_eq(r->detail[i].category, i);
    ck_assert(r->flags[RANGES] & RANGE_UNFINISHED);
    ck_assert(r->start[RANGES] == 77 && r->end[RANGES] == 100000 && r->name[RANGES] == 6);
}
END_TEST

static void add_times(struct stage_table *table, const struct choice *choice)
{
    const struct selection all = {0};
    stages_add_times(table, &(struct scope){.chosen = &all, .process = &process, .choice = *choice}, 0, true);
}

START_TEST(an_untracked_end_takes_its_start_from_the_beginning)
{
    add_begin(1, 40, 5, TFI_RANGE_STAGE);
    add_end(1, 90, 90, 5, TFI_RANGE_STAGE | TFI_RANGE_UNTRACKED);
    add_end(2, 95, 95, 5, TFI_RANGE_STAGE | TFI_RANGE_UNTRACKED);
    process_finish(&process);
    ck_assert(process.ranges.start[0] == 40 && !(process.ranges.flags[0] & TFI_RANGE_UNTRACKED));
    struct stage_table table = {0};
    add_times(&table, &always); /* the other one is not a stage, however long it is */
    ck_assert(table.count == 1 && table.row[0].calls == 1 && table.row[0].host == 50);
    stages_free(&table);
}
END_TEST

START_TEST(functions)
{
    static const char text[] = "libcudart\x1f"
                               "ALLOC\x1f"
                               "cudaMalloc\x1f"
                               "where:ADDRESS,size:BYTES,odd";
    uint32_t place = process_func(&process, 9, text, sizeof text - 1);
    ck_assert_uint_eq(process_func(&process, 9, "", 0), place);
    const struct func *func = &process.func[place];
    ck_assert_str_eq(func->name, "cudaMalloc");
    ck_assert_str_eq(func->call_class, "ALLOC");
    ck_assert(func->args == 3 && func->type[0] == TFI_TYPE_ADDRESS && func->type[1] == TFI_TYPE_BYTES);
    ck_assert_str_eq(func->arg[2], "odd");
    place = process_func(&process, 10, "plain name", 10);
    ck_assert_str_eq(process.func[place].name, "plain name");
    place = process_func(&process, 11, "", 0);
    ck_assert_uint_eq(process.func[place].args, 0);
}
END_TEST

static const struct stage_row *row_of(const struct stage_table *table, uint32_t name)
{
    for (size_t i = 0; i < table->count; i++)
        if (table->row[i].name == name) return &table->row[i];
    ck_abort_msg("no row of name %u", name);
    return NULL;
}

static void check_row(const struct stage_table *table, uint32_t name, uint64_t calls, int64_t host, int64_t self)
{
    const struct stage_row *row = row_of(table, name);
    ck_assert_uint_eq(row->calls, calls);
    ck_assert_int_eq(row->host, host);
    ck_assert_int_eq(row->self, self);
}

START_TEST(recursion_counts_once)
{
    struct stage_table table = {0};
    const uint32_t flags = TFI_RANGE_STAGE | TFI_RANGE_NESTED;
    add_end(3, 20, 30, 8, flags);
    add_end(2, 10, 60, 7, flags);
    add_end(1, 0, 100, 7, flags);
    add_end(4, 200, 250, 7, flags);
    process_finish(&process);
    add_times(&table, &always);
    check_row(&table, 7, 3, 150, 50 + 40 + 50);
    check_row(&table, 8, 1, 10, 10);
    stages_free(&table);
    add_times(&table, &(struct choice){.process = &process, .window = {25, 210}});
    check_row(&table, 7, 3, 75 + 10, 40 + 30 + 10);
    check_row(&table, 8, 1, 5, 5);
    stages_free(&table);
}
END_TEST

START_TEST(ranges_that_cross)
{
    struct stage_table table = {0};
    add_end(1, 0, 100, 7, TFI_RANGE_STAGE);
    add_end(2, 60, 140, 8, TFI_RANGE_STAGE);  /* begins in the first one and outlives it */
    add_end(3, 120, 130, 9, TFI_RANGE_STAGE); /* in the second one only */
    add_end(4, 50, 70, 9, TFI_RANGE_STAGE);   /* in the first one */
    add_end(5, 10, 20, 9, 0);                 /* not a stage */
    process_finish(&process);
    add_times(&table, &always);
    check_row(&table, 7, 1, 100, 100 - 20);
    check_row(&table, 8, 1, 80, 80 - 10);
    check_row(&table, 9, 2, 30, 30 - 10);
    stages_free(&table);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("model");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, ends_meet_beginnings_in_any_order);
    tcase_add_test(tcase, an_untracked_end_takes_its_start_from_the_beginning);
    tcase_add_test(tcase, functions);
    tcase_add_test(tcase, recursion_counts_once);
    tcase_add_test(tcase, ranges_that_cross);
    return unit_run(tcase);
}
