/* trace.h - gives the trace its place: the run directory of this process, and its name there. */
#ifndef TFI_CONTROL_TRACE_H
#define TFI_CONTROL_TRACE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/files.h"

/* The trace's directory, and its name without .tfr, "" before one was created. Both are written at wake only. */
extern struct tfi_dir tfi_trace_dir;
extern char tfi_trace_name[TFI_NAME_BYTES];

/* Makes the run directory if there is none, and creates the trace's file; false with errno set. */
bool tfi_trace_create(void);

#endif
