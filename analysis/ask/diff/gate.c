/* gate.c - judges repeated runs by Welch's test on the logarithms of their times. */
#include "ask/diff/gate.h"

#include <stdbool.h>

#include "ask/diff/student.h"
#include "glibc_math.h"

const char *const gate_verdict_names[NR_GATE_VERDICTS] = {[GATE_REGRESSED] = "regressed",
                                                          [GATE_INCONCLUSIVE] = "inconclusive",
                                                          [GATE_ABSENT] = "absent",
                                                          [GATE_PASSED] = "passed"};

/* The logarithms of one side's times. */
struct logs {
    double mean;
    double variance; /* of one run; NAN: fewer than two runs */
    size_t count;
};

static bool is_absent(struct gate_times times)
{
    bool absent = !times.count;
    for (size_t i = 0; i < times.count; i++) absent |= !(times.time[i] > 0 && isfinite(times.time[i]));
    return absent;
}

static struct logs logs_of(struct gate_times times)
{
    struct logs logs = {.count = times.count};
    double squares = 0;
    for (size_t i = 0; i < times.count; i++) logs.mean += log(times.time[i]) / (double)times.count;
    for (size_t i = 0; i < times.count; i++) squares += pow(log(times.time[i]) - logs.mean, 2);
    logs.variance = times.count > 1 ? squares / (double)(times.count - 1) : NAN;
    return logs;
}

static double percent(double log_change)
{
    return expm1(log_change) * 100;
}

/* Returns the further runs of each side after which the test decides with the probability GATE_POWER, if the change and
 * the noise are those measured; 0: none up to GATE_MOST. */
static uint64_t runs_that_decide(const struct logs *a, const struct logs *b, double distance, double error)
{
    size_t fewer = a->count < b->count ? a->count : b->count, low = fewer, high = GATE_MOST + 1;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        double freedom = 2 * (double)middle - 2;
        double needed = student_bound(error, freedom) + student_bound(1 - GATE_POWER, freedom);
        if (needed * sqrt((a->variance + b->variance) / (double)middle) <= fabs(distance)) high = middle;
        else low = middle;
    }
    return high > GATE_MOST ? 0 : high - fewer;
}

/* Sets the bounds of the change, and the verdict. */
static void decide(struct gate_result *result, const struct logs *a, const struct logs *b, double gate, size_t rows)
{
    double change = b->mean - a->mean, of_a = a->variance / (double)a->count, of_b = b->variance / (double)b->count;
    double deviation = sqrt(of_a + of_b), below = 0, above = 0, shared = GATE_ERROR / (double)(rows ? rows : 1);
    if (deviation > 0) {
        double freedom =
            pow(of_a + of_b, 2) / (of_a * of_a / (double)(a->count - 1) + of_b * of_b / (double)(b->count - 1));
        below = student_bound(shared, freedom) * deviation;
        above = student_bound(GATE_ERROR, freedom) * deviation;
    }
    result->lowest = percent(change - below);
    result->highest = percent(change + above);
    result->verdict = change - below > gate ? GATE_REGRESSED : change + above < gate ? GATE_PASSED : GATE_INCONCLUSIVE;
    if (result->verdict == GATE_INCONCLUSIVE)
        result->more = runs_that_decide(a, b, change - gate, change > gate ? shared : GATE_ERROR);
}

struct gate_result gate_judge(struct gate_times a, struct gate_times b, double pct, size_t rows)
{
    struct gate_result result = {NAN, NAN, NAN, NAN, NAN, GATE_ABSENT, 0};
    if (is_absent(a) || is_absent(b)) return result;
    struct logs of_a = logs_of(a), of_b = logs_of(b);
    size_t fewer = a.count < b.count ? a.count : b.count;
    result.mean_a = exp(of_a.mean);
    result.mean_b = exp(of_b.mean);
    result.change = percent(of_b.mean - of_a.mean);
    result.verdict = GATE_INCONCLUSIVE;
    if (fewer < GATE_LEAST) result.more = GATE_LEAST - fewer;
    else decide(&result, &of_a, &of_b, log1p(pct / 100), rows);
    return result;
}
