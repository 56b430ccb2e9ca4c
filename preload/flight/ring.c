/* ring.c - keeps the trace of TFI_MODE=flight within a size: the last seconds, and those before the moments of moments.c.
 *
 * The trace stays one .tfr that every reader knows. Its blocks are counted in parts. When the file has grown, the
 * background thread writes another one beside it: the start of a trace, all strings, the definitions (definitions.c) of
 * the parts that go, and the parts that stay, as they are. The new file then replaces the old one by a rename, so at each
 * moment one whole trace has the name, and a kill leaves it as it is.
 *
 * B is the allowed size. A file has at most 5/8 of it. From 1/2 on it is rewritten, to 1/4 and what comes meanwhile, so
 * that both files together stay within B. A thread that finds no room waits for the rewriting. If that takes too long,
 * records are dropped and counted. At the end the file gets the records of the .live file, and may exceed B by them.
 *
 * Only the choice and the last piece are made under the writer's lock. The job copies a piece at a time. Between two
 * pieces chunks are appended, and a fork may end the thread: the rewriting then begins again.
 *
 * The ring writes what aggregates.c and moments.c know of the whole run as rows at the start of each new file, every
 * TFI_FLIGHT_PERIOD_S, when a moment is kept, and at the end. The last of these rows count.
 */
#include "flight/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/files.h"
#include "base/fmt.h"
#include "base/sys.h"
#include "flight/aggregates.h"
#include "flight/definitions.h"
#include "flight/failed_calls.h"
#include "flight/moments.h"
#include "record/clock.h"
#include "record/log.h"
#include "record/strings.h"
#include "record/writer.h"

#define PARTS 512u
#define MANY_PARTS 400u
#define SHARE 256u /* a part gets no chunk beyond this share of the size */
#define JUDGE_MS 1000u
#define BUFFER (1u << 20)
#define SMALL_REST (1u << 20) /* copied under the lock */
#define MOST_RESTS 8u
#define LEAST_GAIN (1u << 20)
#define LONGEST_MS 250u /* a thread waits no longer for room */
#define PAUSE_MS 10000u /* after a failure */

static struct {
    uint64_t bytes; /* 0: no ring */
    uint64_t ticks; /* so long ago a record is old */
    uint64_t start; /* end of what precedes the first part */
    uint64_t size;  /* of the file, when the last chunk was appended */
    uint64_t after; /* its size after the last rewriting */
    uint64_t parts; /* numbers given out */
    uint64_t period_ms, judge_at_ms, write_at_ms;
    uint64_t judged, written; /* values of the aggregates then */
    uint64_t serial;          /* of the chunk of definitions, 0 before there was one: that of a chunk that is gone */
    uint64_t not_before_ms;
    struct tfi_part *part; /* PARTS of them */
    unsigned count;
    bool closed; /* the last part gets no more chunks */
    bool told;
    bool failed;        /* and not rewritten since: until not_before_ms it is not tried again */
    uint32_t rewritten; /* futex: counts how often */
    bool in_vain;       /* a thread has waited for it in vain since */
} ring;

/* The rewriting in progress. */
static struct {
    bool on;
    struct tfi_file file;
    uint64_t size;
    uint64_t start;   /* end of what precedes the first part there */
    uint64_t gone;    /* chunks */
    uint64_t records; /* that are gone */
    uint64_t since;   /* ticks: the new file has every record after that */
    unsigned count;   /* parts that were there when it began */
    unsigned next;    /* part that is copied next; from `count` on: the rest, in several stretches */
    uint64_t at;      /* copied so far, in the old file */
    uint64_t limit;   /* end of the stretch that is copied */
    uint64_t before;  /* end of the parts there were, in the old file */
    int from;         /* the old file */
} fresh = {.from = -1};

static uint8_t *buffer;         /* for a piece, then the rows of a new file */
static struct tfi_part *places; /* what ring.part is; mapped, because a process may have little room for data */
#define ROWS_BYTES (TFI_DEFINITIONS_BYTES + TFI_AGGREGATES_BYTES + TFI_MOMENTS_BYTES)

/* ---- what the writer appends ---- */

static uint64_t begin_of(unsigned i)
{
    return i ? ring.part[i - 1].end : ring.start;
}

static struct tfi_parts all_parts(void)
{
    return (struct tfi_parts){ring.part, ring.count, fresh.on ? fresh.count : 0, ring.start};
}

