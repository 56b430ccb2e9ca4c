/* writer.c - appends blocks to the .tfr.
 *
 * Closed chunks wait in a ring for the background thread, which packs and appends them (background.c). When half the
 * pool waits, a thread that closes a chunk appends it itself, unpacked. An earlier experiment lost nothing that way at
 * the same cost, while a background thread alone dropped 13 to 49 % on two cores.
 * Records are lost, and counted, only when an append fails, the cap is reached or the lock can't be taken.
 * All appends hold one lock. A block is written whole or not at all. Strings precede the chunk that may use them.
 * With TFI_MODE=flight the file is replaced by a smaller one now and then (flight/ring.c).
 */
#include "record/writer.h"

#include <errno.h>
#include <unistd.h>

#include "base/files.h"
#include "base/fmt.h"
#include "base/process.h"
#include "base/sys.h"
#include "crc.h"
#include "record/background.h"
#include "record/clock.h"
#include "record/cost.h"
#include "record/encode.h"
#include "record/log.h"
#include "record/pool.h"
#include "record/schema.h"
#include "record/strings.h"
#include "record/thread.h"
#include "record/worker.h"

#define RING 2048u /* more than there are chunks */
#define STOP_MS 500u
#define MOST_TRIES 20u /* for room in a trace that is kept small */
#define LAST_MS 60000u /* for the end of the trace, once the background thread writes it */
#define BEHIND ((TFI_POOL_BYTES / TFI_LARGE_BYTES) / 2)

static struct tfi_file file;
static uint64_t cap_mb;
static struct {
    struct tfi_lock lock; /* of all below; held by the thread that appends */
    uint64_t size;
    uint64_t strings_done; /* bytes of the string region that are in the trace */
    uint64_t records, chunks;
    uint64_t drops_told[TFI_MAX_DROPS];
    const struct tfi_text *info;
    bool begun; /* the start of the file is written */
    bool told_error, told_cap;
    bool ending; /* only what is there now follows */
    bool ended;  /* the footer was written: nothing may follow it */
    uint32_t last_bytes;
    uint8_t last_row[TFI_LAST_ROW_BYTES];
} trace;

static struct {
    struct tfi_lock lock;
    struct tfi_chunk *ring[RING];
    uint32_t head, tail;
    uint32_t given; /* chunks that the background thread has freed */
    bool in_vain;   /* a thread without a descriptor has waited for that in vain */
} queue;

static struct tfi_encoder *encoder;
static const struct tfi_keeper *keeper; /* NULL: the trace only grows */

/* In the program's table of descriptors the file is open only while a thread has the lock. */
static void unlock_trace(void)
{
    tfi_file_rest(&file);
    tfi_unlock(&trace.lock);
}

/* A file that has its head only belongs to a process that was killed before it recorded anything; an empty one to a full
 * disk. */
static bool write_head(struct tfi_file *to, uint64_t *size)
{
    struct tfi_file_head head = {.major = TFI_MAJOR, .minor = TFI_MINOR, .head_bytes = sizeof head};
    memcpy(head.magic, TFI_FILE_MAGIC, sizeof head.magic);
    struct iovec part = {&head, sizeof head};
    return *size || tfi_file_append(to, size, &part, 1);
}

bool tfi_writer_open(struct tfi_dir *dir, const char *name, uint64_t max_mb)
{
    cap_mb = max_mb;
    if (!tfi_file_create(&file, dir, name)) return false;
    write_head(&file, &trace.size);
    return true;
}

void tfi_writer_abandon(void)
{
    tfi_file_remove(&file);
}

bool tfi_writer_is_gone(void)
{
    return tfi_file_is_gone(&file);
}

void tfi_writer_restart(void)
{
    tfi_file_close(&file);
    memset(&trace, 0, sizeof trace);
    queue.lock = (struct tfi_lock){0};
    queue.head = queue.tail = queue.given = 0;
    queue.in_vain = false;
}

/* ---- blocks ---- */

