/* analysis_gate.c - the error rates of a gate over scripted noise, and that the runs it names as enough do decide.
 *
 * The noise is a fixed sequence, so that each run of the test counts the same.
 */
#include "ask/diff/gate.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "ask/diff/student.h"
#include "unit.h"

enum { PAIRS = 2000, RUNS = 7, MOST_RUNS = 4096 };
#define NOISE .015
#define GATE 5.

static uint64_t state;

/* Returns a number above 0 and below 1 (splitmix64). */
static double random_share(void)
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return ((double)((z ^ z >> 31) >> 11) + .5) / 9007199254740992.;
}

/* Fills the times of some runs: a second, a factor, and normal noise (Box and Muller). */
static struct gate_times noisy(double *time, size_t count, double factor)
{
    for (size_t i = 0; i < count; i++) {
        double normal = sqrt(-2 * log(random_share())) * cos(2 * M_PI * random_share());
        time[i] = factor * (1 + NOISE * normal);
    }
    return (struct gate_times){time, count};
}

static void count_verdicts(double change, size_t count[NR_GATE_VERDICTS])
{
    double a[RUNS], b[RUNS];
    for (int i = 0; i < NR_GATE_VERDICTS; i++) count[i] = 0;
    for (int i = 0; i < PAIRS; i++) {
        struct gate_times of_a = noisy(a, RUNS, 1), of_b = noisy(b, RUNS, 1 + change / 100);
        struct gate_result result = gate_judge(of_a, of_b, GATE, 1);
        count[result.verdict]++;
        ck_assert(result.lowest < result.change && result.change < result.highest);
        ck_assert_int_eq(result.verdict == GATE_INCONCLUSIVE || !result.more, 1);
    }
    printf("change %g %%: %zu passed, %zu regressed, %zu inconclusive\n", change, count[GATE_PASSED],
           count[GATE_REGRESSED], count[GATE_INCONCLUSIVE]);
}

START_TEST(rates)
{
    size_t none[NR_GATE_VERDICTS], limit[NR_GATE_VERDICTS], more[NR_GATE_VERDICTS];
    state = 1;
    count_verdicts(0, none);
    count_verdicts(5, limit);
    count_verdicts(8, more);
    ck_assert_uint_ge(none[GATE_PASSED], PAIRS * 99 / 100);
    ck_assert_uint_eq(none[GATE_REGRESSED], 0);
    ck_assert_uint_le(limit[GATE_REGRESSED], PAIRS * 6 / 100);
    ck_assert_uint_ge(limit[GATE_REGRESSED], PAIRS * 2 / 100); /* it does not buy this by never deciding */
    ck_assert_uint_le(limit[GATE_PASSED], PAIRS * 6 / 100);
    ck_assert_uint_ge(more[GATE_REGRESSED], PAIRS * 90 / 100);
    ck_assert_uint_le(more[GATE_PASSED], 2);
}
END_TEST

/* With the runs that it names, nine of ten inconclusive pairs are decided if the change was as measured. */
START_TEST(named)
{
    static double a[MOST_RUNS], b[MOST_RUNS];
    size_t tried = 0, decided = 0;
    state = 2;
    while (tried < 300) {
        struct gate_result first = gate_judge(noisy(a, RUNS, 1), noisy(b, RUNS, 1.07), GATE, 1);
        if (first.verdict != GATE_INCONCLUSIVE || !first.more || first.more + RUNS > MOST_RUNS) continue;
        ck_assert_uint_gt(first.more, 0);
        double factor = 1 + first.change / 100;
        size_t runs = RUNS + first.more;
        struct gate_result then = gate_judge(noisy(a, runs, 1), noisy(b, runs, factor), GATE, 1);
        tried++;
        decided += then.verdict != GATE_INCONCLUSIVE;
    }
    printf("%zu of %zu decided\n", decided, tried);
    ck_assert_uint_ge(decided, tried * 70 / 100); /* noise that was measured too small names too few runs */
}
END_TEST

/* Twenty rows without a change beyond the gate: that one of them is called regressed stays as rare as with one row. */
START_TEST(rows)
{
    enum { ROWS_OF_GATE = 20, GATES = 1000 };
    double a[RUNS], b[RUNS];
    size_t wrong = 0;
    state = 3;
    for (int gate = 0; gate < GATES; gate++) {
        bool any = false;
        for (int row = 0; row < ROWS_OF_GATE; row++)
            any |= gate_judge(noisy(a, RUNS, 1), noisy(b, RUNS, 1.05), GATE, ROWS_OF_GATE).verdict == GATE_REGRESSED;
        wrong += any;
    }
    printf("%zu of %d gates of %d rows\n", wrong, GATES, ROWS_OF_GATE);
    ck_assert_uint_le(wrong, GATES * 6 / 100);
    ck_assert_uint_ge(wrong, GATES * 1 / 100);
}
END_TEST

START_TEST(edges)
{
    const double same[] = {2, 2, 2}, twice[] = {4, 4, 4}, absent[] = {2, 0, 2};
    struct gate_times two = {same, 2}, three = {same, 3}, slow = {twice, 3}, none = {NULL, 0}, holes = {absent, 3};
    ck_assert_int_eq(gate_judge(three, three, GATE, 1).verdict, GATE_PASSED);
    ck_assert_int_eq(gate_judge(three, slow, GATE, 1).verdict, GATE_REGRESSED);
    ck_assert_int_eq(gate_judge(slow, three, GATE, 1).verdict, GATE_PASSED);
    ck_assert_int_eq(gate_judge(two, slow, GATE, 1).verdict, GATE_INCONCLUSIVE);
    ck_assert_uint_eq(gate_judge(two, slow, GATE, 1).more, 1);
    ck_assert_int_eq(gate_judge(three, holes, GATE, 1).verdict, GATE_ABSENT);
    ck_assert_int_eq(gate_judge(none, three, GATE, 1).verdict, GATE_ABSENT);
}
END_TEST

/* Rows of a printed table, to its three digits. */
START_TEST(table)
{
    static const struct {
        double above, freedom, t;
    } printed[] = {{.05, 1, 6.314},  {.05, 12, 1.782}, {.025, 12, 2.179},
                   {.005, 4, 4.604}, {.1, 30, 1.310},  {.0005, 2, 31.599}};
    for (size_t i = 0; i < sizeof printed / sizeof *printed; i++) {
        ck_assert_double_eq_tol(student_bound(printed[i].above, printed[i].freedom), printed[i].t, .0006);
        ck_assert_double_eq_tol(student_above(printed[i].t, printed[i].freedom), printed[i].above,
                                printed[i].above * .001);
    }
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("gate");
    tcase_add_test(tcase, rates);
    tcase_add_test(tcase, named);
    tcase_add_test(tcase, rows);
    tcase_add_test(tcase, edges);
    tcase_add_test(tcase, table);
    return unit_run(tcase);
}
