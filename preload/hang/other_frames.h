/* other_frames.h - reads the Python frames of another thread from outside, while that thread is free to run. */
#ifndef TFI_OTHER_FRAMES_H
#define TFI_OTHER_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "tfi_trace.h"

/* All functions are called by one thread at a time. They take no lock, send no signal, and never touch the interpreter:
 * memory is only read through the kernel, which refuses a stale address instead of faulting. */

/* A thread as the interpreter knows it. */
struct tfi_other_thread {
    uint64_t id;    /* pthread_self() */
    uint64_t state; /* address of its thread state */
    uint32_t tid;   /* the kernel's id of it, 0 if the interpreter does not have it */
};

struct tfi_other_frames {
    enum tfi_reading reading;
    bool cut; /* the outermost frames are missing */
    uint32_t count;
    struct {
        const char *text; /* "function\tfile\tline" */
        uint32_t length;
    } frame[TFI_STACK_FRAMES]; /* the innermost first */
};

/* Looks the interpreter up, which may wait for the loader's lock. False if its frames cannot be read. */
bool tfi_other_prepare(void);

/* Lists the interpreter's threads for tfi_other_frames(), after tfi_other_prepare(). False if that is impossible; `why` says why. */
bool tfi_other_threads(enum tfi_reading *why);

/* The threads found by tfi_other_threads(). */
uint32_t tfi_other_thread_count(void);
const struct tfi_other_thread *tfi_other_thread(uint32_t index);

/* Reads the frames of the thread with this pthread_self() and kernel id; 0 if the latter is unknown. The result is valid
 * until the next call. A thread may ask for its own frames. Takes up to some ten milliseconds if the thread runs, else less than one. */
const struct tfi_other_frames *tfi_other_frames(uint64_t id, uint32_t tid);

#endif