/* Warns once that the trace's file is gone. */
static void tell_gone(void)
{
    if (!trace.told_error)
        tfi_log(TFI_LOG_WARN,
                "the trace of process %d is lost: %s was removed from %s while the program ran. Run the program again "
                "and keep the directory, or set TFI_OUTPUT_DIR to another one",
                (int)tfi_getpid(), file.name, file.dir->path);
    trace.told_error = true;
}

static void complain(void)
{
    int error = errno;
    if (!trace.told_error && tfi_writer_is_gone()) tell_gone();
    else if (!trace.told_error)
        tfi_log(TFI_LOG_WARN, "%s/%s cannot be written (%s); records are dropped and counted", file.dir->path,
                file.name, tfi_error_name(error));
    trace.told_error = true;
}

static void complete(struct tfi_block *head)
{
    head->magic = TFI_BLOCK_MAGIC;
    head->head_crc = tfi_crc(0, head, offsetof(struct tfi_block, head_crc));
}

static const char zeros[8]; /* behind a payload, to its multiple of 8 bytes */

/* Appends one block and completes its head, except the payload's CRC; the caller holds the lock. For chunks that CRC is
 * computed before the lock is taken, so that other threads do not wait for it. */
static bool append(struct tfi_block *head, const void *payload)
{
    if (tfi_writer_append_to(&file, &trace.size, head, payload)) return true;
    complain();
    return false;
}

bool tfi_writer_append_to(struct tfi_file *to, uint64_t *size, struct tfi_block *head, const void *payload)
{
    complete(head);
    struct iovec parts[] = {{head, sizeof *head}, {(void *)payload, head->stored}, {(void *)zeros, -head->stored & 7}};
    return tfi_file_append(to, size, parts, TFI_COUNT(parts));
}

struct tfi_block tfi_writer_block(uint16_t type, const void *payload, size_t bytes)
{
    return (struct tfi_block){
        .type = type, .stored = (uint32_t)bytes, .raw = (uint32_t)bytes, .crc = tfi_crc(0, payload, bytes)};
}

static bool append_plain(uint16_t type, const void *payload, size_t bytes)
{
    struct tfi_block head = tfi_writer_block(type, payload, bytes);
    return append(&head, payload);
}

bool tfi_writer_start(struct tfi_file *to, uint64_t *size)
{
    struct tfi_block info = tfi_writer_block(TFI_BLOCK_HEADER, trace.info->data, trace.info->used);
    struct tfi_block schema = tfi_writer_block(TFI_BLOCK_SCHEMA, tfi_schema_deflated, tfi_schema_deflated_bytes);
    schema.flags = TFI_FLAG_DEFLATED;
    schema.raw = (uint32_t)tfi_schema_bytes;
    complete(&info);
    complete(&schema);
    struct iovec parts[] = {
        {&info, sizeof info},
        {trace.info->data, info.stored},
        {(void *)zeros, -info.stored & 7},
        {&schema, sizeof schema},
        {(void *)tfi_schema_deflated, schema.stored},
        {(void *)zeros, -schema.stored & 7},
    };
    return write_head(to, size) && tfi_file_append(to, size, parts, TFI_COUNT(parts));
}

/* Writes the start of the trace. Each append tries again until it is written: a full disk may have room later. */
static bool begin_writing(void)
{
    if (trace.begun) return true;
    trace.begun = tfi_writer_start(&file, &trace.size);
    if (!trace.begun) complain();
    return trace.begun;
}

void tfi_writer_begin(const struct tfi_text *info)
{
    trace.info = info;
    begin_writing();
    tfi_file_rest(&file);
}

/* Room that chunks leave for the blocks of the end, so that a full trace can still say that it is full. */
#define END_BYTES (16u << 10)

static uint64_t waiting_strings(void)
{
    return tfi_pool_strings_used() - trace.strings_done;
}

/* True if a chunk, with the strings that precede it, would exceed the cap, or one did before. A later chunk that would still fit is left out too: a record
 * behind a gap would make everything open at the cap seem to last until then. */
