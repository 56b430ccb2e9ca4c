/* unmatched.h - names of ENABLE_PROFILER_NAMES and TFI_STAGES that matched nothing in this process. */
#ifndef TFI_UNMATCHED_H
#define TFI_UNMATCHED_H

struct tfi_dir;

/* From the shim: the function of this entry of TFI_STAGES was found (`nearest` NULL), or its module or script has none,
 * and `nearest` is what it has instead ("" if nothing is near). An empty entry: the shim looks for functions from now on. */
void tfi_unmatched_note(const char *entry, const char *nearest);

/* At the end of the process, before the stages are forgotten: says which names matched nothing. `directory` is that of
 * the run, NULL if the process never woke. */
void tfi_unmatched_report(struct tfi_dir *directory);

#endif
