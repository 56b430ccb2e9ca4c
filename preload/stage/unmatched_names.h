/* unmatched_names.h - reports names of ENABLE_PROFILER_NAMES and TFI_STAGES that matched nothing in this process. */
#ifndef TFI_UNMATCHED_NAMES_H
#define TFI_UNMATCHED_NAMES_H

#include <stdbool.h>

struct tfi_dir;

/* Notes the shim's result for an entry of TFI_STAGES. `nearest` is NULL if the function was found; otherwise it is the
 * nearest name in its module or script, "" if nothing is near. With an empty entry the shim says that it begins to
 * look. */
void tfi_unmatched_note(const char *entry, const char *nearest);

/* True if names were given that a process which never woke may have to report. */
bool tfi_unmatched_wanted(void);
/* Reports which names matched nothing, at the end of the process, before the stages are forgotten. `directory` is the
 * run directory, NULL if the process never woke. `python` is true if this process runs an interpreter. */
void tfi_unmatched_report(struct tfi_dir *directory, bool python);

#endif
