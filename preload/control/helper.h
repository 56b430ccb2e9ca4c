/* helper.h - recognises processes of a job that do none of its work. */
#ifndef TFI_HELPER_H
#define TFI_HELPER_H

#include <stdbool.h>

/* True if this process is one of helper.def, by the command line it was started with; `is_child`: a fork made it. Reads /proc/self/cmdline at each
 * call, so only for rare moments such as the wake. False if /proc can't be read. */
bool tfi_is_helper(bool is_child);

/* True unless this process is a worker: multiprocessing started it, or its parent is a Python with this library that is
 * no helper. Such a parent does the job's work itself. */
bool tfi_is_first(void);

#endif
