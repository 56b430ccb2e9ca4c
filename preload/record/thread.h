/* thread.h - keeps a thread's state and writes into its chunk; everything on the hot path is inline here.
 *
 * Only the thread itself uses its state, with these exceptions. The thread that ends the trace reads `guard` and
 * waits for threads still inside. Readers of the shared mapping see the chunk and the slot, which are written with
 * release order. Fields marked atomic are changed by other threads.
 */
#ifndef TFI_THREAD_H
#define TFI_THREAD_H

#include <pthread.h>
#include <string.h>

#include "base/frame.h"
#include "base/tfi.h"

/* An open range of this thread; see stage.c. */
struct tfi_open {
    uint64_t start;
    uint64_t since; /* its start, or when it was last resumed */
    uint64_t ran;   /* ticks it ran before `since`, without its pauses */
    uint64_t cpu;   /* processor time of its thread at `since`, less what it used before; 0: unknown */
    uint64_t id;    /* 0: a hole; see open_stack.c */
    uint64_t order; /* grows with each range put on the stack: inner ranges have larger ones */
    uint64_t below; /* the order of the next nested range of its domain around it; 0: there is none */
    uint32_t name;
    uint32_t domain;
    uint32_t flags;
    uint32_t depth;    /* nested ranges of its domain below it */
    uint8_t selected;  /* its name matches ENABLE_PROFILER_NAMES */
    uint8_t outermost; /* not open already in this thread under the same name: its time counts */
    uint8_t first;     /* it was the outermost one when it was opened: the time from end to end counts */
    uint8_t paused;
    uint32_t node; /* of the ranges below it; see cupti/stage_sums.c */
};

/* The number of a thread's open stages with one name. */
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

/* A thread's processor time at a moment: see stage/stage_cpu.h. */
struct tfi_cpu_reading {
    uint64_t ticks; /* 0: none yet */
    uint64_t ns;
    uint64_t given; /* the largest time that was derived from it */
};

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
    union { /* atomic: others end started ranges. Both halves change at once: one atomic step costs a record's time */
        uint64_t both;
        struct {
            uint32_t stages;   /* stages among the open ranges */
            uint32_t selected; /* selected ones among them */
        };
    };
    uint32_t calls; /* calls in progress */
    uint32_t ended; /* started ranges still on the stack that other threads have ended: atomic */
    uint32_t nr_open;
    uint32_t max_open;
    uint32_t nr_holes; /* among the open ranges */
    uint32_t runtime;  /* depth of the recorded CUDA runtime call in progress, 0 if none; see cuda/cuda_calls.c */
    struct tfi_open *open;
    struct tfi_open_name *names;                      /* 2 * max_open places; see open_names.c */
    uint32_t nr_names;                                /* places in use */
    uint64_t orders;                                  /* ranges put on the stack so far */
    struct tfi_open_domain domains[TFI_OPEN_DOMAINS]; /* see open_stack.c */
    uintptr_t frame[TFI_CALL_FRAMES];                 /* frames of the calls in progress; see tfi_calls_left() */
    uint16_t recent[TFI_RECENT]; /* offsets of calls in its chunk, in units of 8; 0: none. See hooks/call_record.c */
    uint64_t ranges;             /* ranges opened so far: the low part of their ids */
    uint32_t nccl_groups;        /* groups of NCCL calls it has open */
    struct tfi_cpu_reading cpu;  /* its last one */
    uint64_t graph_node;         /* the last node it has captured; see graphs.c */
    struct tfi_thread *all;      /* links every state of this process */
    struct tfi_thread *free;
    uintptr_t stack_low, stack_high; /* limits of its own stack: 0 not looked up, 1 unknown; see stack_room.c */
    struct tfi_torch_thread *torch;  /* torch.c's data for it; outlives the state's owner */
    struct tfi_sums *sums;           /* io/sums.c's data for it; likewise */
    struct tfi_sums_ring *ring;      /* cupti/stage_sums.c's data for it; NULL before its first edge or launch there */
    struct tfi_slot own_slot;
};

extern __thread struct tfi_thread *tfi_self __attribute__((tls_model("initial-exec")));

/* Not 0 while this thread runs the recorder's slow paths, or is the background thread: nothing it does is recorded. */
extern __thread uint32_t tfi_inside __attribute__((tls_model("initial-exec")));

