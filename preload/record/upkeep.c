/* upkeep.c - writes the library's own records: pairs of clocks, at growing intervals, and messages. */
#include "record/upkeep.h"

#include <string.h>

#include "base/sys.h"
#include "record/background.h"
#include "record/chunk.h"
#include "record/log.h"
#include "record/strings.h"
#include "record/thread.h"

static uint64_t next_pair, interval;

static void write_one(struct tfi_thread *thread, uint32_t clock, uint64_t value, const struct tfi_clock_pair *pair)
{
    struct tfi_rec_clock *rec = TFI_RESERVE(thread, clock);
    if (!rec) return;
    rec->clock = clock;
    rec->ticks = pair->ticks;
    rec->value = value;
    rec->error = pair->error;
    tfi_commit(thread, sizeof *rec);
}

void tfi_clock_write(struct tfi_thread *thread, const struct tfi_clock_pair *pair)
{
    write_one(thread, TFI_CLOCK_MONOTONIC, pair->monotonic, pair);
    write_one(thread, TFI_CLOCK_REALTIME, pair->realtime, pair);
}

void tfi_clock_restart(void)
{
    double per_ns = tfi_clock_is_tsc ? 1 / tfi_clock_ns_per_tick() : 1;
    interval = (uint64_t)(1e6 * per_ns);
    __atomic_store_n(&next_pair, tfi_ticks() + interval, __ATOMIC_RELAXED);
}

void tfi_clock_tick(struct tfi_thread *thread, uint64_t now)
{
    uint64_t due = __atomic_load_n(&next_pair, __ATOMIC_RELAXED);
    if (TFI_LIKELY(now < due)) return;
    uint64_t wait = interval;
    if (!__atomic_compare_exchange_n(&next_pair, &due, now + wait, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
    if (wait < (uint64_t)1 << 31) interval = wait * 2; /* the limit is about a second at any usual clock rate */
    struct tfi_clock_pair pair = tfi_clock_read();
    tfi_clock_write(thread, &pair);
    tfi_background_again();
}

static bool write_message(void *thread, const struct tfi_kept *message)
{
    uint32_t text = tfi_string(message->text, strlen(message->text));
    struct tfi_rec_message *rec = TFI_RESERVE((struct tfi_thread *)thread, message);
    if (!rec) return false;
    rec->text = text;
    rec->level = message->level;
    rec->reserved = 0;
    rec->time = message->time;
    tfi_commit(thread, sizeof *rec);
    return true;
}

void tfi_log_flush(struct tfi_thread *thread)
{
    tfi_log_each(write_message, thread);
}

void tfi_log_end(void)
{
    static struct tfi_thread lane; /* no thread of the program: those may still use their chunks */
    lane = (struct tfi_thread){.tid = (uint32_t)tfi_gettid()};
    lane.slot = &lane.own_slot;
    tfi_log_flush(&lane);
    tfi_chunk_close(&lane);
}
