/* other_frames.c - reads the Python frames of another thread from outside, while that thread is free to run.
 *
 * A chain of frames that was read while the thread ran may mix several moments. Of two frames in such a mixture the one
 * may never have called the other. These proofs are used, in this order:
 *
 *   - The thread's processor time is the same before and after the reading. It did not run, so nothing changed. This
 *     holds for every thread that sleeps, waits for a lock or for the network.
 *   - Several readings, at irregular intervals, found the same frames at the same instructions. This holds for a thread
 *     that spins in native code.
 *   - The same, but for the outer frames only. The innermost of them may have moved in its code; all frames around it
 *     have not, so it was called from where they stand. This holds for a thread that runs Python code in a loop.
 */
#include "hang/other_frames.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fmt.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "sample/outside.h"

enum {
    MAX_THREADS = 4096,
    FRAME_BYTES = 128, /* the part of a frame that is read, at most */
    CODE_BYTES = 256,
    STATE_BYTES = 192,
    TABLE_BYTES = 1 << 18, /* a longer line table is not searched */
    TEXT_BYTES = 1 << 17,
    READINGS = 9,
};

struct step {
    uint64_t frame, code;
    int64_t at; /* as it lies in the frame */
};

struct chain {
    uint32_t count;
    bool cut;
    struct step step[TFI_STACK_FRAMES]; /* the innermost first */
};

static const struct tfi_python_layout *o;
/* The outer frames in which all readings of a thread agree with the first one. */
struct agreement {
    struct chain first;
    uint32_t outer; /* outermost frames, with their instructions */
    bool moved;     /* one more frame, at another instruction */
    bool all;       /* no reading had other frames */
};

/* The memory of a reading, mapped by the first one: most processes never need it. */
static struct room {
    struct tfi_other_thread threads[MAX_THREADS];
    struct agreement agreement;
    struct chain now, again;
    struct tfi_other_frames frames;
    char str[TFI_OUTSIDE_STR];
    char table[TABLE_BYTES];
    char text[TEXT_BYTES];
} * room;

static uint32_t nr_threads;
static bool refused; /* the kernel did not allow the last reading */

/* ---- reading memory ---- */

static bool pull(void *to, uint64_t from, size_t bytes)
{
    if (tfi_outside_pull(to, from, bytes)) return true;
    if (errno != EFAULT && errno != ENOMEM) refused = true;
    return false;
}

static bool pull_pointer(uint64_t *to, uint64_t from)
{
    return pull(to, from, sizeof *to);
}

