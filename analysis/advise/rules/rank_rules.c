/* rank_rules.c - rules about ranks together: one that comes late to collectives, and why; small collectives; clocks. */
#include <stdlib.h>
#include <string.h>

#include "advise/rules/rule_facts.h"
#include "ask/comm/comm_clock.h"
#include "ask/comm/comm_reduction.h"
#include "ask/comm/late_ranks.h"
#include "ask/comm/parts.h"

/* ---- a late rank ---- */

struct late_rank {
    struct late most;
    uint64_t collectives;
    bool known;
};

/* Finds who held the others up, as `stragglers` does. */
static struct late_rank find_late(const struct rule_facts *j)
{
    struct late_rank found = {0};
    struct comm_job job = {0};
    struct clock_fits fits = {0};
    struct comm_rows rows = {0};
    struct lates lates = {0};
    const struct selection *chosen = j->chosen;
    void **taken = mem_zero(chosen->processes, sizeof *taken);
    for (size_t i = 0; i < chosen->processes; i++) {
        struct scope *scope = scope_begin(chosen, i);
        taken[i] = stragglers_reduction.take(scope);
        scope_end(scope);
    }
    comm_collect(&job, chosen, taken);
    comm_align(&fits, &job.summary, job.clocks);
    comm_rows_make(&rows, &job.summary, NULL);
    lates_make(&lates, &rows, &chosen->model->names);
    found.known = lates.most.rank != UNKNOWN_NUMBER;
    found.most = lates.most;
    found.collectives = lates.collectives;
    lates_free(&lates);
    comm_rows_free(&rows);
    clock_fits_free(&fits);
    comm_job_free(&job);
    for (size_t i = 0; i < chosen->processes; i++) stragglers_reduction.free(taken[i]);
    free(taken);
    return found;
}

/* The operators of a rank, beside those of the median of the others. */
struct comparison {
    double work;  /* time of its operators, by the median of the others */
    double alike; /* share of its operators' time whose name and shapes another rank has too */
    double speed; /* time of a call of these, by that on the other ranks */
};

static const struct op_fact *same_fact(const struct op_facts *facts, const struct op_fact *as)
{
    for (size_t i = 0; i < facts->ops.count; i++) {
        const struct op_fact *op = &facts->ops.row[i];
        if (op->name == as->name && op->shapes == as->shapes && op->types == as->types) return op;
    }
    return NULL;
}

static int own_times_in_order(const void *a, const void *b)
{
    return by_number(*(const int64_t *)a, *(const int64_t *)b);
}

/* Only the operators with the most time are compared. */
static struct comparison compare(const struct rule_facts *j, const struct rank_facts *late)
{
    enum { COMPARED = 64 };
    struct comparison c = {1, 0, 1};
    int64_t others[64], seen = 0, mine = 0, theirs = 0, alike = 0;
    size_t count = 0;
    const struct rank_facts *other = NULL;
    for (size_t i = 0; i < j->ranks; i++)
        if (&j->rank[i] != late && count < ARRAY_SIZE(others))
            others[count++] = j->rank[i].facts.own, other = &j->rank[i];
    if (!count) return c;
    qsort(others, count, sizeof *others, own_times_in_order);
    c.work = others[count / 2] > 0 ? (double)late->facts.own / (double)others[count / 2] : 1;
    int64_t least = late->facts.own / COMPARED;
    for (size_t i = 0; i < late->facts.ops.count; i++) {
        const struct op_fact *op = &late->facts.ops.row[i];
        if (op->own < least) continue;
        seen = add_ns(seen, op->own);
        const struct op_fact *same = same_fact(&other->facts, op);
        if (!same || 2 * same->calls < op->calls || 2 * op->calls < same->calls) continue;
        alike = add_ns(alike, op->own);
        mine = add_ns(mine, op->own / (int64_t)op->calls);
        theirs = add_ns(theirs, same->own / (int64_t)same->calls);
    }
    c.alike = seen ? (double)alike / (double)seen : 0;
    c.speed = theirs > 0 ? (double)mine / (double)theirs : 1;
    return c;
}

/* The rank that waits longest for others, other than the late one. */
static struct rank_facts *most_waiting(const struct rule_facts *j, const struct rank_facts *late)
{
    struct rank_facts *most = NULL;
    for (size_t i = 0; i < j->ranks; i++) {
        struct rank_facts *rank = &j->rank[i];
        int64_t wait = add_ns(rank->left[LEAF_PEER], rank->left[LEAF_COMMUNICATION]);
        if (rank != late && (!most || wait > add_ns(most->left[LEAF_PEER], most->left[LEAF_COMMUNICATION])))
            most = rank;
    }
    return most;
}

enum why_late { MORE_WORK, SLOWER, HOST };

