/* analysis_comm_summary.c - summaries of collectives: united in any order and grouping they are the same bytes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/comm/comm_rows.h"
#include "unit.h"

enum { RANKS = 9, ROUNDS = 60, MOST = 25 };

static struct names names;
static uint32_t groups[4];

static void setup(void)
{
    static const char *const texts[] = {"", "0", "10", "2"};
    names_init(&names);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) groups[i] = names_add(&names, texts[i], strlen(texts[i]));
}

static void teardown(void)
{
    names_free(&names);
}

/* A part at random; few keys, so that many ranks have the same one, and a rank may have one twice. */
static struct comm_part random_part(int64_t rank)
{
    int64_t start = rand() % 1000, group = rand() % 4;
    struct comm_part part;
    memset(&part, 0, sizeof part); /* the bytes are compared, padding included */
    part.run = (uint32_t)rand() % 2;
    part.group = groups[group];
    part.members = groups[rand() % 2];
    part.op_key = group ? 0 : (uint32_t)rand() % 3;
    part.source = part.peer = UNKNOWN_NUMBER;
    part.epoch = (uint32_t)rand() % 2;
    part.again = (uint32_t)rand() % 2;
    part.sequence = rand() % 6;
    part.rank = rank;
    part.op = (uint8_t)(rand() % NR_COLLECTIVE_OPS);
    part.is_chosen = rand() % 2;
    part.size = RANKS;
    part.bytes_in = (uint64_t)rand() % 3;
    part.bytes_out = UNKNOWN_COUNT;
    part.start = start;
    part.end = start + rand() % 50;
    part.call_start = UNKNOWN_TIME;
    return part;
}

static struct comm_summary copy_of(const struct comm_summary *summary)
{
    struct comm_summary copy = {.names = &names};
    for (size_t i = 0; i < summary->count; i++) comm_add(&copy, &summary->part[i]);
    return copy;
}

/* Unites the summaries by joining two at random until one is left. */
static struct comm_summary unite(const struct comm_summary *of_rank)
{
    struct comm_summary left[RANKS];
    size_t count = RANKS;
    for (size_t i = 0; i < RANKS; i++) left[i] = copy_of(&of_rank[i]);
    while (count > 1) {
        size_t to = (size_t)rand() % count, from = (size_t)rand() % (count - 1);
        from += from >= to;
        comm_merge(&left[to], &left[from]);
        ck_assert_uint_eq(left[from].count, 0);
        left[from] = left[count - 1];
        if (to == count - 1) to = from;
        count--;
    }
    return left[0];
}

START_TEST(any_order_and_grouping_gives_the_same)
{
    srand(11);
    for (int round = 0; round < ROUNDS; round++) {
        struct comm_summary of_rank[RANKS], whole = {.names = &names};
        for (int rank = 0; rank < RANKS; rank++) {
            of_rank[rank] = (struct comm_summary){.names = &names};
            for (int i = rand() % MOST; i > 0; i--) {
                struct comm_part part = random_part(rank);
                comm_add(&of_rank[rank], &part);
                comm_add(&whole, &part);
            }
            comm_sort(&of_rank[rank]);
        }
        comm_sort(&whole);
        for (int again = 0; again < 8; again++) {
            struct comm_summary united = unite(of_rank);
            ck_assert_uint_eq(united.count, whole.count);
            if (whole.count) ck_assert_mem_eq(united.part, whole.part, whole.count * sizeof *whole.part);
            comm_summary_free(&united);
        }
        for (int rank = 0; rank < RANKS; rank++) comm_summary_free(&of_rank[rank]);
        comm_summary_free(&whole);
    }
}
END_TEST

START_TEST(names_are_ordered_by_their_text)
{
    struct comm_part ten = {.group = groups[2]}, two = {.group = groups[3]}, none = {.group = groups[0]};
    ck_assert_int_lt(comm_key_order(&names, &ten, &two), 0);
    ck_assert_int_lt(comm_key_order(&names, &none, &ten), 0);
    ck_assert_int_eq(comm_key_order(&names, &two, &two), 0);
}
END_TEST

START_TEST(bytes_follow_from_the_operation)
{
    struct comm_part part = {.op = COLLECTIVE_ALL_GATHER, .bytes_in = 10, .bytes_out = UNKNOWN_COUNT, .size = 4};
    ck_assert_uint_eq(comm_bytes(&part), 40);
    part.bytes_out = 44;
    ck_assert_uint_eq(comm_bytes(&part), 44);
    part.op = COLLECTIVE_REDUCE_SCATTER;
    ck_assert_uint_eq(comm_bytes(&part), 176);
    part.size = UNKNOWN_NUMBER;
    ck_assert_uint_eq(comm_bytes(&part), 10);
    part.bytes_in = part.bytes_out = UNKNOWN_COUNT;
    ck_assert_uint_eq(comm_bytes(&part), UNKNOWN_COUNT);
    part = (struct comm_part){.op = COLLECTIVE_GATHER, .bytes_in = UINT64_MAX / 2, .bytes_out = 0, .size = 4};
    ck_assert_uint_eq(comm_bytes(&part), 0);
}
END_TEST

START_TEST(factors_of_bus_bandwidth)
{
    static const struct {
        enum collective_op op;
        double of_four;
    } rows[] = {{COLLECTIVE_ALL_REDUCE, 1.5},  {COLLECTIVE_ALL_GATHER, 0.75}, {COLLECTIVE_REDUCE_SCATTER, 0.75},
                {COLLECTIVE_ALL_TO_ALL, 0.75}, {COLLECTIVE_BROADCAST, 1},     {COLLECTIVE_REDUCE, 1},
                {COLLECTIVE_GATHER, 0.75},     {COLLECTIVE_SCATTER, 0.75},    {COLLECTIVE_SEND, 1},
                {COLLECTIVE_SEND_RECV, 1}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        ck_assert_double_eq(collective_bus_factor(rows[i].op, 4), rows[i].of_four);
    ck_assert(isnan(collective_bus_factor(COLLECTIVE_ALL_REDUCE, UNKNOWN_NUMBER)));
    ck_assert_double_eq(collective_bus_factor(COLLECTIVE_ALL_REDUCE, 1), 0);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("comm_summary");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, any_order_and_grouping_gives_the_same);
    tcase_add_test(tcase, names_are_ordered_by_their_text);
    tcase_add_test(tcase, bytes_follow_from_the_operation);
    tcase_add_test(tcase, factors_of_bus_bandwidth);
    return unit_run(tcase);
}
