/* tfi.h - what every file of the library needs: attributes, the process's state, the way in and out of the recorder.
 *
 * Rules for all code below this header, because it runs inside somebody else's process:
 * no exit, abort or assert; no stdio and no malloc; errno is unchanged on return; every lock is a tfi_lock (which a
 * forked child can reset and which can be waited for with a limit); every error has a path on which the program runs on.
 */
#ifndef TFI_H
#define TFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tfi_trace.h"

#define TFI_EXPORT __attribute__((visibility("default")))
#define TFI_LIKELY(x) __builtin_expect(!!(x), 1)
#define TFI_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define TFI_COLD __attribute__((cold, noinline))
#define TFI_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* States of this process. A forked child finds NEW again: the page is wiped on fork. */
enum tfi_state {
    TFI_NEW = 0,    /* asleep: no file, no thread, nothing mapped */
    TFI_WAKING = 1, /* one thread is opening the trace; the others wait for it */
    TFI_AWAKE = 2,
    TFI_OFF = 3,   /* could not be opened, or a helper (helper.def): calls are only forwarded */
    TFI_ENDED = 4, /* closed by exit, or by an exec that may still fail */
};

struct tfi_process {
    uint32_t state;  /* enum tfi_state, changed with compare-and-swap */
    uint32_t gen;    /* 0 unless awake; a thread's state counts only while its own gen equals this one */
    uint32_t worked; /* 1 once tfi_note_work() was called */
    uint32_t holder; /* how locks name this process, 0 until one is taken; see sys.c */
};

/* Its own page; set once in the constructor. */
extern struct tfi_process *tfi_process;

/* Remembers that a process worked while a list of stage names kept it asleep: at its end that is worth a message. */
static inline void tfi_note_work(void)
{
    if (TFI_UNLIKELY(!__atomic_load_n(&tfi_process->worked, __ATOMIC_RELAXED)))
        __atomic_store_n(&tfi_process->worked, 1, __ATOMIC_RELAXED);
}

/* What may wake a sleeping process. */
enum tfi_why {
    TFI_WHY_STAGE, /* a stage or mark of the program's own: always */
    TFI_WHY_CALL,  /* a call of interest: with ENABLE_PROFILER_NAMES unset */
    TFI_WHY_NONE,  /* something that is recorded only if the process is awake */
};

struct tfi_thread;

/* The frame of a function of ours, and where it returns to: what lies above the frame as long as it is not left. A pair,
 * so that one store writes both: see tfi_guard_set(). */
typedef uintptr_t tfi_frame __attribute__((vector_size(16)));
#define TFI_FRAME ((tfi_frame){(uintptr_t)__builtin_frame_address(0), (uintptr_t)__builtin_return_address(0)})

/* Enters the recorder: returns the calling thread's state with its guard set, or NULL if nothing is to be recorded
 * (asleep, off, or this thread is already inside). After a non-NULL result tfi_leave() must follow, in the same
 * function. Keeps errno. */
#define tfi_enter(why) tfi_enter_from(why, TFI_FRAME)
struct tfi_thread *tfi_enter_from(enum tfi_why why, tfi_frame frame);
void tfi_leave(struct tfi_thread *thread);

/* Counts what was lost or is worth telling; `drop` is enum tfi_drop. Any thread, any time. */
void tfi_count_drop(int drop, uint64_t count);

/* The process that opened the trace. A child that shares its memory (vfork, clone with CLONE_VM) has another number. */
int tfi_trace_pid(void);

/* The recorder's own cost: ticks spent off the hot path, and nanoseconds a record on it (measured at wake). */
void tfi_cost_add(uint64_t ticks);
uint64_t tfi_cost_ticks(void);
double tfi_cost_record_ns(void);

/* From here on a forked child finds the page empty. Before anything is written to it that a child must not have. */
void tfi_process_keep(void);

/* For a hook that other libraries' constructors may call before ours has run: what that would have done. */
void tfi_prepare(void);

/* Ends this process's trace: "exit", "_exit" or "exec". Does nothing in a vfork child or when there is no trace. */
void tfi_finish(const char *reason);

/* After an exec that failed: the next event opens a new trace. */
void tfi_resume(void);

#endif
