/* late_ranks.c - sums up, by rank, step and stage, by how much ranks came last to collectives. */
#include "ask/comm/late_ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Finds the last rank of a collective. Returns false if the collective tells nothing of lateness. */
static bool find_last(const struct comm_row *row, struct late *late)
{
    const struct comm_part *last = NULL;
    int64_t second = INT64_MAX, longest = 0;
    if (!collective_kinds[row->part->op].meets || row->mismatch || row->parts < 2 || row->ranks != row->parts)
        return false;
    for (size_t i = 0; i < row->parts; i++) {
        const struct comm_part *part = &row->part[i];
        int64_t wait = comm_wait(row, part);
        if (wait == UNKNOWN_TIME) return false;
        longest = MAX(longest, wait);
        if (!last && part->rank == row->last) last = part;
        else second = MIN(second, wait);
    }
    if (!last) return false;
    *late = (struct late){.rank = last->rank,
                          .step = last->step,
                          .stage = last->stage,
                          .collectives = 1,
                          .time = second,
                          .skew = longest};
    return true;
}

static int by_step(const void *a, const void *b)
{
    const struct late *x = a, *y = b;
    return by_number(x->step, y->step);
}

static int by_place(const void *a, const void *b)
{
    const struct late *x = a, *y = b;
    int order = by_number(x->step, y->step);
    if (!order) order = by_number(x->rank, y->rank);
    return order ? order : by_number(x->stage, y->stage);
}

static int by_rank(const void *a, const void *b)
{
    const struct late *x = a, *y = b;
    return by_number(x->rank, y->rank);
}

static int by_rank_and_stage(const void *a, const void *b)
{
    const struct late *x = a, *y = b;
    int order = by_number(x->rank, y->rank);
    return order ? order : by_number(x->stage, y->stage);
}

static int longest_first(const void *a, const void *b, void *names)
{
    const struct late *x = a, *y = b;
    if (x->time != y->time) return x->time > y->time ? -1 : 1;
    int order = by_number(x->step, y->step);
    if (!order) order = by_number(x->rank, y->rank);
    return order ? order : strcmp(names_get(names, x->stage)->text, names_get(names, y->stage)->text);
}

/* Sets the skew of each entry to that of all entries of its step. */
static void share_skew(struct late *late, size_t count)
{
    qsort(late, count, sizeof *late, by_step);
    for (size_t first = 0, end; first < count; first = end) {
        int64_t skew = 0;
        for (end = first; end < count && late[end].step == late[first].step; end++) skew = add_ns(skew, late[end].skew);
        for (size_t i = first; i < end; i++) late[i].skew = skew;
    }
}

/* Joins neighbours that `order` calls the same, in place. Returns how many are left. */
static size_t join_late(struct late *late, size_t count, int (*order)(const void *, const void *))
{
    size_t kept = 0;
    qsort(late, count, sizeof *late, order);
    for (size_t i = 0; i < count; i++) {
        if (kept && order(&late[kept - 1], &late[i]) == 0) {
            late[kept - 1].collectives += late[i].collectives;
            late[kept - 1].time = add_ns(late[kept - 1].time, late[i].time);
        } else {
            late[kept++] = late[i];
        }
    }
    return kept;
}

/* Returns the stage in which the rank was late by the longest time. Numbers of names depend on which thread read first, so that
 * the texts decide between equal times. */
static uint32_t find_stage(const struct late *late, size_t count, int64_t rank, const struct names *names)
{
    struct late *by_stages = mem_zero(count, sizeof *by_stages);
    struct late most = {.time = -1}; /* less than any lateness */
    memcpy(by_stages, late, count * sizeof *by_stages);
    size_t stages = join_late(by_stages, count, by_rank_and_stage);
    for (size_t i = 0; i < stages; i++) {
        by_stages[i].step = UNKNOWN_NUMBER; /* of several steps */
        if (by_stages[i].rank != rank) continue;
        if (most.time < 0 || longest_first(&by_stages[i], &most, (void *)names) < 0) most = by_stages[i];
    }
    free(by_stages);
    return most.stage;
}

/* Finds the rank that was late by the longest time in all. */
static struct late find_most(const struct late *late, size_t count, int64_t skew, const struct names *names)
{
    struct late *by_ranks = mem_zero(count, sizeof *by_ranks);
    if (count) memcpy(by_ranks, late, count * sizeof *by_ranks);
    size_t ranks = count ? join_late(by_ranks, count, by_rank) : 0;
    struct late most = {.rank = UNKNOWN_NUMBER};
    for (size_t i = 0; i < ranks; i++)
        if (by_ranks[i].time > most.time) most = by_ranks[i];
    if (most.rank != UNKNOWN_NUMBER) most.stage = find_stage(late, count, most.rank, names);
    most.skew = skew;
    free(by_ranks);
    return most;
}

void lates_make(struct lates *lates, const struct comm_rows *rows, const struct names *names)
{
    int64_t skew = 0;
    *lates = (struct lates){.most.rank = UNKNOWN_NUMBER};
    for (size_t i = 0; i < rows->count; i++) {
        struct late late;
        if (!find_last(&rows->row[i], &late)) continue;
        lates->late = mem_grow(lates->late, &lates->capacity, lates->count + 1, sizeof *lates->late);
        lates->late[lates->count++] = late;
        skew = add_ns(skew, late.skew);
    }
    lates->collectives = lates->count;
    if (!lates->count) return;
    share_skew(lates->late, lates->count);
    lates->count = join_late(lates->late, lates->count, by_place);
    lates->most = find_most(lates->late, lates->count, skew, names);
    qsort_r(lates->late, lates->count, sizeof *lates->late, longest_first, (void *)names);
}

void lates_free(struct lates *lates)
{
    free(lates->late);
    *lates = (struct lates){0};
}

double late_score(const struct late *late)
{
    return late->skew > 0 ? (double)late->time / (double)late->skew : NAN;
}
