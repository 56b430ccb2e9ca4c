/* load_kineto.h - fills the model from what torch writes: Kineto traces, dumps of its flight recorder, memory rows and
 * memory snapshots. */
#ifndef TFA_LOAD_KINETO_H
#define TFA_LOAD_KINETO_H

#include "model/kineto/kineto_class.h"
#include "model/model.h"
#include "read/kineto.h"

/* Returns the table of an event. If everything is wanted, the n-th event of a table in the file has index n in the
 * model. */
enum kineto_table { TABLE_NONE, TABLE_RANGES, TABLE_SPANS, TABLE_WORKS, TABLE_FORWARDS };
enum kineto_table kineto_table(const struct kineto_event *event, enum event_class event_class);

/* False for an event that the loader leaves out and counts as lost. */
bool kineto_is_kept(const struct kineto_event *event);

/* Both return false if the trace is unusable; a note gives the reason. `process` is initialised, and the caller
 * frees it in both cases. If the file holds several processes, *parts is set, and `process` has the events of all. */
bool load_kineto(const char *path, const struct stream_way *way, struct names *names, struct needs needs,
                 struct process *process, struct notes *notes, atomic_ullong *done, struct kineto_parts **parts);
/* Loads all processes of such a file, each into one of `process`, in one reading. */
void load_kineto_parts(const char *path, const struct kineto_parts *parts, struct names *names, struct needs needs,
                       struct process *process, struct notes *notes, atomic_ullong *done);
bool load_kineto_bytes(const struct kineto_bytes *bytes, struct names *names, struct needs needs,
                       struct process *process, struct notes *notes);

/* Fill the model from a dump of the flight recorder, as load_kineto does from a trace. The name of the file ends in the
 * rank. */
bool load_flight(const char *path, const struct stream_way *way, struct names *names, struct needs needs,
                 struct process *process, struct notes *notes, atomic_ullong *done);
bool load_flight_bytes(const char *bytes, size_t length, const char *path, struct names *names, struct process *process,
                       struct notes *notes);
/* The same from the raw rows of torch's memory timeline. */
bool load_memory_rows(const char *path, const struct stream_way *way, struct names *names, struct needs needs,
                      struct process *process, struct notes *notes, atomic_ullong *done);
/* The same from a memory snapshot. */
bool load_snapshot(const char *path, const struct stream_way *way, struct names *names, struct needs needs,
                   struct process *process, struct notes *notes, atomic_ullong *done);

#endif
