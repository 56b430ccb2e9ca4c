/* overlay.h - writes a trace with its critical path, in the form of HTA's overlay_critical_path_analysis. */
#ifndef TFA_OVERLAY_H
#define TFA_OVERLAY_H

#include "ask/critical/critical.h"

/* Writes all events of the trace, which is loaded with export_tfr_needs beside those of the path, to `file`. Those on the path have the argument `critical`, and arrows show the path's
 * launches, waits and joins. Returns false, after a message, if nothing could be written: then there is no file. */
bool overlay_write(const char *file, const struct selection *chosen, const struct process *process,
                   const struct critical_path *path);

#endif
