/* silence.c - watches for threads that make no records, and writes down where their Python code stands (TFI_HANG_S).
 *
 * The background thread looks at all threads a few times within TFI_HANG_S. A thread is silent while its chunk and the
 * calls and stages of its slot stay the same; it does nothing for that itself. The frames of a silent thread are read
 * when it has been silent for TFI_HANG_S, and again later; a record is written when they differ from the last ones.
 * Python threads that never made a record are read whenever another thread is.
 *
 * A process that calls abort() gets no second look: the thread that calls it reads all threads at once. It shares the
 * memory of the readings, and all that is known of the threads, with the background thread: `reader` says whose they are.
 * The process may go on after an abort, so both leave everything usable.
 *
 * The looks count time only while they happen. A process that was stopped, by a signal or a debugger, or with its whole
 * machine, was not silent meanwhile.
 *
 * A process with an interpreter therefore has the background thread from its first record on. A fork ends the thread as
 * always; a stage's edge, a closed chunk or, in Python, the end of os.fork() starts it again.
 */
#include "hang/silence.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fmt.h"
#include "base/process.h"
#include "base/sys.h"
#include "control/config.h"
#include "hang/other_frames.h"
#include "hang/uncaught.h"
#include "python/python.h"
#include "record/clock.h"
#include "record/strings.h"
#include "record/thread.h"
#include "record/upkeep.h"

enum {
    LOOKS = 5,          /* within TFI_HANG_S */
    MOST_MS = 1000,     /* between two looks */
    OFTEN = 10,         /* this many readings of a silence are TFI_HANG_S apart, */
    SELDOM = 10,        /* later ones this many times that */
    OTHERS = 256,       /* Python threads without a record that are followed */
    FIRST_WATCHED = 64, /* threads */
    LOCK_MS = 100,
    ABORT_MS = 500, /* a thread that aborts waits this long for the other reader, and begins no reading later */
};

/* The last record of a thread's silence. */
struct told {
    uint32_t stack;
    enum tfi_reading reading; /* 0: none yet */
};

/* A state of the recorder's list, by its place in that list from the end. */
struct watched {
    const struct tfi_thread *thread;
    uint64_t mark;  /* changes with each record, call and stage */
    uint64_t since; /* ticks: when it was first found with this mark */
    uint64_t quiet; /* the same, in milliseconds of looking */
    uint64_t next;  /* when it is to be read, in milliseconds of looking */
    uint64_t id;
    uint32_t serial, tid; /* serial 0: the state has no thread now */
    uint32_t readings;
    struct told told;
};

/* A Python thread that never made a record. */
struct other {
    uint64_t id, since;
    uint32_t tid;
    uint32_t turn; /* round in which it was last seen */
    struct told told;
};

static uint64_t hang_ms; /* TFI_HANG_S; a test may set a shorter time */
static struct watched *watched;
static uint32_t nr_watched, max_watched;
static struct other others[OTHERS];
static uint32_t nr_others;
static uint64_t looked; /* when the last look was: milliseconds of the monotonic clock; 0: never */
static uint64_t now_ms; /* of looking, up to the last look */
static uint32_t turn;   /* rounds of reading */
static bool reading;    /* in a round: */
static uint32_t cursor; /* what is read next: the watched, then the interpreter's threads */
static bool listed;     /* the interpreter's threads could be listed */
static enum tfi_reading why_not;
static struct tfi_lock reader; /* of all above, and of other_frames.h */
static struct tfi_lock lock;   /* of the lane */
static struct tfi_thread lane; /* writes the records: not a thread of the program */

static uint64_t interval_ms(void)
{
    return hang_ms / LOOKS < MOST_MS ? hang_ms / LOOKS : MOST_MS;
}

static bool wanted(void)
{
    return tfi_config.hang_s && tfi_python_here() && __atomic_load_n(&tfi_process->gen, __ATOMIC_ACQUIRE);
}

/* ---- looking ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * 0x9e3779b97f4a7c15u;
}

static uint64_t load(const uint64_t *value)
{
    return __atomic_load_n(value, __ATOMIC_RELAXED);
}

/* A number that changes with each record of the thread, and with each call and stage that it enters or leaves. */
static uint64_t mark_of(const struct tfi_thread *t, const struct tfi_slot *slot)
{
    const struct tfi_chunk *chunk = __atomic_load_n(&t->chunk, __ATOMIC_ACQUIRE);
    uint64_t mark = chunk ? mix(load(&chunk->serial), __atomic_load_n(&chunk->committed, __ATOMIC_ACQUIRE)) : 0;
    uint32_t calls = __atomic_load_n(&slot->calls, __ATOMIC_ACQUIRE);
    mark = mix(mark, (uint64_t)calls << 32 | __atomic_load_n(&slot->stages, __ATOMIC_ACQUIRE));
    for (uint32_t i = 0; i < calls && i < TFI_SLOT_CALLS; i++) mark = mix(mark, load(&slot->call[i].start));
    return mix(mark, load(&slot->collective.sequence));
}

