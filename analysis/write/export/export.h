/* export.h - exports a process, whatever its trace is, to a sink of events or into a Chrome trace of its own. */
#ifndef TFA_EXPORT_H
#define TFA_EXPORT_H

#include "write/export/targets.h"

/* Gives the events of a file of another program to its outputs. Returns false, after a message, if the file can't be read
 * again. `attribution` is needed if a target is not whole. */
bool export_targets(struct targets *targets, const struct selection *chosen, const struct process *process,
                    const struct attribution *attribution);
/* Gives the events that are chosen to `taker`, and adds their number to *events. Returns false like export_targets. */
bool export_events(const struct selection *chosen, const struct process *process, const char *artefact,
                   const struct event_taker *taker, uint64_t *events);
/* Writes them into a Chrome trace; only a dftracer trace has none of its own. Returns their number. */
uint64_t export_file(const struct selection *chosen, const struct process *process, struct out *out,
                     const char *artefact);

#endif
