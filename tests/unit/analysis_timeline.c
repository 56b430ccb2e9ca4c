/* analysis_timeline.c - device work of processes: united in any order and grouping it is the same. */
#include <stdlib.h>

#include "ask/ranks/rank_times.h"
#include "unit.h"

enum { PROCESSES = 8, ROUNDS = 200, MOST = 12 };

static void fill(struct intervals *set)
{
    for (int i = rand() % MOST; i > 0; i--) {
        int64_t start = rand() % 200;
        intervals_add(set, start, start + rand() % 20);
    }
    intervals_merge(set);
}

/* A process of ours has bounds, a PyTorch trace has a piece, and one without work has neither. */
static struct rank_time random_time(void)
{
    struct rank_time time = {.rank = 3, .works = (uint64_t)rand() % 5, .first = INT64_MAX, .last = INT64_MIN};
    for (int kind = 0; kind < NR_WORK_KINDS; kind++) fill(&time.kind[kind]);
    if (rand() % 2) {
        time.first = rand() % 100;
        time.last = time.first + rand() % 100;
    } else if (rand() % 4) {
        intervals_add(&time.pieces, rand() % 100, 100 + rand() % 100);
    }
    return time;
}

static struct intervals copy_of_set(const struct intervals *set)
{
    struct intervals copy = {0};
    for (size_t i = 0; i < set->count; i++) intervals_add(&copy, set->interval[i].start, set->interval[i].end);
    return copy;
}

static struct rank_time copy_of(const struct rank_time *time)
{
    struct rank_time copy = *time;
    copy.pieces = copy_of_set(&time->pieces);
    for (int kind = 0; kind < NR_WORK_KINDS; kind++) copy.kind[kind] = copy_of_set(&time->kind[kind]);
    return copy;
}

static struct rank_time in_order(const struct rank_time *of_process)
{
    struct rank_time all = copy_of(&of_process[0]);
    for (int i = 1; i < PROCESSES; i++) {
        struct rank_time next = copy_of(&of_process[i]);
        rank_time_merge(&all, &next);
        ck_assert_uint_eq(next.works + next.pieces.count + next.kind[0].count, 0);
    }
    return all;
}

/* Joins two at random until one is left. */
static struct rank_time at_random(const struct rank_time *of_process)
{
    struct rank_time left[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) left[i] = copy_of(&of_process[i]);
    for (int count = PROCESSES; count > 1; count--) {
        int to = rand() % count, from = (to + 1 + rand() % (count - 1)) % count;
        rank_time_merge(&left[to], &left[from]);
        struct rank_time joined = left[to];
        left[from] = left[count - 1];
        left[to == count - 1 ? from : to] = joined;
    }
    return left[0];
}

static void check_set(const struct intervals *a, const struct intervals *b)
{
    ck_assert_uint_eq(a->count, b->count);
    if (a->count) ck_assert_mem_eq(a->interval, b->interval, a->count * sizeof *a->interval);
}

START_TEST(any_order_and_grouping_gives_the_same)
{
    srand(5);
    for (int round = 0; round < ROUNDS; round++) {
        struct rank_time of_process[PROCESSES];
        for (int i = 0; i < PROCESSES; i++) of_process[i] = random_time();
        struct rank_time all = in_order(of_process);
        for (int again = 0; again < 8; again++) {
            struct rank_time other = at_random(of_process);
            ck_assert_uint_eq(all.works, other.works);
            ck_assert_int_eq(all.first, other.first);
            ck_assert_int_eq(all.last, other.last);
            check_set(&all.pieces, &other.pieces);
            for (int kind = 0; kind < NR_WORK_KINDS; kind++) check_set(&all.kind[kind], &other.kind[kind]);
            rank_time_free(&other);
        }
        rank_time_free(&all);
        for (int i = 0; i < PROCESSES; i++) rank_time_free(&of_process[i]);
    }
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("timeline");
    tcase_add_test(tcase, any_order_and_grouping_gives_the_same);
    return unit_run(tcase);
}