/* Has the moments that were asked for kept; true if that has changed what is kept. Under the lock. */
static bool take_moments(void)
{
    const struct tfi_parts parts = all_parts();
    bool changed = parts.count && tfi_moments_take(&parts);
    ring.closed |= changed;
    return changed;
}

static bool is_full(unsigned i, uint64_t now)
{
    const struct tfi_part *part = &ring.part[i];
    return ring.closed || part->end - begin_of(i) >= ring.bytes / SHARE || now - part->first >= ring.ticks / 16;
}

static void note_chunk(uint64_t end, const struct tfi_block *head, const void *rows, uint32_t bytes)
{
    uint64_t now = tfi_ticks();
    if (!ring.start) ring.start = end - sizeof *head - ((head->stored + 7) & ~7u);
    if (!ring.count || (is_full(ring.count - 1, now) && ring.count < PARTS)) {
        ring.part[ring.count++] =
            (struct tfi_part){.number = ++ring.parts, .first = now, .serial = head->serial, .lowest = head->serial};
        ring.closed = false;
    }
    struct tfi_part *part = &ring.part[ring.count - 1];
    part->end = end;
    part->chunks++;
    part->records += head->records;
    part->last = now;
    if (head->serial < part->lowest) part->lowest = head->serial;
    __atomic_store_n(&ring.size, end, __ATOMIC_RELAXED);
    tfi_definitions_note(rows, bytes, part->number);
    tfi_aggregates_note(rows, bytes);
    const struct tfi_parts parts = all_parts();
    tfi_moments_note(&parts, head->serial);
}

static bool has_room(uint64_t size)
{
    return size <= ring.bytes / 8 * 5;
}

/* Writes what is known of the whole run. Returns the bytes; `count` gets the number of rows. Under the lock. */
static size_t write_whole_run(uint8_t *to, uint32_t *count)
{
    uint64_t now = tfi_ticks();
    uint32_t moments;
    size_t bytes = tfi_aggregates_write(to, now, count);
    bytes += tfi_moments_write(to + bytes, now, &moments);
    *count += moments;
    return bytes;
}

static size_t last_rows(const void **rows)
{
    uint32_t count;
    *rows = buffer;
    take_moments();
    return buffer ? write_whole_run(buffer, &count) : 0;
}

static bool make_room(bool in_background);

static const struct tfi_keeper keeper = {
    .note = note_chunk, .has_room = has_room, .make_room = make_room, .last_rows = last_rows};

void tfi_ring_begin(uint64_t mb, uint64_t seconds, uint64_t period)
{
    if (!places) places = tfi_map(PARTS * sizeof *places);
    if (!places) return;
    ring.part = places;
    ring.bytes = mb << 20;
    ring.ticks = (uint64_t)((double)seconds * 1e9 / tfi_clock_ns_per_tick());
    ring.period_ms = period * 1000;
    ring.write_at_ms = tfi_monotonic_ms() + ring.period_ms;
    if (!buffer) buffer = tfi_map(BUFFER + ROWS_BYTES);
    tfi_definitions_begin();
    tfi_aggregates_begin(mb);
    tfi_moments_begin(ring.bytes / 8, ring.ticks);
    tfi_writer_keep_within(&keeper);
}

void tfi_ring_restart(void)
{
    memset(&ring, 0, sizeof ring);
    ring.part = places;
    memset(&fresh, 0, sizeof fresh);
    fresh.from = -1;
    tfi_aggregates_restart();
    tfi_moments_restart();
    tfi_failed_calls_restart();
    tfi_writer_keep_within(NULL);
}

/* ---- the choice ---- */

static bool is_old(const struct tfi_part *part, uint64_t now)
{
    return now - part->last > ring.ticks;
}

static uint64_t bytes_of(unsigned i)
{
    return ring.part[i].end - begin_of(i);
}

/* True if the file has grown, or more than half of it is old. A part is only looked at here: the choice is made under
 * the lock. */
static bool is_due(void)
{
    uint64_t now = tfi_ticks(), size = __atomic_load_n(&ring.size, __ATOMIC_RELAXED), old = 0;
    if (!ring.bytes || !buffer || !size || tfi_monotonic_ms() < ring.not_before_ms) return false;
    if (size > ring.bytes / 2 && size > ring.after + ring.after / 4) return true;
    unsigned count = ring.count;
    for (unsigned i = 0; i < count && is_old(&ring.part[i], now); i++)
        if (!ring.part[i].moments) old += bytes_of(i);
    return old >= LEAST_GAIN && (old > size / 2 || count > MANY_PARTS);
}

