/* to_chrome.h - gives the events of a dftracer trace to an export, in the form of a Chrome trace. */
#ifndef TFA_TO_CHROME_H
#define TFA_TO_CHROME_H

#include "ask/selection.h"
#include "read/dftracer.h"
#include "write/event.h"

/* Gives the events of the process that match the filters to `taker`, whose `begin` and `end` may be NULL, and adds their
 * number to *events. Returns false, after a message, if the file can't be read again. */
bool export_dftracer_events(const struct selection *chosen, const struct process *process,
                            const struct event_taker *taker, uint64_t *events);

#endif
