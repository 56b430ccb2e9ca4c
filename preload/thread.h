/* thread.h - a thread's state and its way into its chunk; everything on the hot path is inline here.
 *
 * A thread owns its state alone. Two fields are read by others: `guard` (by the thread that ends the trace, which
 * waits for those still inside) and what lies in the shared mapping (chunk, slot), which is written with release order.
 */
#ifndef TFI_THREAD_H
#define TFI_THREAD_H

#include <string.h>

#include "frame.h"
#include "tfi.h"

/* A range of this thread that is open; see stage.c. */
struct tfi_open {
    uint64_t start;
    uint64_t since; /* the same, or when it was resumed last */
    uint64_t ran;   /* ticks before that, less its pauses */
    uint64_t id;    /* 0: a hole; see open_stack.c */
    uint64_t order; /* when it came onto the stack: the more, the further in */
    uint64_t below; /* the order of the next nested range of its domain that it lies in; 0: there is none */
    uint32_t name;
    uint32_t domain;
    uint32_t flags;
    uint32_t depth;    /* nested ranges of its domain below it */
    uint8_t selected;  /* its name matches ENABLE_PROFILER_NAMES */
    uint8_t outermost; /* not open already in this thread under the same name: its time counts */
    uint8_t first;     /* it was the outermost one when it was opened: the time from end to end counts */
    uint8_t paused;
    uint32_t node; /* of those below it; see cupti_sums.c */
};

/* How many of a thread's open stages have a name. */
struct tfi_open_name {
    uint32_t name; /* 0: free */
    uint32_t count;
};

/* The innermost nested range of a domain. */
struct tfi_open_domain {
    uint32_t domain;
    bool used;
    uint64_t innermost; /* its order, 0 if none is open */
};

#define TFI_OPEN_DOMAINS 32
#define TFI_RECENT 64
#define TFI_CALL_FRAMES 8

struct tfi_thread {
    tfi_frame guard; /* not 0 while the thread is in the recorder; see tfi_guard_set() */
    uint32_t gen;    /* valid while equal to tfi_process->gen */
    int cancel;      /* cancelability to restore in tfi_leave(), -1 outside */
    uint32_t serial;
    uint8_t *next; /* where the next row goes */
    uint8_t *limit;
    struct tfi_chunk *chunk;
    struct tfi_slot *slot; /* one of the mapping, or a private one if there was none left */
    uint32_t tid;
    union { /* atomic, others end started ranges; both halves change at once, an atomic step costs as much as a record */
        uint64_t both;
        struct {
            uint32_t stages;   /* stages among the open ranges */
            uint32_t selected; /* selected ones among them */
        };
    };
    uint32_t calls; /* calls it is in */
    uint32_t ended; /* started ranges others have ended that still lie in the stack: atomic */
    uint32_t nr_open;
    uint32_t max_open;
    uint32_t nr_holes; /* among the open ranges */
    uint32_t runtime;  /* depth of the recorded call of the CUDA runtime it is in, 0 if none; see cuda_calls.c */
    struct tfi_open *open;
    struct tfi_open_name *names;                      /* 2 * max_open places; see open_names.c */
    uint32_t nr_names;                                /* places in use */
    uint64_t orders;                                  /* ranges that came onto the stack so far */
    struct tfi_open_domain domains[TFI_OPEN_DOMAINS]; /* see open_stack.c */
    uintptr_t frame[TFI_CALL_FRAMES];                 /* of the calls it is in; see tfi_calls_left() */
    uint16_t recent[TFI_RECENT]; /* calls of its chunk: where their rows begin, in eights; 0: none. See hooks.h */
    uint64_t ranges;             /* ranges opened so far; its low part of their ids */
    uint64_t graph_node;         /* the last one it has captured; see graphs.c */
    struct tfi_thread *all;      /* every state of this process */
    struct tfi_thread *free;
    uintptr_t stack_low, stack_high; /* of its own stack: 0 not looked for, 1 not known; see stack_room.c */
    struct tfi_torch_thread *torch;  /* what torch.c keeps for it; outlives the state's owner */
    struct tfi_sums_ring *ring;      /* what cupti_sums.c keeps for it; NULL before its first edge or launch there */
    struct tfi_slot own_slot;
};

extern __thread struct tfi_thread *tfi_self __attribute__((tls_model("initial-exec")));