static void judge_late(struct rule_facts *j, const struct rule *rule, enum why_late why)
{
    if (j->ranks < 2) return;
    if (!j->late) {
        j->late = mem_zero(1, sizeof *j->late);
        *j->late = find_late(j);
    }
    const struct late_rank found = *j->late;
    struct rank_facts *late = found.known ? facts_of_rank(j, found.most.rank) : NULL;
    if (!late || late_score(&found.most) < 0.5 || found.most.collectives < 4) return;
    struct rank_facts *waiting = most_waiting(j, late);
    const struct comparison c = compare(j, late);
    enum why_late is = c.work > 1.25 && c.alike < 0.7 ? MORE_WORK : c.speed > 1.4 && c.work > 1.25 ? SLOWER : HOST;
    if (is != why || !waiting) return;
    char *words =
        is == MORE_WORK
            ? string_format("rank %lld comes last to %llu of %llu collectives: its operators take %.1f times "
                            "as long, on other shapes",
                            (long long)found.most.rank, (unsigned long long)found.most.collectives,
                            (unsigned long long)found.collectives, c.work)
        : is == SLOWER
            ? string_format("rank %lld comes last to %llu of %llu collectives: the same operators take %.1f times "
                            "as long",
                            (long long)found.most.rank, (unsigned long long)found.most.collectives,
                            (unsigned long long)found.collectives, c.speed)
            : string_format("rank %lld comes last to %llu of %llu collectives, with the same work",
                            (long long)found.most.rank, (unsigned long long)found.most.collectives,
                            (unsigned long long)found.collectives);
    struct finding *f =
        claim(j, rule, waiting, LEAF_BIT(LEAF_PEER) | LEAF_BIT(LEAF_COMMUNICATION), found.most.time, words);
    if (!f) return;
    f->rank = found.most.rank;
    if (found.most.stage > NAME_OUTSIDE) f->stage = found.most.stage;
    add_evidence(f, string_format("late by %.3f ms in all, score %.2f", ms(found.most.time), late_score(&found.most)),
                 "stragglers");
    add_evidence(f,
                 string_format("operators: %.1f times the time of the others, %.0f %% of it in the same shapes", c.work,
                               100 * c.alike),
                 "ops --group-by name,shapes --rank N");
}

void judge_late_work(struct rule_facts *j, const struct rule *rule)
{
    judge_late(j, rule, MORE_WORK);
}

void judge_late_speed(struct rule_facts *j, const struct rule *rule)
{
    judge_late(j, rule, SLOWER);
}

void judge_late_host(struct rule_facts *j, const struct rule *rule)
{
    judge_late(j, rule, HOST);
}

/* ---- small collectives ---- */

void judge_small_collectives(struct rule_facts *j, const struct rule *rule)
{
    enum { SMALL_BYTES = 65536, LEAST_CALLS = 50 };
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        uint64_t count = 0, bytes = 0;
        struct intervals when = {0};
        EACH_PROCESS(j, rank, p)
        for (size_t i = 0; i < p->collectives.count; i++) {
            const struct collective *c = &p->collectives.collective[i];
            int64_t start = c->start != UNKNOWN_TIME ? c->start : c->call_start,
                    end = c->end != UNKNOWN_TIME ? c->end : c->call_end;
            if (start == UNKNOWN_TIME || end == UNKNOWN_TIME || c->bytes_in == UNKNOWN_COUNT ||
                c->bytes_in > SMALL_BYTES)
                continue;
            if (!intervals_hold(&rank->part->window, start, start)) continue;
            count++;
            bytes += c->bytes_in;
            intervals_add_merging(&when, start, end);
        }
        intervals_merge(&when);
        int64_t time = intervals_total(&when);
        intervals_free(&when);
        if (count < LEAST_CALLS) continue;
        struct finding *f = claim(j, rule, rank, LEAF_BIT(LEAF_PEER) | LEAF_BIT(LEAF_COMMUNICATION), time,
                                  string_format("%llu collectives of %llu bytes each on average",
                                                (unsigned long long)count, (unsigned long long)(bytes / count)));
        if (f)
            add_evidence(f,
                         string_format("%llu collectives below %d KiB", (unsigned long long)count, SMALL_BYTES / 1024),
                         "comm");
    }
}

/* ---- clocks ---- */

void judge_clocks(struct rule_facts *j, const struct rule *rule)
{
    for (size_t r = 0; r < j->ranks; r++) {
        struct rank_facts *rank = &j->rank[r];
        uint64_t sum = 0, count = 0, slowed = 0, reasons = 0;
        uint32_t most = 0;
        EACH_PROCESS(j, rank, p)
        for (size_t i = 0; i < p->samples; i++) {
            const struct device_sample *s = &p->sample[i];
            if (!(s->known & TFI_SAMPLE_SM_CLOCK) || !intervals_hold(&rank->part->window, s->time, s->time)) continue;
            uint64_t real =
                s->known & TFI_SAMPLE_REASONS ? s->reasons & ~UINT64_C(1) : 0; /* every reason except idle */
            sum += s->sm_mhz;
            count++;
            slowed += real != 0;
            reasons |= real;
            most = MAX(most, s->sm_mhz);
        }
        if (count < 4 || 5 * slowed < count || !most) continue;
        int64_t time = 0;
        for (int leaf = LEAF_MATRIX; leaf <= LEAF_OTHER; leaf++) time = add_ns(time, rank->left[leaf]);
        double mean = (double)sum / (double)count;
        struct finding *f =
            claim_some(j, rule, rank, COMPUTING, time, (int64_t)((double)time * (1 - mean / most)),
                       string_format("the clocks are lowered in %llu of %llu samples: %.0f MHz on average, %u at most",
                                     (unsigned long long)slowed, (unsigned long long)count, mean, most));
        if (f)
            add_evidence(f, string_format("reasons of the driver: 0x%llx", (unsigned long long)reasons), "stragglers");
    }
}
