/* watch.h - registers watchers of stages: callbacks of library folders, so that stage.c names none of them.
 *
 * A watcher registers in the constructor, or when it first has something to do. It stays for the life of the process
 * and of its forked children. Watchers are called in the order in which they registered, with the guard of the calling
 * thread set. A started range changes its owner under the lock of stage.c. So `put`, `taken`, `counted` and
 * `ended_elsewhere` must not call functions of stage.h that take that lock.
 */
#ifndef TFI_WATCH_H
#define TFI_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tfi.h"
#include "control/config.h"
#include "control/schedule.h"

struct tfi_open;
struct tfi_thread;
struct tfi_timing;

/* Device time by stage, at the end of the process. */
struct tfi_device_time {
    bool known;        /* a watcher has summed it */
    uint64_t left_out; /* device records missing from the sums for lack of room */
};

/* Callbacks of a watcher; NULL for an event it does not need. */
struct tfi_watcher {
    /* The process wakes: forget the state of a parent process, or of an earlier trace. */
    void (*restart)(void);
    /* A stage is about to begin or end; its time is taken after this. */
    void (*edge)(void);
    /* The calling thread has put a stage on its stack. */
    void (*put)(struct tfi_thread *thread);
    /* The calling thread has taken a stage off its stack, from its top or from below. */
    void (*taken)(struct tfi_thread *thread, const struct tfi_open *open, bool top);
    /* The thread ends: all its stages are off its stack. */
    void (*emptied)(struct tfi_thread *thread);
    /* Another thread has ended or paused a stage of `owner`, which still lies on the owner's stack. */
    void (*ended_elsewhere)(const struct tfi_thread *owner, const struct tfi_open *open);
    /* A thread has one stage more (step 1) or less (-1); another thread may have caused it. `turned`: its first stage
     * came, or its last went. */
    void (*counted)(struct tfi_thread *thread, const struct tfi_open *open, int step, bool turned);
    /* A stage was opened and its record written. */
    void (*opened)(struct tfi_thread *thread, const struct tfi_open *open);
    /* A stage ends `now`, in ticks; all watchers still know it. */
    void (*ending)(struct tfi_thread *thread, const struct tfi_open *open, uint64_t now);
    /* The same stage has ended: its record is written. `timing` has its sums, NULL if there was no room for them. */
    void (*ended)(struct tfi_thread *thread, const struct tfi_open *open, uint64_t now, struct tfi_timing *timing);
    /* A stage is gone without an end, because its thread has ended. */
    void (*forgotten)(const struct tfi_open *open);
    /* Takes the call stack of the calling thread; returns its string's number in the trace, 0 if none can be taken. */
    uint32_t (*stack)(struct tfi_thread *thread);
    /* The process ends: add the device time of the stages to their sums (tfi_timing_of). */
    void (*finish)(struct tfi_device_time *time);
};

#define TFI_WATCHERS 8

/* For each event the list of watchers that need it, so that an event without watchers costs one load. The lists are
 * read without a lock: a place is filled once, and a free place ends the list. */
struct tfi_watchers {
    const struct tfi_watcher *restart, *edge, *put, *taken, *emptied, *ended_elsewhere, *counted, *opened, *ending,
        *ended, *forgotten, *stack, *finish;
};
extern struct tfi_watchers tfi_watchers[TFI_WATCHERS + 1];

/* Adds a watcher if it is not there yet. Any thread, without a lock. */
void tfi_watch(const struct tfi_watcher *watcher);

uint32_t tfi_watch_stack(struct tfi_thread *thread);

/* Takes the calling thread's call stack and returns the number of its STACK string (see tfi_trace.h). Returns 0 if
 * `stack` is not recorded now or no stack could be taken, TFI_STRING_LOST if a table is full. The caller has set the
 * thread's guard. */
static inline uint32_t tfi_callstack(struct tfi_thread *thread)
{
    return TFI_LIKELY(!tfi_recording(TFI_ACTIVITY_STACK)) ? 0 : tfi_watch_stack(thread);
}

#endif