static bool over_cap(uint32_t bytes)
{
    if (keeper) return !trace.ending && !keeper->has_room(trace.size + waiting_strings() + bytes + END_BYTES);
    if (!trace.told_cap && trace.size + waiting_strings() + bytes + END_BYTES <= cap_mb << 20) return false;
    if (!trace.told_cap)
        tfi_log(TFI_LOG_WARN, "%s/%s has reached TFI_MAX_MB=%lu; later records are dropped and counted", file.dir->path,
                file.name, (unsigned long)cap_mb);
    trace.told_cap = true;
    return true;
}

/* Beyond the cap strings stay out too, but for the few of the library's own rows: no chunk follows that would use them. */
static bool flush_strings(void)
{
    if (!begin_writing()) return false;
    uint64_t bytes = waiting_strings();
    if (!bytes || (over_cap(0) && trace.size + bytes + END_BYTES / 2 > cap_mb << 20)) return true;
    if (!append_plain(TFI_BLOCK_STRINGS, tfi_pool_strings() + trace.strings_done, bytes)) return false;
    trace.strings_done += bytes;
    return true;
}

bool tfi_writer_reset_strings(void)
{
    if (!tfi_lock(&trace.lock)) return false;
    bool ok = flush_strings();
    if (ok) {
        tfi_pool_use_strings(0);
        trace.strings_done = 0;
    }
    unlock_trace();
    return ok;
}

/* Appends rows of the library itself, as a chunk of thread 0. No rows take no serial: a reader counts a missing serial
 * as a lost chunk. */
static void append_library(const void *rows, uint32_t bytes)
{
    if (!bytes) return;
    struct tfi_block head = {
        .type = TFI_BLOCK_CHUNK,
        .flags = TFI_FLAG_ROWS,
        .serial = tfi_next_serial(),
        .stored = bytes,
        .raw = bytes,
        .records = tfi_count_rows(rows, bytes),
        .crc = tfi_crc(0, rows, bytes),
    };
    if (!append(&head, rows)) return;
    trace.chunks++;
    trace.records += head.records;
    if (keeper) keeper->note(trace.size, &head, rows, bytes);
}

void tfi_writer_append_own(const void *row, uint32_t bytes)
{
    if (!tfi_lock(&trace.lock)) return;
    if (!trace.ended && flush_strings()) append_library(row, bytes);
    unlock_trace();
}

/* Appends the drop counts that changed since they were last in the trace. */
static void tell_drops(void)
{
    struct tfi_rec_drop rows[TFI_DROP_END];
    unsigned n = 0;
    if (!begin_writing()) return;
    for (uint32_t cause = 1; cause < TFI_DROP_END; cause++) {
        uint64_t count = __atomic_load_n(&tfi_live->drops[cause], __ATOMIC_RELAXED);
        if (count == trace.drops_told[cause]) continue;
        trace.drops_told[cause] = count;
        rows[n++] = (struct tfi_rec_drop){{TFI_KIND_drop, sizeof rows[0]}, cause, tfi_ticks(), count};
    }
    append_library(rows, n * (uint32_t)sizeof rows[0]);
}

/* Appends a chunk's payload; the caller holds the lock. Returns 0, or the reason it is not in the trace (enum
 * tfi_drop). */
static int append_chunk(const struct tfi_chunk *chunk, uint32_t bytes, struct tfi_block *head, const void *payload)
{
    head->type = TFI_BLOCK_CHUNK;
    head->serial = chunk->serial;
    head->thread = chunk->thread;
    head->tid = chunk->tid;
    if (over_cap(head->stored)) return keeper ? TFI_DROP_RING : TFI_DROP_CAP;
    if (!tfi_file_has_room(trace.size + head->stored + END_BYTES)) {
        complain();
        return TFI_DROP_APPEND;
    }
    if (!flush_strings() || !append(head, payload)) return TFI_DROP_APPEND;
    trace.chunks++;
    trace.records += head->records;
    if (keeper) keeper->note(trace.size, head, chunk + 1, bytes);
    tell_drops();
    return 0;
}

