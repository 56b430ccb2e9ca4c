/* load_dftracer.h - fills the model from a dftracer trace: application-level events become stages, POSIX and STDIO calls
 * become calls on files. */
#ifndef TFA_LOAD_DFTRACER_H
#define TFA_LOAD_DFTRACER_H

#include "model/model.h"
#include "read/dftracer.h"

/* Classes of events, by what becomes of them in the model. */
enum dftracer_class {
    DFTRACER_META, /* description of the process, of hosts and files */
    DFTRACER_SELF, /* start and end of the recording */
    DFTRACER_IO,   /* one call, or several calls, of POSIX or STDIO */
    DFTRACER_STAGE,
    DFTRACER_OTHER, /* counters, functions, MPI, devices: counted only */
};
enum dftracer_class dftracer_class(const struct dftracer_event *event);

/* Both return false if the trace is unusable; a note gives the reason. `process` is initialised, and the caller
 * frees it in both cases. */
bool load_dftracer(const char *path, const struct stream_way *way, struct names *names, struct needs needs,
                   struct process *process, struct notes *notes, atomic_ullong *done);
bool load_dftracer_bytes(const void *bytes, size_t length, size_t piece, size_t longest, struct names *names,
                         struct needs needs, struct process *process, struct notes *notes);

#endif
