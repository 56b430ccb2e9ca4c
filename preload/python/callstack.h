/* callstack.h - the calling thread's stack: frames of Python and of native code, as one string of the trace. */
#ifndef TFI_CALLSTACK_H
#define TFI_CALLSTACK_H

/* Called when `stack` becomes active unforeseen: prepares stacks like tfi_callstack_restart(), if that has not
 * been done. */
void tfi_callstack_begin(void);

/* Called in the constructor: loads the unwinder of native frames if `stack` is or may become active. */
void tfi_callstack_constructor(void);

/* Called at wake: finds the unwinder of native frames if `stack` is or may become active, and forgets what a
 * parent process has found. */
void tfi_callstack_restart(void);

#endif
