/* chunk.c - begins a thread's chunk, gives it to the writer when it is full, and takes the next one.
 *
 * A thread takes chunks from the pool, is the only one to fill them, and hands them over. A thread's first chunk is
 * small, because most threads of a job record almost nothing.
 */
#include "record/chunk.h"

#include <errno.h>
#include <string.h>

#include "base/process.h"
#include "base/sys.h"
#include "record/clock.h"
#include "record/cost.h"
#include "record/pool.h"
#include "record/thread.h"
#include "record/upkeep.h"
#include "record/writer.h"

/* Begins an empty chunk for the thread, with a serial of its own. */
static void begin_chunk(struct tfi_thread *thread, struct tfi_chunk *chunk)
{
    __atomic_store_n(&chunk->state, TFI_CHUNK_TAKEN, __ATOMIC_RELAXED);
    __atomic_store_n(&chunk->committed, 0, __ATOMIC_RELEASE);
    chunk->serial = tfi_next_serial();
    chunk->thread = thread->serial;
    chunk->tid = thread->tid;
    __atomic_store_n(&chunk->state, TFI_CHUNK_OPEN, __ATOMIC_RELEASE);
    thread->next = (uint8_t *)(chunk + 1);
    thread->limit = (uint8_t *)chunk + tfi_pool_bytes(chunk);
    memset(thread->recent, 0, sizeof thread->recent);
    __atomic_store_n(&thread->chunk, chunk, __ATOMIC_RELEASE);
}

void tfi_chunk_close(struct tfi_thread *thread)
{
    struct tfi_chunk *chunk = thread->chunk;
    if (!chunk) return;
    __atomic_store_n(&thread->chunk, NULL, __ATOMIC_RELEASE);
    thread->next = thread->limit = NULL;
    memset(thread->recent, 0, sizeof thread->recent);
    if (chunk->committed == 0) {
        tfi_pool_give(chunk);
        return;
    }
    __atomic_store_n(&chunk->state, TFI_CHUNK_CLOSED, __ATOMIC_RELEASE);
    tfi_writer_take(chunk);
}

static bool renew(struct tfi_thread *thread)
{
    struct tfi_chunk *chunk = thread->chunk;
    bool first = !thread->chunk;
    if (chunk && tfi_writer_needs_help()) {
        tfi_writer_append_rows(chunk);
        begin_chunk(thread, chunk);
        return true;
    }
    tfi_chunk_close(thread);
    chunk = tfi_pool_take(!first);
    if (!chunk && tfi_writer_help()) chunk = tfi_pool_take(!first);
    if (!chunk) return false;
    begin_chunk(thread, chunk);
    return true;
}

/* Renews the thread's chunk; false if there is none. */
static bool change_chunk(struct tfi_thread *thread)
{
    int error = errno, cancel;
    uint64_t start = tfi_ticks();
    cancel = tfi_cancel_off();
    tfi_signals_off();
    bool ok = renew(thread);
    if (ok) tfi_log_flush(thread);
    if (ok) tfi_clock_tick(thread, start);
    tfi_signals_on();
    tfi_cancel_on(cancel);
    tfi_cost_add(tfi_ticks() - start);
    errno = error;
    return ok;
}

TFI_COLD void tfi_chunk_hand_over(struct tfi_thread *thread)
{
    if (thread->chunk) change_chunk(thread);
}

TFI_COLD void *tfi_chunk_more(struct tfi_thread *thread, size_t size)
{
    bool ok = change_chunk(thread);
    if (ok && (size_t)(thread->limit - thread->next) >= size) return thread->next;
    tfi_count_drop(TFI_DROP_NO_CHUNK, 1);
    return NULL;
}
