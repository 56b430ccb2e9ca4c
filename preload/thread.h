/* thread.h - a thread's state and its way into its chunk; everything on the hot path is inline here.
 *
 * A thread owns its state alone. Two fields are read by others: `guard` (by the thread that ends the trace, which
 * waits for those still inside) and what lies in the shared mapping (chunk, slot), which is written with release order.
 */
#ifndef TFI_THREAD_H
#define TFI_THREAD_H

#include <string.h>

#include "tfi.h"

/* A range of this thread that is open; see stage.c. */
struct tfi_open {
    uint64_t start;
    uint64_t since; /* the same, or when it was resumed last */
    uint64_t ran;   /* ticks before that, less its pauses */
    uint64_t id;
    uint32_t name;
    uint32_t domain;
    uint32_t flags;
    uint32_t depth;    /* nested ranges of its domain below it */
    uint8_t selected;  /* its name matches ENABLE_PROFILER_NAMES */
    uint8_t outermost; /* not open already in this thread under the same name: its time counts */
    uint8_t first;     /* it was the outermost one when it was opened: the time from end to end counts */
    uint8_t paused;
    uint8_t reserved[4];
};

#define TFI_RECENT 64

struct tfi_thread {
    uint32_t gen; /* valid while equal to tfi_process->gen */
    uint32_t guard;
    int cancel; /* cancelability to restore in tfi_leave() */
    uint32_t serial;
    uint8_t *next; /* where the next row goes */
    uint8_t *limit;
    struct tfi_chunk *chunk;
    struct tfi_slot *slot; /* one of the mapping, or a private one if there was none left */
    uint32_t tid;
    uint32_t calls;    /* calls it is in */
    uint32_t stages;   /* stages among the open ranges: atomic, others end started ones */
    uint32_t selected; /* selected ones among them: atomic too */
    uint32_t ended;    /* started ranges others have ended that still lie in the stack: atomic */
    uint32_t nr_open;
    uint32_t max_open;
    uint32_t runtime; /* depth of the recorded call of the CUDA runtime it is in, 0 if none; see cuda_calls.c */
    struct tfi_open *open;
    uint16_t recent[TFI_RECENT]; /* calls of its chunk: where their rows begin, in eights; 0: none. See hooks.h */
    uint64_t ranges;             /* ranges opened so far; its low part of their ids */
    struct tfi_thread *all;      /* every state of this process */
    struct tfi_thread *free;
    struct tfi_torch_thread *torch; /* what torch.c keeps for it; outlives the state's owner */
    struct tfi_slot own_slot;
};

extern __thread struct tfi_thread *tfi_self __attribute__((tls_model("initial-exec")));

/* Not 0 while this thread runs the recorder's slow paths, or is the recorder's own: nothing it does is recorded. */
extern __thread uint32_t tfi_inside __attribute__((tls_model("initial-exec")));

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
