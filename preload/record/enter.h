/* enter.h - enters and leaves the recorder. */
#ifndef TFI_ENTER_H
#define TFI_ENTER_H

#include "record/thread.h"

/* The reason to enter; it decides whether a sleeping process wakes. */
enum tfi_why {
    TFI_WHY_STAGE, /* a stage or mark of the program's own: always wakes */
    TFI_WHY_CALL,  /* a call of interest: wakes if ENABLE_PROFILER_NAMES is unset */
    TFI_WHY_NONE,  /* an event that is recorded only if the process is awake: never wakes */
};

/* Enters the recorder: returns the calling thread's state with its guard set, or NULL if nothing is to be recorded
 * (asleep, off, or this thread is already inside). After a non-NULL result tfi_leave() must follow, in the same
 * function. Keeps errno. */
#define tfi_enter(why) tfi_enter_from(why, TFI_FRAME)
struct tfi_thread *tfi_enter_from(enum tfi_why why, tfi_frame frame);
void tfi_leave(struct tfi_thread *thread);

/* Wakes the process from a thread of the library. */
void tfi_enter_awake(void);

/* Runs our constructor if it has not run yet, for a hook that other libraries' constructors may call earlier. Keeps
 * errno. */
void tfi_prepare(void);

/* ---- constructor.c and tfinject.c: the only calls upward from this layer ---- */

/* The constructor; calls after the first do nothing. */
void tfi_construct(void);

/* Runs the constructor if it has not run yet, and opens the trace of a sleeping process if `why` may wake it. True if
 * the process is awake. The caller has signals and cancellation off and has incremented tfi_inside. */
bool tfi_wake(enum tfi_why why);

#endif