static void look_at(struct watched *w, const struct tfi_thread *t, uint32_t gen)
{
    const struct tfi_slot *slot = t->slot;
    w->thread = t;
    if (__atomic_load_n(&t->gen, __ATOMIC_ACQUIRE) != gen || !slot) {
        w->serial = 0;
        return;
    }
    uint64_t mark = mark_of(t, slot);
    if (w->serial == t->serial && w->mark == mark) return;
    *w = (struct watched){.thread = t,
                          .mark = mark,
                          .since = tfi_ticks(),
                          .quiet = now_ms,
                          .next = now_ms + hang_ms,
                          .id = slot->pthread,
                          .serial = t->serial,
                          .tid = t->tid};
}

static bool make_room(uint32_t count)
{
    uint32_t most = max_watched ? max_watched : FIRST_WATCHED;
    while (most < count) most *= 2;
    if (most == max_watched) return true;
    struct watched *larger = tfi_map(most * sizeof *larger);
    if (!larger) return false;
    if (watched) {
        memcpy(larger, watched, nr_watched * sizeof *larger);
        munmap(watched, max_watched * sizeof *watched);
    }
    watched = larger;
    max_watched = most;
    return true;
}

/* Looks at every thread. The list only grows at its beginning, so a place counted from its end stays. */
static void look_for_silence(void)
{
    uint32_t gen = __atomic_load_n(&tfi_process->gen, __ATOMIC_ACQUIRE), count = 0;
    const struct tfi_thread *first = tfi_threads();
    for (const struct tfi_thread *t = first; t; t = t->all) count++;
    if (!make_room(count)) return;
    nr_watched = count;
    for (const struct tfi_thread *t = first; t; t = t->all) look_at(&watched[--count], t, gen);
}

/* ---- writing ---- */

static uint32_t stack_of(const struct tfi_other_frames *frames)
{
    static char room[9 * TFI_STACK_FRAMES];
    struct tfi_text list = {room, sizeof room, 0, 0};
    for (uint32_t i = 0; i < frames->count; i++)
        tfi_text_add(&list, i ? " %x" : "%x", tfi_string(frames->frame[i].text, frames->frame[i].length));
    return list.used ? tfi_string(list.data, list.used) : 0;
}

static void write_record(const struct tfi_rec_silence *silence)
{
    uint32_t gen = __atomic_load_n(&tfi_process->gen, __ATOMIC_ACQUIRE);
    if (!gen || !tfi_lock_within(&lock, LOCK_MS)) return;
    tfi_lane_open(&lane, gen);
    struct tfi_rec_silence *rec = TFI_RESERVE(&lane, silence);
    if (rec) {
        struct tfi_rec head = rec->rec;
        *rec = *silence;
        rec->rec = head;
        tfi_commit(&lane, sizeof *rec);
    }
    tfi_unlock(&lock);
}

/* Reads the frames of a thread, and writes a record if they differ from those of the last one. */
static void read_thread(struct tfi_rec_silence *silence, uint64_t id, struct told *told)
{
    static const struct tfi_other_frames none;
    silence->time = tfi_ticks();
    const struct tfi_other_frames *frames = listed ? tfi_other_frames(id, silence->tid) : &none;
    silence->reading = listed ? frames->reading : why_not;
    silence->stack = stack_of(frames);
    silence->flags |= frames->cut ? TFI_SILENCE_CUT : 0;
    if (silence->flags & TFI_SILENCE_ABORT) {
        if (silence->stack || silence->tid == (uint32_t)tfi_gettid()) write_record(silence);
        return;
    }
    if (told->reading && told->stack == silence->stack && (silence->stack || told->reading == silence->reading)) return;
    *told = (struct told){silence->stack, (enum tfi_reading)silence->reading};
    write_record(silence);
}

/* ---- a round of reading ---- */

static bool is_due(const struct watched *w)
{
    return w->serial && w->next <= now_ms;
}

/* Begins a round if a thread is to be read. */
static void begin_round(void)
{
    cursor = 0;
    while (cursor < nr_watched && !is_due(&watched[cursor])) cursor++;
    reading = cursor < nr_watched;
    if (!reading) return;
    turn++;
    listed = tfi_other_threads(&why_not);
}

static void read_watched(struct watched *w)
{
    if (!is_due(w)) return;
    struct tfi_rec_silence silence = {.thread = w->serial, .since = w->since, .tid = w->tid};
    w->readings++;
    w->next = now_ms + hang_ms * (w->readings < OFTEN ? 1 : SELDOM);
    read_thread(&silence, w->id, &w->told);
}

static const struct watched *find_watched(uint64_t id)
{
    for (uint32_t i = 0; i < nr_watched; i++)
        if (watched[i].serial && watched[i].id == id) return &watched[i];
    return NULL;
}

/* Finds a Python thread without a record among those seen before, or adds it; NULL if there is no place for it. A place
 * whose thread was not seen in the last round is free. */
