/* judging.c - notes what judges say: names the bad ranks, or the host that most of them share. */
#include "ask/causes/judging.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/comm/comm_saved.h"
#include "base/statistics.h"

const struct rank_facts *fleet_facts(const struct fleet *fleet, size_t process)
{
    return ((const struct comm_taken *)fleet->taken[process])->facts;
}

void cause_add(struct causes *causes, enum cause_kind kind, const int64_t *rank, size_t ranks, double amount,
               size_t compared)
{
    bool is_late = kind == CAUSE_LATE_HOST || kind == CAUSE_LATE_PROCESS;
    struct cause cause = {.kind = kind, .ranks = ranks, .compared = compared};
    cause.rank = mem_zero(ranks, sizeof *cause.rank);
    memcpy(cause.rank, rank, ranks * sizeof *rank);
    cause.slower = is_late ? NAN : amount;
    cause.late = is_late ? llround(fmin(amount, 9e18)) : UNKNOWN_TIME;
    causes->cause = mem_grow(causes->cause, &causes->capacity, causes->count + 1, sizeof *causes->cause);
    causes->cause[causes->count++] = cause;
}

void cause_not_judged(struct causes *causes, enum cause_kind kind, const char *why, const char *how)
{
    causes->not_judged[causes->not_judgeds++] = (struct not_a_cause){kind, why, how};
}

static uint32_t host_of(const struct fleet *fleet, int64_t rank)
{
    const struct place_of_rank *place = places_find(fleet->places, rank);
    return place ? place->host : PLACE_UNKNOWN;
}

static int by_host_of_verdict(const void *a, const void *b, void *of)
{
    const struct verdict *x = a, *y = b;
    int order = by_number(host_of(of, x->rank), host_of(of, y->rank));
    return order ? order : by_number(x->rank, y->rank);
}

/* Names the bad ones of one host. */
static void causes_of_host(struct causes *causes, const struct verdict *verdict, size_t count, bool is_known,
                           enum cause_kind of_host, enum cause_kind of_rank, size_t compared)
{
    int64_t *rank = mem_zero(count, sizeof *rank);
    double *amount = mem_zero(count, sizeof *amount);
    size_t bad = 0;
    for (size_t i = 0; i < count; i++) {
        if (!verdict[i].is_bad) continue;
        rank[bad] = verdict[i].rank;
        amount[bad++] = verdict[i].amount;
    }
    if (is_known && count >= 2 && 4 * bad >= 3 * count) {
        qsort(amount, bad, sizeof *amount, by_double);
        cause_add(causes, of_host, rank, bad, amount[bad / 2], compared);
    } else {
        for (size_t i = 0; i < bad; i++) cause_add(causes, of_rank, &rank[i], 1, amount[i], compared);
    }
    free(rank);
    free(amount);
}

void causes_of_verdicts(struct causes *causes, const struct fleet *fleet, struct verdict *verdict, size_t count,
                        enum cause_kind of_host, enum cause_kind of_rank)
{
    if (count) qsort_r(verdict, count, sizeof *verdict, by_host_of_verdict, (void *)fleet);
    for (size_t first = 0, end; first < count; first = end) {
        uint32_t host = host_of(fleet, verdict[first].rank);
        for (end = first; end < count && host_of(fleet, verdict[end].rank) == host;) end++;
        causes_of_host(causes, verdict + first, end - first, host != PLACE_UNKNOWN, of_host, of_rank, count);
    }
}
