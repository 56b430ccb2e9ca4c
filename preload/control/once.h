/* once.h - lets one process of a run say what all of its processes would. */
#ifndef TFI_ONCE_H
#define TFI_ONCE_H

#include <stdbool.h>

/* True for one process of this run, each time it asks; false for all others. `kind` names what is to be said. */
bool tfi_once(const char *kind);

/* Says at the end of a run where its traces are and what reads them, unless `reason` is an exec or another process ends
 * the run. */
void tfi_run_ends(const char *reason);

/* Notes that this run has a trace. */
void tfi_run_has_trace(void);

/* Notes that this process makes others. Without them, one that recorded nothing does not look for traces at its end: its
 * system calls may be restricted. */
void tfi_run_has_child(void);

/* Called in the constructor. */
void tfi_once_constructor(void);

#endif
