/* load_windows.h - loads the operators and blocks of some times from a trace of ours whose process holds all else. */
#ifndef TFA_LOAD_WINDOWS_H
#define TFA_LOAD_WINDOWS_H

#include "base/sets/intervals.h"
#include "model/model.h"

/* Loads the operators and blocks that were left in the file (model/tables_in_file.h) and lie, at least partly, in `when`: a
 * merged set, in nanoseconds. `by_stage`: also what lies in backward operators whose forward ones begin there, as it
 * belongs to the same stage. They have the same ids as where all are loaded. Records that can't be read again are added to
 * the trace's `unread`; invalid call stacks give a note. */
void load_windows(struct process *process, struct names *names, const struct intervals *when, bool by_stage,
                  struct notes *notes);

#endif
