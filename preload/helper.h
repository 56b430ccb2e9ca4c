/* helper.h - recognises processes of a job that do none of its work. */
#ifndef TFI_HELPER_H
#define TFI_HELPER_H

#include <stdbool.h>

/* True if this process is one of helper.def, by the command line it was started with. Reads /proc/self/cmdline at each
 * call: for the moment a process would wake. False where /proc can't be read. */
bool tfi_is_helper(void);

/* True unless multiprocessing started this process, or its parent is a Python with this library that is no helper: such a
 * parent does the job's work itself, and this process is one of its workers. */
bool tfi_is_first(void);

#endif