static struct other *find_other(const struct tfi_other_thread *thread)
{
    struct other *place = nr_others < OTHERS ? &others[nr_others] : NULL;
    for (uint32_t i = 0; i < nr_others; i++) {
        struct other *other = &others[i];
        if (other->id == thread->id && other->tid == thread->tid) return other;
        if (other->turn + 1 < turn) place = other;
    }
    if (!place) return NULL;
    if (place == &others[nr_others]) nr_others++;
    *place = (struct other){.id = thread->id, .tid = thread->tid, .since = tfi_ticks()};
    return place;
}

static void read_other(const struct tfi_other_thread *thread)
{
    struct other *other = find_watched(thread->id) ? NULL : find_other(thread);
    if (!other || other->turn == turn) return;
    struct tfi_rec_silence silence = {.since = other->since, .tid = other->tid};
    other->turn = turn;
    read_thread(&silence, other->id, &other->told);
}

/* Reads one thread; false at the end of the round. */
static bool read_next(void)
{
    while (cursor < nr_watched && !is_due(&watched[cursor])) cursor++;
    if (cursor < nr_watched) {
        read_watched(&watched[cursor++]);
        return true;
    }
    uint32_t other = cursor - nr_watched;
    reading = listed && other < tfi_other_thread_count();
    if (reading) read_other(tfi_other_thread(other));
    cursor++;
    return reading;
}

static void look_again(uint64_t now)
{
    if (looked) now_ms += now - looked < 2 * interval_ms() ? now - looked : 2 * interval_ms();
    looked = now;
    look_for_silence();
    begin_round();
}

/* Does one piece of work: a look, or the reading of one thread. */
static bool work(void)
{
    uint64_t now = tfi_monotonic_ms();
    bool due = now >= looked + interval_ms();
    if (!wanted() || (!reading && !due)) return false;
    if (!tfi_lock_within(&reader, 0)) { /* the process aborts */
        looked = now;
        return false;
    }
    bool more = reading && read_next();
    if (!more && due) look_again(now);
    more = more || reading;
    tfi_unlock(&reader);
    return more;
}

static unsigned wait_at_most(unsigned most)
{
    return wanted() ? tfi_job_wait(looked + interval_ms(), most) : most;
}

const struct tfi_job tfi_silence_job = {.work = work, .wait = wait_at_most};

/* ---- abort ---- */

static void read_aborted(uint32_t serial, uint64_t since, uint64_t id, uint32_t tid)
{
    struct tfi_rec_silence silence = {.thread = serial, .since = since, .tid = tid, .flags = TFI_SILENCE_ABORT};
    struct told told = {0};
    read_thread(&silence, id, &told);
}

/* Reads the frames of all Python threads, those of the calling thread first. */
static void read_all(void)
{
    struct tfi_patience patience = TFI_PATIENCE(ABORT_MS);
    uint64_t self = (uint64_t)pthread_self();
    look_for_silence();
    reading = false; /* the list of threads is another one now */
    listed = tfi_other_threads(&why_not);
    const struct watched *w = find_watched(self);
    read_aborted(w ? w->serial : 0, w ? w->since : tfi_ticks(), self, (uint32_t)tfi_gettid());
    for (uint32_t i = 0; listed && i < tfi_other_thread_count() && tfi_patience_slice(&patience); i++) {
        const struct tfi_other_thread *other = tfi_other_thread(i);
        if (other->id == self) continue;
        w = find_watched(other->id);
        read_aborted(w ? w->serial : 0, w ? w->since : tfi_ticks(), other->id, w ? w->tid : other->tid);
    }
}

void tfi_silence_aborted(void)
{
    int error = errno, cancel;
    if (!wanted() || tfi_in_shared_child() || tfi_inside || (tfi_self && tfi_guarded(tfi_self))) return;
    cancel = tfi_cancel_off();
    tfi_inside++;
    if (tfi_lock_within(&reader, ABORT_MS)) {
        read_all();
        tfi_unlock(&reader);
    }
    tfi_inside--;
    tfi_cancel_on(cancel);
    errno = error;
}

/* ---- the life of the process ---- */

void tfi_silence_awake(void)
{
    if (wanted()) tfi_background_keep();
}

void tfi_silence_started(void)
{
    if (!tfi_config.hang_s || !tfi_lock_within(&reader, LOCK_MS)) return;
    tfi_other_prepare();
    tfi_unlock(&reader);
}

bool tfi_silence_finish(void)
{
    if (!tfi_lock_within(&lock, LOCK_MS)) return false;
    tfi_lane_close(&lane);
    tfi_unlock(&lock);
    return true;
}

void tfi_silence_restart(void)
{
    hang_ms = tfi_config.hang_s * 1000;
    tfi_python_on_uncaught(tfi_raised);
#ifdef TFI_TEST_HOOKS
    const char *shorter = getenv("HANG_MS");
    if (shorter) hang_ms = strtoul(shorter, NULL, 10);
#endif
    lock = reader = (struct tfi_lock){0};
    lane.gen = 0;
    if (watched) memset(watched, 0, max_watched * sizeof *watched);
    nr_watched = nr_others = 0;
    looked = now_ms = 0;
    reading = false;
}
