/* callstack.c - records one stack of Python and native frames as a string of the trace: a list of frame strings.
 *
 * Taking a stack only reads addresses: Python's frames as they lie in memory, native ones by libunwind, which keeps
 * what it has learnt about each return address. The same chain of addresses comes again and again, so its hash is
 * looked up in a table first. Names and lines are found when a chain is seen for the first time.
 *
 * Each frame is stored as a string once, and a stack as the list of their numbers. Two pipelines of diffusers (9,000
 * different stacks of 33 frames on average) need 1.2 MB for lists and 0.2 MB for frames. With every stack written in
 * full it was 31 MB, half of the table of strings. Stacks as links, a frame and the rest, would share their outer
 * frames and need 1.1 MB, but 67,000 strings instead of 9,000; stacks cut at their outermost frame share nothing.
 *
 * Joining: the interpreter's own functions are left out. Its evaluator among the native frames is replaced by the
 * frames of Python that it runs. Our own functions are left out too.
 *
 * libunwind is loaded, not linked, because its archive cannot be part of a shared library. It is loaded only with
 * `stack` on, at wake or when an embedded profiler wants stacks, because a hooked path must not take the loader's lock.
 * In the child of a fork, another thread of the parent may have been inside libunwind and held its lock. The child has
 * native frames only if no thread was.
 */
#include "python/callstack.h"

#include <errno.h>
#include <string.h>

#include "base/fmt.h"
#include "base/objects.h"
#include "base/process.h"
#include "base/stack_room.h"
#include "base/sys.h"
#include "python/frames.h"
#include "python/native_names.h"
#include "hooks/unwinder.h"
#include "record/log.h"
#include "record/strings.h"
#include "record/thread.h"
#include "stage/watch.h"

#define MAX_FRAMES 128u
#define ROOM 16384u           /* bytes of stack: 11 KiB are used, most of them by libunwind */
#define MAX_CHAINS (1u << 18) /* a power of two */

_Static_assert(2 * MAX_FRAMES <= TFI_STACK_FRAMES, "both stacks fit into one list");

struct chain {
    uint32_t nr_python, nr_native;
    struct tfi_python_frame python[MAX_FRAMES];
    void *native[MAX_FRAMES]; /* return addresses */
};

/* A known chain. Entries are only added, under the lock; the hash is stored last. */
struct known {
    uint64_t hash; /* 0: free */
    uint32_t string;
    uint32_t reserved;
};

static struct known *chains;
static uint32_t nr_chains;
static struct tfi_lock lock, beginning;
static char frame_room[16384];               /* one frame; with the lock held */
static char list_room[9 * TFI_STACK_FRAMES]; /* numbers and spaces; with the lock held */
static tfi_unwinder *unwind;
static uint32_t unwinding;               /* number of threads inside it */
static uintptr_t own_start, own_end;     /* this library */
static struct tfi_native_object python;  /* the object that contains the interpreter; with the lock held */
static struct tfi_native_name evaluator; /* with the lock held */

/* ---- taking ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)(a ^ 0x9e3779b97f4a7c15u) * (b ^ 0xd6e8feb86659fd93u);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t take_frames(struct chain *c)
{
    uint64_t hash = 1;
    c->nr_native = 0;
    c->nr_python = tfi_python_frames(c->python, MAX_FRAMES);
    if (unwind) {
        __atomic_add_fetch(&unwinding, 1, __ATOMIC_SEQ_CST);
        int n = unwind(c->native, MAX_FRAMES);
        __atomic_sub_fetch(&unwinding, 1, __ATOMIC_SEQ_CST);
        if (n > 0) c->nr_native = (uint32_t)n;
    }
    for (uint32_t i = 0; i < c->nr_python; i++) {
        const struct tfi_python_frame *f = &c->python[i];
        hash = mix(hash, (uint64_t)(uintptr_t)f->code ^ (uint64_t)f->at << 48 ^ (uint64_t)f->at);
        hash = mix(hash, f->name);
    }
    for (uint32_t i = 0; i < c->nr_native; i++) hash = mix(hash, (uintptr_t)c->native[i]);
    return c->nr_python + c->nr_native ? hash | 1 : 0;
}

/* ---- describing; with the lock held ---- */

