/* filters.h - what the options choose by themselves: processes, names of stages, the window of time. */
#ifndef TFA_FILTERS_H
#define TFA_FILTERS_H

#include "base/opts.h"

struct process;
struct selection;

/* True if --rank and --pid choose the process. */
bool wants_process(const struct options *options, const struct process *process);
/* True if --stage matches the name, or is not given. */
bool wants_stage(const struct options *options, const char *name);
/* Sets the window of --from and --to, in the model's nanoseconds. Default: INT64_MIN to INT64_MAX. */
void selection_window(const struct selection *selection, int64_t *from, int64_t *to);
/* True if an option filters by stage, step, cycle, device, stream or time. The filter then explains an empty answer. */
bool is_filtered(const struct options *options);
/* True without --from and --to, which count from the first record of all inputs. A summary of a process that does not
 * depend on other processes otherwise then stands alone. */
bool without_window(const struct options *options);

#endif
