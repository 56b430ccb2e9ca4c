/* process.h - keeps the state of this process (asleep, awake, ended), its trace's owner and the counts of losses. */
#ifndef TFI_PROCESS_H
#define TFI_PROCESS_H

#include <sys/types.h>

#include "base/tfi.h"

/* States of this process. A forked child finds NEW again: the page is wiped on fork. */
enum tfi_state {
    TFI_NEW = 0,    /* asleep: no file, no thread, nothing mapped */
    TFI_WAKING = 1, /* one thread is opening the trace; the others wait for it */
    TFI_AWAKE = 2,
    TFI_OFF = 3,   /* calls are only forwarded: no trace could be opened, a helper (helper.def), a setuid program */
    TFI_ENDED = 4, /* the trace was closed by exit, or by an exec that may still fail */
};

struct tfi_process {
    uint32_t state;  /* enum tfi_state, changed with compare-and-swap */
    uint32_t gen;    /* 0 unless awake; a thread's state counts only while its own gen equals this one */
    uint32_t worked; /* 1 once tfi_note_work() was called */
    uint32_t holder; /* this process's number in locks, 0 until one is taken; see sys.c */
    uint32_t helped; /* 1 while threads of the library run, or may run, in this process: see record/background.h */
    uint32_t reserved;
};

/* The process's state, on a page of its own; set once in the constructor. */
extern struct tfi_process *tfi_process;

/* Moves the state to `page`, which is mapped, empty and `bytes` long. Called once, in the constructor. */
void tfi_process_move(struct tfi_process *page, size_t bytes);

/* Marks the page to be wiped on fork. Call before writing anything to it that a child must not see. */
void tfi_process_keep(void);

/* Remembers that a process did work while a list of stage names kept it asleep. Its end then reports that. */
static inline void tfi_note_work(void)
{
    if (TFI_UNLIKELY(!__atomic_load_n(&tfi_process->worked, __ATOMIC_RELAXED)))
        __atomic_store_n(&tfi_process->worked, 1, __ATOMIC_RELAXED);
}

/* Pid of the process that opened the trace. A child that shares its memory (vfork, clone with CLONE_VM) has another. */
extern pid_t tfi_trace_pid;

/* Counts losses and other events; `drop` is enum tfi_drop. Any thread, any time. */
void tfi_count_drop(int drop, uint64_t count);

/* The TFI_MAX_DROPS counters in the trace's mapping; NULL while there is no mapping. */
extern uint64_t *tfi_drops;

/* Ends this process's trace; `reason` is "exit", "_exit", "quick_exit", "signal" or "exec". Writes nothing in a vfork
 * child, or when there is no trace. */
void tfi_finish(const char *reason);

/* Called after an exec that failed: the next event opens a new trace. */
void tfi_resume(void);

/* Names the functions behind tfi_finish() and tfi_resume(), which do nothing until the constructor has called this. */
void tfi_process_ends_by(void (*finish)(const char *reason), void (*resume)(void));

#endif