/* The bytes of its rows; never more than there are, even if others have changed the live file. */
static uint32_t committed(const struct tfi_chunk *chunk)
{
    uint32_t bytes = __atomic_load_n(&chunk->committed, __ATOMIC_ACQUIRE), room = tfi_pool_bytes(chunk) - sizeof *chunk;
    return bytes < room ? bytes : room;
}

/* Appends a chunk's rows; false if an append failed. With `pack` the encoder packs them, and no other thread may use
 * it. With `stays` the caller holds the lock, and the chunk stays in the live file. Records not appended are counted,
 * except a failed append of a chunk that stays. */
static bool append_one(struct tfi_chunk *chunk, bool pack, bool stays)
{
    const uint8_t *payload = (const uint8_t *)(chunk + 1);
    uint32_t bytes = committed(chunk);
    struct tfi_block head = {0};
    if (!bytes) return true;
    if (pack && encoder)
        head.stored = (uint32_t)tfi_encode(encoder, payload, bytes, &payload, &head.raw, &head.records);
    if (head.stored != head.raw) head.flags = TFI_FLAG_DEFLATED;
    if (!head.stored) { /* no encoder, or a row it does not know */
        payload = (const uint8_t *)(chunk + 1);
        head = (struct tfi_block){.flags = TFI_FLAG_ROWS, .stored = bytes, .raw = bytes};
        head.records = tfi_count_rows(payload, bytes);
    }
    head.crc = tfi_crc(0, payload, head.stored);
    bool locked = stays;
    int drop = TFI_DROP_LOCKED;
    for (unsigned tries = 0; locked || tfi_lock(&trace.lock); tries++) {
        drop = trace.ended ? 0 : append_chunk(chunk, bytes, &head, payload);
        if (!locked) unlock_trace();
        if (drop != TFI_DROP_RING || locked || tries == MOST_TRIES || !keeper->make_room(pack)) break;
    }
    if (drop && !(stays && drop == TFI_DROP_APPEND)) tfi_count_drop(drop, head.records);
    return drop != TFI_DROP_APPEND;
}

void tfi_writer_append_rows(struct tfi_chunk *chunk)
{
    append_one(chunk, false, false);
}

/* ---- chunks that wait ---- */

static struct tfi_chunk *take_waiting(void)
{
    struct tfi_chunk *chunk = NULL;
    if (!tfi_lock(&queue.lock)) return NULL;
    if (queue.head != queue.tail) chunk = queue.ring[queue.head++ % RING];
    tfi_unlock(&queue.lock);
    return chunk;
}

/* While the background thread runs, only it packs. Without memory for the encoder it appends plain rows. */
static bool append_waiting(void)
{
    struct tfi_chunk *chunk = take_waiting();
    if (!chunk) return false;
    if (!encoder) encoder = tfi_encoder_new(TFI_LARGE_BYTES);
    append_one(chunk, true, false);
    tfi_pool_give(chunk);
    __atomic_add_fetch(&queue.given, 1, __ATOMIC_RELEASE);
    return true;
}

bool tfi_writer_needs_help(void)
{
    uint32_t waiting = __atomic_load_n(&queue.tail, __ATOMIC_RELAXED) - __atomic_load_n(&queue.head, __ATOMIC_RELAXED);
    return waiting >= BEHIND && tfi_has_descriptors();
}

/* Waits until the background thread has freed a chunk; not again after one wait in vain. */
static bool wait_for_background(void)
{
    enum { MOST_MS = 100 };
    uint32_t nothing = 0, before = __atomic_load_n(&queue.given, __ATOMIC_ACQUIRE);
    for (int i = 0; i < MOST_MS && !__atomic_load_n(&queue.in_vain, __ATOMIC_RELAXED); i++) {
        if (__atomic_load_n(&queue.given, __ATOMIC_ACQUIRE) != before) return true;
        tfi_futex_wait(&nothing, 0, 1);
    }
    __atomic_store_n(&queue.in_vain, true, __ATOMIC_RELAXED);
    return false;
}