static bool is_in(uintptr_t at, uintptr_t start, uintptr_t end)
{
    return at >= start && at < end;
}

/* Adds the frame described by `frame`, unless it is our own, and empties `frame`. */
static void add_frame(struct tfi_text *list, struct tfi_text *frame)
{
    if (!memmem(frame->data, frame->used, "\t<tfinject", 10)) {
        uint32_t number = frame->full ? TFI_STRING_LOST : tfi_string(frame->data, frame->used);
        tfi_text_add(list, list->used ? " %x" : "%x", number);
    }
    frame->used = 0;
    frame->full = 0;
}

/* Adds the frames of one call of the evaluator. */
static uint32_t add_python(struct tfi_text *list, struct tfi_text *frame, const struct chain *c, uint32_t i)
{
    while (i < c->nr_python) {
        const struct tfi_python_frame *f = &c->python[i++];
        tfi_python_describe(frame, f);
        add_frame(list, frame);
        if (f->first) break;
    }
    return i;
}

static void add_native(struct tfi_text *list, struct tfi_text *frame, uintptr_t at)
{
    struct tfi_native_name name;
    if (!tfi_native_find(at, &name)) {
        tfi_text_add(frame, "0x%lx\t\t0", (unsigned long)at); /* code that was compiled at run time */
        add_frame(list, frame);
        return;
    }
    size_t length = name.function ? strnlen(name.function, 1024) : 0;
    if (length) tfi_text_bytes(frame, name.function, length);
    else tfi_text_add(frame, "0x%lx", (unsigned long)(at - name.object->start));
    tfi_text_bytes(frame, "\t", 1);
    for (const char *p = name.object->path; *p; p++)
        tfi_text_bytes(frame, (unsigned char)*p < 0x20 ? " " : p, 1); /* tabs separate our fields */
    tfi_text_bytes(frame, "\t0", 2);
    add_frame(list, frame);
}

/* Finds the interpreter's evaluator, whose native frames are replaced by the Python frames. If the file that contains
 * it has "python" in its name, all other frames of that file are left out too. Otherwise the file may be a program with
 * Python built in, and its other frames stay. */
static void find_evaluator(void)
{
    const void *function = tfi_python_evaluator();
    python = (struct tfi_native_object){0};
    if (!function || !tfi_native_find((uintptr_t)function, &evaluator)) {
        evaluator = (struct tfi_native_name){0};
        return;
    }
    const char *base = strrchr(evaluator.object->path, '/');
    if (strstr(base ? base : evaluator.object->path, "python")) python = *evaluator.object;
}

static uint32_t describe(const struct chain *c)
{
    struct tfi_text list = {list_room, sizeof list_room, 0, 0}, frame = {frame_room, sizeof frame_room, 0, 0};
    uint32_t next = 0;
    if (c->nr_python) find_evaluator();
    for (uint32_t i = 0; i < c->nr_native; i++) {
        uintptr_t at = (uintptr_t)c->native[i] - 1; /* inside the call instruction, not behind it */
        if (is_in(at, own_start, own_end)) continue;
        if (c->nr_python && is_in(at, evaluator.start, evaluator.end)) next = add_python(&list, &frame, c, next);
        else if (!c->nr_python || !is_in(at, python.start, python.end)) add_native(&list, &frame, at);
    }
    while (next < c->nr_python) next = add_python(&list, &frame, c, next);
    return list.used ? tfi_string(list.data, list.used) : 0;
}

/* ---- the table ---- */

static struct known *place_of(uint64_t hash)
{
    uint32_t i = (uint32_t)(hash >> 20) & (MAX_CHAINS - 1);
    for (;; i = (i + 1) & (MAX_CHAINS - 1)) {
        uint64_t found = __atomic_load_n(&chains[i].hash, __ATOMIC_ACQUIRE);
        if (found == hash || !found) return &chains[i];
    }
}

