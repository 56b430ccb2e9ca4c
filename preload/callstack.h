/* callstack.h - how the calling thread came here: frames of Python and of native code, as one string of the trace. */
#ifndef TFI_CALLSTACK_H
#define TFI_CALLSTACK_H

#include <stdint.h>

#include "config.h"
#include "schedule.h"
#include "tfi.h"

/* Takes the stack; 0 if none is to be had. With the guard of the calling thread set. */
uint32_t tfi_callstack_take(struct tfi_thread *thread);

/* Where `stack` becomes active and nobody could foresee it: the same, if it has not been done. */
void tfi_callstack_begin(void);

/* In the constructor, where `stack` is or may become active: loads what unwinds native frames. */
void tfi_callstack_constructor(void);

/* At wake, where `stack` is or may become active: finds what unwinds native frames; forgets what a parent process has found. */
void tfi_callstack_restart(void);

/* Number of the calling thread's stack in the trace (a STACK, see tfi_trace.h), 0 unless `stack` is among the activities
 * now. */
static inline uint32_t tfi_callstack(struct tfi_thread *thread)
{
    return TFI_LIKELY(!tfi_recording(TFI_ACTIVITY_STACK)) ? 0 : tfi_callstack_take(thread);
}

#endif
