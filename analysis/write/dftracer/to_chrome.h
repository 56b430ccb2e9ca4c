/* to_chrome.h - gives the events of a dftracer trace to an export, in the form of a Chrome trace. */
#ifndef TFA_TO_CHROME_H
#define TFA_TO_CHROME_H

#include "ask/selection.h"
#include "read/dftracer.h"
#include "write/pftrace/pftrace.h"

/* Rewrites events, one after the other. */
struct to_chrome {
    const struct process *process;
    struct names names; /* texts of hashes, as strings in JSON */
    struct map text_of; /* name, by a hash of the hash */
    struct text raw;    /* the current event */
};

void to_chrome_init(struct to_chrome *to, const struct process *process);
/* Returns the event with numbers for strings, letters for phases, times in microseconds, and the texts of the hashes
 * that it names (fname, hostname) beside them. It is valid until the next call. */
struct kineto_event to_chrome_event(struct to_chrome *to, const struct dftracer_event *event);
void to_chrome_free(struct to_chrome *to);

/* Gives the events of the process that match the filters to `taker`, whose `begin` and `end` may be NULL, and adds their
 * number to *events. Returns false, after a message, if the file can't be read again. */
bool export_dftracer_events(const struct selection *chosen, const struct process *process,
                            const struct event_taker *taker, uint64_t *events);

#endif