static TFI_COLD uint32_t add_chain(const struct chain *c, uint64_t hash)
{
    int error = errno, cancel = tfi_cancel_off();
    uint32_t string = TFI_STRING_LOST;
    bool locked = tfi_lock(&lock);
    struct known *place = place_of(hash);
    if (!locked || place->hash) {
        if (place->hash) string = place->string;
    } else if (nr_chains < MAX_CHAINS / 4 * 3) {
        nr_chains++;
        string = place->string = describe(c);
        __atomic_store_n(&place->hash, hash, __ATOMIC_RELEASE);
    } else {
        tfi_count_drop(TFI_DROP_STRINGS, 1);
    }
    if (locked) tfi_unlock(&lock);
    tfi_cancel_on(cancel);
    errno = error;
    return string;
}

/* Its frame is large: it is not to be part of take_stack(), which first finds out whether there is room. */
static __attribute__((noinline)) uint32_t take_and_keep(void)
{
    struct chain c;
    uint64_t hash = take_frames(&c);
    if (!hash) return 0;
    const struct known *place = place_of(hash);
    return TFI_LIKELY(place->hash != 0) ? place->string : add_chain(&c, hash);
}

static uint32_t take_stack(struct tfi_thread *t)
{
    int error = errno;
    if (TFI_UNLIKELY(!__atomic_load_n(&chains, __ATOMIC_ACQUIRE))) return 0;
    if (TFI_UNLIKELY(!tfi_stack_has_room(t, ROOM))) {
        tfi_count_drop(TFI_DROP_NO_STACK, 1);
        return 0;
    }
    uint32_t string = take_and_keep();
    errno = error;
    return string;
}

static const struct tfi_watcher watcher = {.stack = take_stack};

/* The loader's lock is taken, so this is no work for a hook that may run anywhere. */
static void load_unwinder(void)
{
    tfi_objects_wanted();
    if (!unwind) unwind = tfi_unwinder_load();
    tfi_objects_look();
}

static void find_unwinder(bool wanted)
{
    if (__atomic_exchange_n(&unwinding, 0, __ATOMIC_SEQ_CST)) {
        unwind = NULL;
        tfi_log(TFI_LOG_INFO,
                "call stacks of this process have no native frames: the process was forked while a stack was taken");
        return;
    }
    if (!unwind && wanted)
        tfi_log(TFI_LOG_WARN,
                "call stacks have no native frames: libunwind.so.8 was not found; install the package libunwind8");
}

/* Prepares the table and the unwinder. Other threads take stacks as soon as the table is visible. */
static void prepare(bool wanted)
{
    struct tfi_native_name own;
    nr_chains = 0;
    tfi_native_restart();
    if (tfi_native_find((uintptr_t)tfi_callstack_restart, &own)) {
        own_start = own.object->start;
        own_end = own.object->end;
    }
    find_unwinder(wanted);
    struct known *table =
        tfi_map(MAX_CHAINS * sizeof *table); /* a parent's table stays mapped: its pages are shared until written */
    __atomic_store_n(&chains, table, __ATOMIC_RELEASE);
    tfi_watch(&watcher);
}

void tfi_callstack_begin(void)
{
    if (__atomic_load_n(&chains, __ATOMIC_ACQUIRE) || !tfi_lock_within(&beginning, 10)) return;
    if (!chains) {
        load_unwinder();
        prepare(false);
    }
    tfi_unlock(&beginning);
}

void tfi_callstack_constructor(void)
{
    if (tfi_config_may_have(TFI_ACTIVITY_STACK)) load_unwinder();
}

void tfi_callstack_restart(void)
{
    lock = beginning = (struct tfi_lock){0};
    if (tfi_config_may_have(TFI_ACTIVITY_STACK) || chains) prepare(tfi_config.activities & TFI_ACTIVITY_STACK);
}
