/* sums.c - keeps a small table of sums for each thread, and writes a sum when its interval is over.
 *
 * A function and a file share a place of the table with others by their hash. A sum whose place another one needs is
 * written early, so an interval may have several rows. A sum is also written when its thread or the trace ends. SIGKILL
 * loses the sums that are not written yet: at most the last interval of each function and file that is still used.
 */
#include "io/sums.h"

#include "base/process.h"
#include "control/config.h"
#include "record/clock.h"
#include "record/thread.h"
#include "stage/watch.h"

enum { PLACES = 64 };

/* The rows of the table; those with 0 calls are free. */
struct tfi_sums {
    uint64_t interval; /* in ticks */
    uint32_t gen;
    struct tfi_rec_io_sum row[PLACES];
};

static void write(struct tfi_thread *t, struct tfi_rec_io_sum *row)
{
    struct tfi_rec_io_sum *rec = row->calls ? TFI_RESERVE(t, io_sum) : NULL;
    if (rec) {
        row->rec = rec->rec;
        *rec = *row;
        tfi_commit(t, sizeof *rec);
    }
    row->calls = 0;
}

static bool prepare(struct tfi_thread *t)
{
    if (!t->sums) t->sums = tfi_map(sizeof *t->sums);
    if (!t->sums) return false;
    if (t->sums->gen == t->gen) return true;
    for (unsigned i = 0; i < PLACES; i++) t->sums->row[i].calls = 0;
    t->sums->gen = t->gen;
    t->sums->interval = (uint64_t)((double)tfi_config.io_aggregate_ms * 1e6 / tfi_clock_ns_per_tick());
    return true;
}

static void begin_row(struct tfi_thread *t, struct tfi_rec_io_sum *row, const struct tfi_sum *sum)
{
    *row = (struct tfi_rec_io_sum){
        .func = sum->call->func, .time = sum->call->start, .path = sum->path, .least = sum->moved, .thread = t->serial};
}

bool tfi_sum_add(struct tfi_thread *t, const struct tfi_sum *sum)
{
    if (!prepare(t)) return false;
    uint64_t key = ((uint64_t)sum->call->func << 32 | sum->path) * 0x9e3779b97f4a7c15u;
    struct tfi_rec_io_sum *row = &t->sums->row[key >> 58];
    bool same = row->func == sum->call->func && row->path == sum->path;
    if (row->calls && (!same || sum->call->start - row->time >= t->sums->interval)) write(t, row);
    if (!row->calls) begin_row(t, row, sum);
    row->calls++;
    row->errors += sum->failed;
    row->busy += sum->duration;
    row->requested += sum->requested;
    row->bytes += sum->moved;
    row->duration = sum->call->start + sum->duration - row->time;
    if (sum->duration > row->longest) row->longest = sum->duration;
    if (sum->moved < row->least) row->least = sum->moved;
    if (sum->moved > row->most) row->most = sum->moved;
    return true;
}

static void flush(struct tfi_thread *t)
{
    for (unsigned i = 0; t->sums && t->sums->gen == t->gen && i < PLACES; i++) write(t, &t->sums->row[i]);
}

void tfi_sums_finish(void)
{
    for (struct tfi_thread *t = tfi_config.io_aggregate_ms ? tfi_threads() : NULL; t; t = t->all)
        if (t->gen && !tfi_guard_may_hold(t)) flush(t);
}

static const struct tfi_watcher watcher = {.emptied = flush};

void tfi_sums_constructor(void)
{
    if (tfi_config.io_aggregate_ms) tfi_watch(&watcher);
}