static void keep_part(unsigned i)
{
    struct tfi_part *part = &ring.part[i];
    part->stays = true;
    fresh.gone -= part->chunks;
    fresh.records -= part->records;
}

/* Returns the bytes that the newest parts may have, beside all strings and the parts of moments. */
static uint64_t room_for_newest(void)
{
    uint64_t others = tfi_strings_bytes(), most = ring.bytes / 4;
    for (unsigned i = 0; i < ring.count; i++)
        if (ring.part[i].moments) others += bytes_of(i);
    return most > others + ring.bytes / 16 ? most - others : ring.bytes / 16;
}

/* Chooses the parts that stay: those of moments, and the newest ones that are not old and that fit. Returns false if all
 * stay. */
static bool choose(const struct tfi_writing *writing)
{
    uint64_t now = tfi_ticks(), most = room_for_newest(), sum = 0;
    unsigned i = ring.count, gone = 0, oldest = 0;
    fresh.gone = writing->chunks;
    fresh.records = writing->records;
    for (; i > 0; i--) {
        uint64_t bytes = ring.part[i - 1].moments ? 0 : bytes_of(i - 1);
        if (i < ring.count && (sum + bytes > most || is_old(&ring.part[i - 1], now))) break;
        keep_part(i - 1);
        sum += bytes;
    }
    for (unsigned k = i; k > 0; k--) {
        ring.part[k - 1].stays = false;
        if (ring.part[k - 1].moments) keep_part(k - 1);
        else if (!gone) gone = k;
    }
    if (!gone) return false;
    fresh.since = ring.part[gone - 1].last;
    if (!ring.serial) ring.serial = ring.part[gone - 1].serial;
    while (!ring.part[oldest].stays) oldest++;
    tfi_definitions_forget(ring.part[oldest].number);
    return true;
}

static bool is_gone(uint64_t number)
{
    for (unsigned i = 0; i < ring.count; i++)
        if (ring.part[i].number == number) return !ring.part[i].stays;
    return true;
}

/* ---- the new file ---- */

static void leave_fresh(void)
{
    if (fresh.from >= 0) syscall(SYS_close, fresh.from);
    fresh.from = -1;
    fresh.on = false;
}

/* Says once that the oldest part stays, and why. */
static void tell(int error)
{
    if (!ring.told)
        tfi_log(TFI_LOG_WARN,
                "the oldest part of the trace cannot be left out (%s): no room for another file, or no way to it; "
                "records beyond TFI_FLIGHT_MB are dropped and counted",
                tfi_error_name(error));
    ring.told = true;
}

static void fail(void)
{
    tell(errno);
    ring.failed = true;
    ring.not_before_ms = tfi_monotonic_ms() + PAUSE_MS;
    tfi_file_remove(&fresh.file);
    leave_fresh();
}

static bool create_fresh(const struct tfi_file *file)
{
    char name[TFI_NAME_BYTES];
    for (unsigned n = 1; n < 10; n++) {
        tfi_fmt(name, sizeof name, "%s.new%u", file->name, n);
        if (tfi_file_create(&fresh.file, file->dir, name)) return true;
        if (errno != EEXIST) return false;
    }
    return false;
}

static bool open_old(const struct tfi_file *file)
{
    struct stat st;
    fresh.from = tfi_dir_open_own(file->dir, file->name, O_RDONLY, &st);
    return fresh.from >= 0 && st.st_dev == file->device && st.st_ino == file->inode;
}

static bool append_fresh(struct tfi_block head, const void *payload)
{
    return tfi_writer_append_to(&fresh.file, &fresh.size, &head, payload);
}

static bool write_account(void)
{
    char room[256];
    struct tfi_text text = {room, sizeof room, 0, 0};
    tfi_text_add(&text, "flight.chunks%c%lu%c", 0, (unsigned long)fresh.gone, 0);
    tfi_text_add(&text, "flight.records%c%lu%c", 0, (unsigned long)fresh.records, 0);
    tfi_text_add(&text, "flight.since%c%lu%c", 0, (unsigned long)fresh.since, 0);
    return append_fresh(tfi_writer_block(TFI_BLOCK_HEADER, text.data, text.used), text.data);
}