static int int_in(const char *copy, int offset)
{
    int value;
    memcpy(&value, copy + offset, sizeof value);
    return value;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* ---- the threads ---- */

bool tfi_other_prepare(void)
{
    if (o) return true;
    const struct tfi_python_layout *layout = tfi_outside_prepare() ? tfi_outside.layout : NULL;
    if (layout && larger(larger(layout->next, layout->id), layout->tid) + 8 <= STATE_BYTES &&
        larger(layout->at, layout->previous) + 8 <= FRAME_BYTES &&
        larger(layout->lines, layout->first) + 8 <= CODE_BYTES)
        o = layout;
    return o != NULL;
}

/* Adds the threads of one interpreter; false if the list could not be read to its end. */
static bool list_threads(uint64_t interpreter)
{
    uint64_t state = 0;
    char copy[STATE_BYTES];
    int bytes = larger(larger(o->next, o->id), o->tid) + 8;
    if (!pull_pointer(&state, interpreter + (uint64_t)o->threads)) return false;
    while (state && nr_threads < MAX_THREADS) {
        if (!pull(copy, state, (size_t)bytes) || tfi_pointer_in(copy, TFI_THREAD_INTERPRETER) != interpreter)
            return false;
        room->threads[nr_threads++] = (struct tfi_other_thread){
            tfi_pointer_in(copy, o->id), state, o->tid < 0 ? 0 : (uint32_t)tfi_pointer_in(copy, o->tid)};
        state = tfi_pointer_in(copy, o->next);
    }
    return true;
}

/* Lists the newest interpreter first: where a thread is in several, the newer one is called by the older one. */
static bool list_all(void)
{
    uint64_t interpreter[TFI_INTERPRETERS];
    unsigned count = tfi_outside_interpreters(interpreter);
    nr_threads = 0;
    for (unsigned i = 0; i < count; i++)
        if (!list_threads(interpreter[i])) return false;
    return true;
}

bool tfi_other_threads(enum tfi_reading *why)
{
    refused = false;
    nr_threads = 0;
    *why = TFI_READING_LAYOUT;
    if (!o) return false;
    if (!room) room = tfi_map(sizeof *room);
    for (int i = 0; room && i < 3; i++) /* the list may change while it is read */
        if (list_all()) return true;
    *why = refused || !room ? TFI_READING_REFUSED : TFI_READING_INVALID;
    return false;
}

uint32_t tfi_other_thread_count(void)
{
    return nr_threads;
}

const struct tfi_other_thread *tfi_other_thread(uint32_t index)
{
    return &room->threads[index];
}

/* ---- the frames ---- */

/* Adds one frame to the chain, unless it is only the beginning of a call of the interpreter; false if it is no frame. */
static bool add_step(struct chain *chain, uint64_t frame, const char *copy)
{
    if (o->minor <= 10 && tfi_pointer_in(copy, TFI_OBJECT_TYPE) != tfi_outside.frame) return false;
    if (o->minor >= 12 && copy[o->owner] >= TFI_PYTHON_SHIM) return true;
    struct step *step = &chain->step[chain->count++];
    step->frame = frame;
    step->code = tfi_pointer_in(copy, o->code);
    if (o->minor >= 14) step->code &= ~(uint64_t)TFI_PYTHON_TAG;
    step->at = o->minor <= 10 ? int_in(copy, o->at) : (int64_t)tfi_pointer_in(copy, o->at);
    return true;
}

/* Adds the frames of one thread state. */
static bool walk_state(struct chain *chain, const struct tfi_other_thread *thread)
{
    char copy[FRAME_BYTES];
    uint64_t state = thread->state, holder = state, frame = 0, id;
    int bytes = larger(larger(o->code, o->previous), o->at) + 8;
    bytes = larger(bytes, o->owner + 1);
    if (!pull_pointer(&id, state + (uint64_t)o->id) || id != thread->id) return false; /* the thread has ended */
    if (o->cframe >= 0 && !pull_pointer(&holder, state + (uint64_t)o->cframe)) return false;
    if (holder && !pull_pointer(&frame, holder + (uint64_t)o->current)) return false;
    for (unsigned passed = 0; frame; passed++) {
        if (chain->count == TFI_STACK_FRAMES || passed == 2 * TFI_STACK_FRAMES) {
            chain->cut = true;
            break;
        }
        if (!pull(copy, frame, (size_t)bytes) || !add_step(chain, frame, copy)) return false;
        frame = tfi_pointer_in(copy, o->previous);
    }
    return true;
}

/* Reads the frames of a thread in all its interpreters. */
static bool walk(struct chain *chain, uint64_t id)
{
    chain->count = 0;
    chain->cut = false;
    for (uint32_t i = 0; i < nr_threads; i++)
        if (room->threads[i].id == id && !walk_state(chain, &room->threads[i])) return false;
    return true;
}

/* ---- names ---- */

static bool add_name(struct tfi_text *text, uint64_t str)
{
    return tfi_outside_name(text, str, room->str);
}

/* Adds function, file and line of a frame; false if its code is none. */
static bool describe(struct tfi_text *text, const struct step *step)
{
    char copy[CODE_BYTES];
    int bytes = larger(larger(o->filename, o->name), larger(o->lines, o->qualified)) + 8;
    bytes = larger(bytes, o->first + 4);
    if (!pull(copy, step->code, (size_t)bytes) || tfi_pointer_in(copy, TFI_OBJECT_TYPE) != tfi_outside.code)
        return false;
    if (!add_name(text, tfi_pointer_in(copy, o->qualified >= 0 ? o->qualified : o->name))) return false;
    tfi_text_bytes(text, "\t", 1);
    if (!add_name(text, tfi_pointer_in(copy, o->filename))) return false;
    int64_t at = o->minor == 10 ? 2 * step->at : step->at;
    if (o->adaptive >= 0) at -= (int64_t)(step->code + (uint64_t)o->adaptive);
    tfi_text_add(
        text, "\t%d",
        tfi_outside_line(tfi_pointer_in(copy, o->lines), at, int_in(copy, o->first), room->table, sizeof room->table));
    return true;
}

/* Describes the frames from the outermost to the innermost and returns the number of those that make sense. */
static uint32_t describe_all(const struct chain *chain, struct tfi_other_frames *frames)
{
    struct tfi_text text = {room->text, sizeof room->text, 0, 0};
    for (uint32_t n = 0; n < chain->count; n++) {
        size_t from = text.used;
        uint32_t i = chain->count - 1 - n;
        if (!describe(&text, &chain->step[i]) || text.full) return n;
        frames->frame[i].text = room->text + from;
        frames->frame[i].length = (uint32_t)(text.used - from);
    }
    return chain->count;
}

/* ---- the reading ---- */

/* The processor time of a thread in nanoseconds; false if it is unknown. The calling thread runs no Python code while it
 * is here: its time counts as unchanged. */
static bool cpu_time(uint32_t tid, uint64_t *ns)
{
#ifdef TFI_TEST_HOOKS
    if (getenv("HANG_UNTIMED")) return false; /* as for a thread whose kernel id is unknown */
#endif
    *ns = 0;
    if (tid == (uint32_t)tfi_gettid()) return true;
    return tfi_outside_cpu(tid, ns);
}

/* Waits for 0.1 to 0.4 milliseconds, so that the readings do not keep step with a loop of the thread. */
static void nap(void)
{
    struct timespec pause = {.tv_nsec = 100000 + (long)(tfi_monotonic_ns() * 2654435761u >> 8) % 300000};
    syscall(SYS_nanosleep, &pause, NULL);
}

/* The number of outermost frames that two chains have in common, with their instructions. `moved` tells that one more
 * frame is the same but for its instruction. */
static uint32_t common_outer(const struct chain *a, const struct chain *b, bool *moved)
{
    uint32_t n = 0, most = a->count < b->count ? a->count : b->count;
    *moved = false;
    if (a->cut != b->cut || (a->cut && a->step[a->count - 1].frame != b->step[b->count - 1].frame)) return 0;
    for (; n < most && !*moved; n++) {
        const struct step *x = &a->step[a->count - 1 - n], *y = &b->step[b->count - 1 - n];
        if (x->frame != y->frame || x->code != y->code) return n;
        if (x->at != y->at) {
            *moved = true;
            return n;
        }
    }
    return n;
}

static bool are_equal(const struct chain *a, const struct chain *b)
{
    bool moved;
    return a->count == b->count && common_outer(a, b, &moved) == a->count;
}

static void compare(struct agreement *a, const struct chain *chain)
{
    bool moved;
    uint32_t outer = common_outer(&a->first, chain, &moved);
    if (outer < a->outer) a->moved = moved;
    else if (outer == a->outer) a->moved = a->moved && moved;
    if (outer < a->outer) a->outer = outer;
    a->all = a->all && are_equal(&a->first, chain);
}

/* Reads and describes the frames once. True if the thread did not run meanwhile: then they are right. Otherwise what they
 * have in common with earlier readings is noted; `*good` counts the readings. */
static bool read_once(struct agreement *a, uint64_t id, uint32_t tid, struct tfi_other_frames *frames, unsigned *good)
{
    struct chain *now = &room->now, *again = &room->again;
    uint64_t before = 0, after = 0;
    bool timed = cpu_time(tid, &before);
    if (!walk(now, id)) return false;
    uint32_t described = describe_all(now, frames);
    if (!walk(again, id)) return false;
    timed = timed && cpu_time(tid, &after) && before == after;
    frames->count = now->count;
    frames->cut = now->cut;
    if (timed && described == now->count && are_equal(now, again)) return true;
    if (!(*good)++) {
        a->first = *now;
        a->outer = now->count;
        a->moved = false;
        a->all = true;
    }
    compare(a, now);
    compare(a, again);
    a->all = a->all && described == now->count;
    if (described < a->outer + a->moved) a->outer = described, a->moved = false;
    return false;
}

/* Keeps what all readings agreed on. */
static enum tfi_reading settle_frames(const struct agreement *a, struct tfi_other_frames *frames)
{
    uint32_t outer = a->outer + (a->moved && a->outer < frames->count);
    if (a->all) return TFI_READING_AGREED;
    memmove(frames->frame, frames->frame + (frames->count - outer), outer * sizeof frames->frame[0]);
    frames->count = outer;
    return outer ? TFI_READING_OUTER : TFI_READING_TORN;
}

static bool is_known(uint64_t id)
{
    for (uint32_t i = 0; i < nr_threads; i++)
        if (room->threads[i].id == id) return true;
    return false;
}

const struct tfi_other_frames *tfi_other_frames(uint64_t id, uint32_t tid)
{
    struct tfi_other_frames *frames = &room->frames;
    unsigned good = 0;
    refused = false;
    frames->count = 0;
    frames->cut = false;
    frames->reading = TFI_READING_FOREIGN;
    if (!is_known(id)) return frames;
    frames->reading = TFI_READING_STILL;
    for (int i = 0; i < 2 * READINGS && good < READINGS; i++) {
        if (read_once(&room->agreement, id, tid, frames, &good)) goto out;
        nap();
    }
    if (good == READINGS) {
        frames->reading = settle_frames(&room->agreement, frames);
    } else {
        frames->reading = refused ? TFI_READING_REFUSED : good ? TFI_READING_TORN : TFI_READING_INVALID;
        frames->count = 0;
    }
out:
    if (!frames->count && frames->reading <= TFI_READING_AGREED) frames->reading = TFI_READING_EMPTY;
    return frames;
}