/* Not 0 while this thread runs the recorder's slow paths, or is the recorder's own: nothing it does is recorded. */
extern __thread uint32_t tfi_inside __attribute__((tls_model("initial-exec")));

/* The guard keeps what the thread's signal handlers do out of a record that it is about to write. It holds the frame of
 * the function that set it, because a handler may jump out of that function (siglongjmp, an exception, pthread_exit),
 * and then nobody takes the guard down. A guard holds as long as its function has not been left, and of that there is
 * proof on any stack: above the frame of a function stands the address it returns to, and nothing changes it while the
 * function is there, whatever other stacks the thread runs on meanwhile (a signal's, a coroutine's). The frame is gone
 * if something else stands there, or nothing is mapped there any more; if it lies where frames of ours are now; or if
 * there is no room for a signal between it and the frame that asks. Being higher on the stack is no proof, for it may be
 * another stack. What has not been overwritten yet is found gone later: until then records are refused, and counted.
 * The two words are written by one store: a signal finds both or none. */
static inline void tfi_guard_put(struct tfi_thread *t, tfi_frame frame)
{
    *(volatile tfi_frame *)&t->guard = frame;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline __attribute__((always_inline)) void tfi_guard_set(struct tfi_thread *t)
{
    tfi_guard_put(t, TFI_FRAME);
}

static inline void tfi_guard_clear(struct tfi_thread *t)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n((uintptr_t *)&t->guard, 0, __ATOMIC_RELEASE);
}

/* The guard's frame as any thread may read it: 0 if it is not set. */
static inline uintptr_t tfi_guard_frame(const struct tfi_thread *t)
{
    return __atomic_load_n((const uintptr_t *)&t->guard, __ATOMIC_ACQUIRE);
}

/* For the thread itself, whose function has that frame: takes a guard down whose function was left. */
bool tfi_guard_holds(struct tfi_thread *t, uintptr_t frame);

/* For other threads: false only if the function that set it was left. */
bool tfi_guard_may_hold(const struct tfi_thread *t);

/* True if the calling thread is in the recorder. */
static inline __attribute__((always_inline)) bool tfi_guarded(struct tfi_thread *t)
{
    return TFI_UNLIKELY(tfi_guard_frame(t) != 0) && tfi_guard_holds(t, (uintptr_t)__builtin_frame_address(0));
}

/* Forgets calls that a signal handler has jumped out of: what is called from a function lies below its frame. Where the
 * caller is on another stack than the call that it is in, that one is forgotten too early, until it returns: it is only
 * shown, and what it calls is recorded beside it. */
static inline __attribute__((always_inline)) void tfi_calls_left(struct tfi_thread *t)
{
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    uint32_t calls = t->calls < TFI_CALL_FRAMES ? t->calls : TFI_CALL_FRAMES;
    while (TFI_UNLIKELY(calls != 0) && t->frame[calls - 1] <= frame) t->calls = --calls;
}

/* Gives room for `size` bytes where the chunk is full (or there is none yet): NULL if the record must be dropped. */
void *tfi_chunk_more(struct tfi_thread *thread, size_t size);

static inline void *tfi_reserve(struct tfi_thread *thread, size_t size, uint16_t kind)
{
    uint8_t *row = thread->next;
    if (TFI_UNLIKELY((size_t)(thread->limit - row) < size)) {
        row = tfi_chunk_more(thread, size);
        if (!row) return NULL;
    }
    struct tfi_rec *rec = (struct tfi_rec *)row;
    rec->kind = kind;
    rec->size = (uint16_t)size;
    return row;
}

#define TFI_RESERVE(thread, kind)                                                                                      \
    ((struct tfi_rec_##kind *)tfi_reserve(thread, sizeof(struct tfi_rec_##kind), TFI_KIND_##kind))

/* Makes the row just filled count, also for a reader that finds the mapping after a SIGKILL. */
static inline void tfi_commit(struct tfi_thread *thread, size_t size)
{
    thread->next += size;
    __atomic_store_n(&thread->chunk->committed, (uint32_t)(thread->next - (uint8_t *)(thread->chunk + 1)),
                     __ATOMIC_RELEASE);
}

/* Makes the calling thread's state; NULL if there is no memory. */
struct tfi_thread *tfi_thread_attach(void);

/* Prepares for threads at wake; forgets those of a parent process. */
void tfi_threads_init(void);

/* First of all states, linked by `all`. */
struct tfi_thread *tfi_threads(void);

#endif