static bool write_strings(void)
{
    size_t used = 0, length;
    for (uint32_t number = 1, count = tfi_strings_count(); number <= count; number++) {
        const char *text = tfi_string_text(number, &length);
        struct tfi_string head = {number, (uint32_t)length};
        size_t bytes = (sizeof head + length + 7) & ~(size_t)7;
        if (used + bytes > BUFFER) {
            if (!append_fresh(tfi_writer_block(TFI_BLOCK_STRINGS, buffer, used), buffer)) return false;
            used = 0;
        }
        memset(buffer + used + bytes - 8, 0, 8);
        memcpy(buffer + used, &head, sizeof head);
        memcpy(buffer + used + sizeof head, text, length);
        used += bytes;
    }
    return !used || append_fresh(tfi_writer_block(TFI_BLOCK_STRINGS, buffer, used), buffer);
}

/* The chunk takes the serial of a chunk that is gone, so that readers find no serial that the writer did not give. */
static bool write_rows(const uint8_t *rows, size_t bytes, uint32_t count)
{
    if (!bytes) return true;
    struct tfi_block head = tfi_writer_block(TFI_BLOCK_CHUNK, rows, bytes);
    head.flags = TFI_FLAG_ROWS;
    head.serial = ring.serial;
    head.records = count;
    return append_fresh(head, rows);
}

static bool start_fresh(const struct tfi_file *file, const uint8_t *rows, size_t bytes, uint32_t count)
{
    fresh.size = 0;
    bool ok = create_fresh(file);
    if (!ok) fresh.file = (struct tfi_file){.fd = -1, .bare_fd = -1, .dir = file->dir};
    ok = ok && open_old(file) && tfi_writer_start(&fresh.file, &fresh.size) && write_account() && write_strings() &&
         write_rows(rows, bytes, count);
    fresh.start = fresh.size;
    return ok;
}

/* Begins the rewriting; false if nothing can go. */
static bool begin_fresh(void)
{
    uint8_t *rows = buffer + BUFFER;
    uint32_t count, of_run;
    const struct tfi_writing *writing = tfi_writer_hold();
    if (!writing) return false;
    take_moments();
    bool kept = writing->file->kept; /* the process has changed its user or its root, and can make no file there */
    bool any = !kept && ring.count > 1 && choose(writing);
    if (!any) {
        ring.not_before_ms = tfi_monotonic_ms() + 100;
        tfi_writer_release();
        if (kept) tell(EPERM);
        return false;
    }
    size_t bytes = tfi_definitions_copy(rows, is_gone, &count);
    bytes += write_whole_run(rows + bytes, &of_run);
    count += of_run;
    fresh.gone -= bytes ? 1 : 0;
    fresh.records -= count;
    fresh.count = ring.count;
    fresh.before = ring.part[ring.count - 1].end;
    ring.closed = true;
    const struct tfi_file file = *writing->file;
    tfi_writer_release();
    fresh.on = true;
    fresh.next = 0;
    fresh.at = fresh.limit = 0;
    if (!start_fresh(&file, rows, bytes, count)) fail();
    return true;
}

/* Copies the next piece of the stretch; false with errno set. */
static bool copy_piece(void)
{
    size_t bytes = fresh.limit - fresh.at < BUFFER ? (size_t)(fresh.limit - fresh.at) : BUFFER;
    ssize_t n = syscall(SYS_pread64, fresh.from, buffer, bytes, fresh.at);
    if (n <= 0) errno = n ? errno : EIO;
    struct iovec piece = {buffer, n > 0 ? (size_t)n : 0};
    if (n <= 0 || !tfi_file_append(&fresh.file, &fresh.size, &piece, 1)) return false;
    fresh.at += (uint64_t)n;
    return true;
}

/* Goes on to the next part that stays; false behind the last one. Under the lock. */
static bool next_part(void)
{
    for (; fresh.next < fresh.count; fresh.next++) {
        if (!ring.part[fresh.next].stays) continue;
        fresh.at = begin_of(fresh.next);
        fresh.limit = ring.part[fresh.next++].end;
        if (fresh.limit > fresh.before) fresh.limit = fresh.before; /* the last part grows where there are too many */
        return true;
    }
    return false;
}

/* Gives the parts their places in the new file. Under the lock. */
static void move_parts(void)
{
    unsigned count = 0;
    uint64_t begin = ring.start, end = fresh.start;
    for (unsigned i = 0; i < ring.count; i++) {
        struct tfi_part part = ring.part[i];
        uint64_t bytes = part.end - begin;
        begin = part.end;
        if (i < fresh.count && !part.stays) continue;
        end += bytes;
        part.end = end;
        ring.part[count++] = part;
    }
    ring.start = fresh.start;
    ring.count = count;
}

