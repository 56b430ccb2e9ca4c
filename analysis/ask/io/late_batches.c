/* late_batches.c - lists late batches with the idle device time that waited for their calls on files. */
#include "ask/io/late_batches.h"

#include <stdlib.h>

static int worst_first(const void *a, const void *b)
{
    const struct io_late *x = a, *y = b;
    if (x->idle != y->idle) return by_number(y->idle, x->idle);
    if (x->wait != y->wait) return by_number(y->wait, x->wait);
    if (x->asked != y->asked) return by_number(x->asked, y->asked);
    return x->rank != y->rank ? by_number(x->rank, y->rank) : by_number(x->pid, y->pid);
}

void io_lates_settle(struct io_lates *lates)
{
    if (lates->count) qsort(lates->late, lates->count, sizeof *lates->late, worst_first);
    lates->count = MIN(lates->count, lates->most);
}

static void add_late_batch(struct io_lates *lates, const struct io_late *late)
{
    if (lates->count >= 2 * lates->most) io_lates_settle(lates);
    lates->late = mem_grow(lates->late, &lates->capacity, lates->count + 1, sizeof *lates->late);
    lates->late[lates->count++] = *late;
    lates->found++;
    lates->waited = add_ns(lates->waited, late->wait);
    if (late->idle >= 0) lates->idle = add_ns(MAX(lates->idle, 0), late->idle);
}

/* Idle time in which one process is in a call on files; made when the process has its first late batch. */
struct delay {
    bool ready;
    struct intervals idle;
    struct measure measure;
};

static void find_delay(struct delay *delay, const struct io_rank *rank, size_t process)
{
    struct intervals calls = {0};
    const struct io_taken *t = rank->taken[process];
    if (delay->ready) return;
    for (size_t i = 0; i < t->rows; i++) {
        const struct intervals *when = t->batches.by_worker ? &t->row[i].when : &t->row[i].waited;
        for (size_t k = 0; k < when->count; k++) intervals_add(&calls, when->interval[k].start, when->interval[k].end);
    }
    intervals_merge(&calls);
    delay->idle = intervals_common(&calls, &rank->idle);
    measure_init(&delay->measure, &delay->idle);
    delay->ready = true;
    intervals_free(&calls);
}

void io_lates_add(struct io_lates *lates, const struct io_rank *rank)
{
    if (!lates->most) return;
    struct delay *delays = mem_zero(rank->processes, sizeof *delays);
    for (size_t i = 0; i < rank->processes; i++) lates->waits += rank->taken[i]->batches.waits;
    for (size_t i = 0; i < rank->lates; i++) {
        const struct io_late_wait *l = &rank->late[i];
        const struct io_taken *maker = rank->taken[l->process];
        const struct io_batch *batch = &maker->batches.made[l->batch];
        struct io_late late = {rank->rank,
                               maker->batches.by_worker ? maker->worker : -1,
                               maker->pid,
                               batch->number,
                               l->requested,
                               batch->start,
                               batch->end,
                               l->wait.start,
                               l->wait.end - l->wait.start,
                               -1,
                               &maker->batches,
                               io_batches_kept(&maker->batches, l->batch)};
        if (rank->has_device) {
            find_delay(&delays[l->process], rank, l->process);
            late.idle = measure_between(&delays[l->process].measure, l->wait.start, batch->end);
        }
        add_late_batch(lates, &late);
    }
    for (size_t i = 0; i < rank->processes; i++) {
        if (!delays[i].ready) continue;
        measure_free(&delays[i].measure);
        intervals_free(&delays[i].idle);
    }
    free(delays);
}

void io_lates_free(struct io_lates *lates)
{
    free(lates->late);
    *lates = (struct io_lates){0};
}