bool tfi_writer_help(void)
{
    if (!tfi_has_descriptors()) return wait_for_background();
    struct tfi_chunk *chunk = take_waiting();
    if (!chunk) return false;
    tfi_writer_append_rows(chunk);
    tfi_pool_give(chunk);
    return true;
}

void tfi_writer_take(struct tfi_chunk *chunk)
{
    if (tfi_writer_needs_help() || !tfi_background_start() || !tfi_lock(&queue.lock)) {
        tfi_writer_append_rows(chunk);
        tfi_pool_give(chunk);
        return;
    }
    queue.ring[queue.tail++ % RING] = chunk;
    tfi_unlock(&queue.lock);
    tfi_background_signal();
}

/* ---- a trace that is kept small ---- */

void tfi_writer_keep_within(const struct tfi_keeper *by)
{
    keeper = by;
}

const struct tfi_writing *tfi_writer_hold(void)
{
    static struct tfi_writing writing = {.file = &file, .size = &trace.size};
    if (!tfi_lock(&trace.lock)) return NULL;
    if (!trace.begun || trace.ended) {
        unlock_trace();
        return NULL;
    }
    writing.chunks = trace.chunks;
    writing.records = trace.records;
    return &writing;
}

void tfi_writer_release(void)
{
    unlock_trace();
}

void tfi_writer_append_held(const void *rows, uint32_t bytes)
{
    if (flush_strings()) append_library(rows, bytes);
}

void tfi_writer_tell_again(void)
{
    memset(trace.drops_told, 0, sizeof trace.drops_told);
}

/* ---- the end ---- */

void tfi_writer_append_last(const void *row, uint32_t bytes)
{
    if (bytes > sizeof trace.last_row || !tfi_lock(&trace.lock)) return;
    memcpy(trace.last_row, row, bytes);
    trace.last_bytes = bytes;
    tfi_unlock(&trace.lock);
}

static void append_clock(void)
{
    struct tfi_clock_pair pair = tfi_clock_read();
    struct {
        struct tfi_rec_clock clock[2];
        uint8_t last[TFI_LAST_ROW_BYTES];
    } rows = {.clock = {
                  {{TFI_KIND_clock, sizeof rows.clock[0]}, TFI_CLOCK_MONOTONIC, pair.ticks, pair.monotonic, pair.error},
                  {{TFI_KIND_clock, sizeof rows.clock[0]}, TFI_CLOCK_REALTIME, pair.ticks, pair.realtime, pair.error},
              }};
    memcpy(rows.last, trace.last_row, trace.last_bytes);
    append_library(&rows, (uint32_t)(sizeof rows.clock + trace.last_bytes));
}