/* Puts the new file into the place of the old one. Under the lock. */
static bool replace(const struct tfi_writing *writing)
{
    if (writing->file->kept || !tfi_file_replace(writing->file, &fresh.file)) return false;
    *writing->size = fresh.size;
    move_parts();
    ring.after = fresh.size;
    ring.failed = false;
    __atomic_store_n(&ring.size, fresh.size, __ATOMIC_RELAXED);
    tfi_writer_tell_again();
    leave_fresh();
    __atomic_store_n(&ring.in_vain, false, __ATOMIC_RELAXED);
    __atomic_add_fetch(&ring.rewritten, 1, __ATOMIC_RELEASE);
    tfi_futex_wake(&ring.rewritten);
    return true;
}

/* Copies what was appended meanwhile, the last of it under the lock. */
static bool copy_rest(const struct tfi_writing *writing)
{
    if (fresh.next == fresh.count) fresh.at = fresh.before;
    fresh.limit = *writing->size;
    if (fresh.next++ < fresh.count + MOST_RESTS && fresh.limit - fresh.at > SMALL_REST) return true;
    while (fresh.at < fresh.limit)
        if (!copy_piece()) return false;
    return replace(writing);
}

static bool rewrite(void)
{
    if (!fresh.on) return is_due() && begin_fresh();
    if (fresh.at < fresh.limit) {
        if (!copy_piece()) fail();
        return true;
    }
    const struct tfi_writing *writing = tfi_writer_hold();
    if (!writing) return false;
    bool ok = next_part() || copy_rest(writing);
    tfi_writer_release();
    if (!ok) fail();
    return true;
}

static bool is_paused(void)
{
    return ring.failed && tfi_monotonic_ms() < ring.not_before_ms;
}

static bool make_room(bool in_background)
{
    uint32_t before = __atomic_load_n(&ring.rewritten, __ATOMIC_ACQUIRE), now = before;
    if (in_background) {
        while (now == before && !is_paused() && (fresh.on ? rewrite() : begin_fresh())) now = ring.rewritten;
        return now != before;
    }
    for (unsigned ms = 0; now == before && ms < LONGEST_MS && !__atomic_load_n(&ring.in_vain, __ATOMIC_RELAXED); ms++) {
        if (!tfi_background_start()) break;
        tfi_background_signal();
        tfi_futex_wait(&ring.rewritten, before, 1);
        now = __atomic_load_n(&ring.rewritten, __ATOMIC_ACQUIRE);
    }
    if (now == before) __atomic_store_n(&ring.in_vain, true, __ATOMIC_RELAXED);
    return now != before;
}

/* The thread ends: what it has written is not needed. */
static void abandon(void)
{
    if (!fresh.on) return;
    tfi_file_remove(&fresh.file);
    leave_fresh();
}

/* ---- what is known of the whole run ---- */

/* Has the moments that were asked for kept, and appends what is known if it is time and there is room: the new file and the
 * end say it too. The piece that is being copied does
 * not lie in the buffer between two pieces. */
static void tell_whole_run(void)
{
    uint64_t now = tfi_monotonic_ms(), values = tfi_aggregates_values();
    bool is_time = now >= ring.write_at_ms && values != ring.written, asked = tfi_moments_wait();
    if (now >= ring.judge_at_ms && values != ring.judged) {
        tfi_aggregates_judge();
        ring.judge_at_ms = now + JUDGE_MS;
        ring.judged = values;
    }
    const struct tfi_writing *writing = is_time || asked ? tfi_writer_hold() : NULL;
    if (!writing) return;
    if (take_moments() || is_time) {
        uint32_t count;
        size_t bytes = write_whole_run(buffer, &count);
        if (has_room(*writing->size + bytes)) tfi_writer_append_held(buffer, (uint32_t)bytes);
        ring.written = values;
        ring.write_at_ms = now + ring.period_ms;
    }
    tfi_writer_release();
}

static bool work(void)
{
    if (ring.bytes && buffer) tell_whole_run();
    return rewrite();
}

static unsigned wait_for_time(unsigned ms)
{
    uint64_t values = tfi_aggregates_values();
    if (ring.bytes && values != ring.judged) ms = tfi_job_wait(ring.judge_at_ms, ms);
    if (ring.bytes && values != ring.written) ms = tfi_job_wait(ring.write_at_ms, ms);
    return ms;
}

const struct tfi_job tfi_ring_job = {.work = work, .wait = wait_for_time, .last = abandon};
