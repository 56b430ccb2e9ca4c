/* silence.h - watches for threads that make no records, and writes down where their Python code stands. */
#ifndef TFI_SILENCE_H
#define TFI_SILENCE_H

#include "record/background.h"

/* Called once the interpreter runs, where no lock of the loader is held. */
void tfi_silence_started(void);

/* Called when the process has woken. */
void tfi_silence_awake(void);

/* Job of the background thread: looks at all threads about once a second. */
extern const struct tfi_job tfi_silence_job;

/* Called by a thread that calls abort(): reads the frames of all Python threads and writes a record of each that has any,
 * and one of the calling thread in any case. The heap may be damaged, and the thread may be in a signal handler: it calls
 * nothing but the kernel, and gives up after about a second. Keeps errno. */
void tfi_silence_aborted(void);

/* Called at the end, before the footer: closes the chunk of the records. False if records may be missing. */
bool tfi_silence_finish(void);

/* Forgets the trace of a parent process, or an earlier trace of this one. */
void tfi_silence_restart(void);

#endif