/* The guard keeps the thread's signal handlers from recording while the thread is about to write a record. It holds the
 * frame of the function that set it, because a handler may jump out of that function (siglongjmp, an exception,
 * pthread_exit) and then nothing clears the guard. A guard is valid until its function is left.
 *
 * That can be proven on any stack. A function's return address lies above its frame, and nothing changes it until the
 * function is left, whatever other stacks the thread runs on meanwhile (a signal's, a coroutine's). The function was
 * left in any of these cases: another value lies there; nothing is mapped there any more; the frame lies where frames
 * of ours are now; there is no room for a signal between that frame and the one that asks. A higher address is no
 * proof, because it may be on another stack. A frame that has not been overwritten yet is detected later: until then
 * records are refused, and counted.
 *
 * One store writes the two words: a signal finds both or none. */
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

/* The guard's frame, 0 if the guard is not set. Any thread. */
static inline uintptr_t tfi_guard_frame(const struct tfi_thread *t)
{
    return __atomic_load_n((const uintptr_t *)&t->guard, __ATOMIC_ACQUIRE);
}

/* True if the thread's guard is valid; clears a guard whose function was left. Called by the thread itself; `frame` is
 * its function's. */
bool tfi_guard_holds(struct tfi_thread *t, uintptr_t frame);

/* False only if the function that set the guard was left, or no guard is set. Called by other threads. */
bool tfi_guard_may_hold(const struct tfi_thread *t);

/* True if the calling thread is in the recorder. */
static inline __attribute__((always_inline)) bool tfi_guarded(struct tfi_thread *t)
{
    return TFI_UNLIKELY(tfi_guard_frame(t) != 0) && tfi_guard_holds(t, (uintptr_t)__builtin_frame_address(0));
}

/* Forgets calls that a signal handler has jumped out of: the frame of a call in progress lies above `frame`. If the
 * caller runs on another stack than the call in progress, that call is forgotten too early, until it returns. This only
 * affects the slot, and calls made inside it are recorded beside it. */
static inline void tfi_calls_left(struct tfi_thread *t, uintptr_t frame)
{
    uint32_t calls = t->calls < TFI_CALL_FRAMES ? t->calls : TFI_CALL_FRAMES;
    while (TFI_UNLIKELY(calls != 0) && t->frame[calls - 1] <= frame) t->calls = --calls;
}

/* Gives room for `size` bytes if the chunk is full or there is none yet; NULL if the record must be dropped. */
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

/* Commits the row just filled, also for a reader that finds the mapping after a SIGKILL. */
static inline void tfi_commit(struct tfi_thread *thread, size_t size)
{
    thread->next += size;
    __atomic_store_n(&thread->chunk->committed, (uint32_t)(thread->next - (uint8_t *)(thread->chunk + 1)),
                     __ATOMIC_RELEASE);
}

/* Writes a whole row of the given columns; the others are 0. Writes nothing if there is no room. */
#define TFI_WRITE(thread, kind, ...)                                                                                   \
    do {                                                                                                               \
        struct tfi_rec_##kind *rec_ = TFI_RESERVE(thread, kind);                                                       \
        if (TFI_UNLIKELY(!rec_)) break;                                                                                \
        *rec_ = (struct tfi_rec_##kind){.rec = rec_->rec, __VA_ARGS__};                                                \
        tfi_commit(thread, sizeof *rec_);                                                                              \
    } while (0)

/* Makes the calling thread's state; NULL if there is no memory. */
struct tfi_thread *tfi_thread_attach(void);

/* Has the ends of threads noticed by a key whose destructor is tfi_thread_ended(). Libc keeps the values of the first keys
 * in the thread's descriptor, and allocates memory for those of others: these are not used. */
void tfi_threads_have_key(pthread_key_t key);
void tfi_thread_ended(void *state);

/* Names the function that is called when a thread ends, to free what a layer above keeps for it. Called at wake. */
void tfi_thread_at_end(void (*forget)(struct tfi_thread *thread));

/* A lane writes records like a thread's, but is no thread of the program: a thread of ours writes them. */

/* Begins the lane anew for the trace of generation `gen`, unless it is that trace's already; true if it did. */
bool tfi_lane_open(struct tfi_thread *lane, uint32_t gen);

/* Gives its records to the writer, if it was opened. */
void tfi_lane_close(struct tfi_thread *lane);

/* ---- states.c ---- */

/* The first state; `all` links every state. */
struct tfi_thread *tfi_threads(void);

/* Takes a state with a new serial, otherwise as its last owner left it; NULL if there is no memory. */
struct tfi_thread *tfi_state_take(void);

/* Frees a state for another thread. */
void tfi_state_give(struct tfi_thread *thread);

/* Forgets all states of a parent process. */
void tfi_states_restart(void);

#endif