static bool append_footer(const char *reason)
{
    static char room[4096];
    struct tfi_text text = {room, sizeof room, 0, 0};
    uint64_t cost = tfi_cost_ns(trace.records) + tfi_workers_cpu_ns();
    tfi_text_add(&text, "reason%c%s%c", 0, reason, 0);
    tfi_text_add(&text, "ticks%c%lu%c", 0, (unsigned long)tfi_ticks(), 0);
    tfi_text_add(&text, "realtime_ns%c%lu%c", 0, (unsigned long)tfi_realtime_ns(), 0);
    tfi_text_add(&text, "records%c%lu%c", 0, (unsigned long)trace.records, 0);
    tfi_text_add(&text, "chunks%c%lu%c", 0, (unsigned long)trace.chunks, 0);
    tfi_text_add(&text, "strings%c%u%c", 0, tfi_strings_count(), 0);
    tfi_text_add(&text, "cost_ns%c%lu%c", 0, (unsigned long)cost, 0);
#define DROP(number, name, lost, help)                                                                                 \
    if (tfi_live->drops[number])                                                                                       \
        tfi_text_add(&text, "drop." #name "%c%lu%c", 0, (unsigned long)tfi_live->drops[number], 0);
#include "drops.def"
#undef DROP
    return append_plain(TFI_BLOCK_FOOTER, text.data, text.used);
}

bool tfi_writer_has_complained(void)
{
    return trace.told_error;
}

/* Appends one chunk at the end; false if it remains only in the live file. A chunk outside such a file that can't be
 * appended now is lost, and counted. */
static bool finish_one(struct tfi_chunk *chunk)
{
    uint32_t records = tfi_count_rows(chunk + 1, committed(chunk));
    if (append_one(chunk, true, true)) return true;
    bool lasts = tfi_pool_lasts(chunk);
    if (!lasts) tfi_count_drop(TFI_DROP_APPEND, records);
    return !lasts;
}

static void append_last_rows(void)
{
    const void *rows;
    size_t bytes = keeper->last_rows(&rows);
    tfi_writer_append_held(rows, (uint32_t)bytes);
}

/* Writes the end of the trace. The caller has the lock, and no worker runs. */
static bool write_end(const char *reason)
{
    struct tfi_chunk *chunk;
    bool whole = true;
    trace.ending = true;
    if (!encoder) encoder = tfi_encoder_new(TFI_LARGE_BYTES);
    while ((chunk = take_waiting()) != NULL) whole &= finish_one(chunk);
    for (struct tfi_thread *t = tfi_threads(); t; t = t->all) {
        /* The thread keeps the chunk, and may still write to it. */
        chunk = __atomic_load_n(&t->chunk, __ATOMIC_ACQUIRE);
        if (chunk) whole &= finish_one(chunk);
    }
    if (begin_writing() && keeper) append_last_rows();
    if (begin_writing()) append_clock();
    tell_drops();
    whole &= flush_strings() && append_footer(reason);
    return whole;
}

/* The end that the background thread writes, because it has the file open: the program may have lost the way to it. */
static struct {
    const char *reason; /* NULL: the thread ends for another reason */
    bool begun, done, whole;
} last;

static void append_last(void)
{
    const char *reason = __atomic_load_n(&last.reason, __ATOMIC_ACQUIRE);
    if (!reason || !tfi_lock_within(&trace.lock, STOP_MS)) return;
    __atomic_store_n(&last.begun, true, __ATOMIC_RELEASE);
    last.whole = write_end(reason);
    last.done = trace.ended = true;
    tfi_unlock(&trace.lock);
}

const struct tfi_job tfi_writer_job = {.work = append_waiting, .last = append_last};

static bool stop_background(const char *reason)
{
    last.begun = last.done = false;
    __atomic_store_n(&last.reason, reason, __ATOMIC_RELEASE);
    bool stopped = tfi_background_stop(STOP_MS);
    for (unsigned i = 0; !stopped && i < LAST_MS && __atomic_load_n(&last.begun, __ATOMIC_ACQUIRE); i += STOP_MS)
        stopped = tfi_background_stop(STOP_MS);
    __atomic_store_n(&last.reason, NULL, __ATOMIC_RELEASE);
    return stopped;
}

bool tfi_writer_finish(const char *reason)
{
    /* A calling thread that hangs in another library's call owns nothing, and will see the stop request later. */
    bool called = tfi_caller_stop(STOP_MS) || tfi_caller_is_calling();
    bool stopped = stop_background(called ? reason : NULL) && called;
    if (!tfi_lock_within(&trace.lock, STOP_MS)) return false;
    /* A thread that hangs in a write still owns the encoder and its chunk: the rest stays in the live file. */
    if (!stopped) {
        unlock_trace();
        return false;
    }
    bool whole = last.done ? last.whole : write_end(reason);
    trace.ended = true;
    if (tfi_writer_is_gone()) tell_gone();
    tfi_unlock(&trace.lock);
    tfi_file_close(&file);
    return whole;
}

void tfi_writer_keep(void)
{
    int error = errno;
    if (!tfi_live || tfi_getpid() != tfi_trace_pid || !tfi_lock_within(&trace.lock, STOP_MS)) return;
    if (!trace.ended) tfi_file_keep(&file);
    tfi_unlock(&trace.lock);
    errno = error;
}
