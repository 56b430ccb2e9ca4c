/* each.h - hands over the processes of a session one after the other, on one clock.
 *
 * The inputs are read twice: first to learn their ranks, hosts and times, then one after the other for their contents. A
 * PyTorch trace is never in memory, unless a filter needs its operators; a trace of ours is while it is handed over. With
 * several clocks a third reading finds their collectives (ask/ranks/one_clock.h). Messages name doubts about the clocks, and
 * traces that hardly belong together.
 */
#ifndef TFA_EACH_H
#define TFA_EACH_H

#include "ask/ranks/one_clock.h"
#include "commands/session.h"
#include "write/event.h"

struct each {
    struct session *session;
    struct one_clock clock;
    size_t *order; /* places in the selection, by rank, host and pid */
    int64_t start; /* from which --from and --to count */
};

/* Returns what an export of whole processes needs. */
struct needs export_needs(const struct options *options);
/* Reads what the inputs are. Returns false, after a message, if nothing is left to do. */
bool each_load(struct session *session);
/* Opens the output. Returns false, after a message, if that fails; then there is nothing to end. */
bool each_begin(struct each *each, struct session *session);
/* Hands over the process at `place` of the selection: the times of a trace of ours are on the one clock, those of a
 * PyTorch trace are its own. A trace that can't be read again is reported. */
void each_process(const struct each *each, size_t place, session_taker *take, void *argument);

/* A file that takes the events of all processes in the form of a Chrome trace. */
struct each_file {
    const char *artefact;
    struct event_taker taker;
    struct clock_shift *shift; /* set to what moves the events of each process to the one clock */
    const bool *failed;        /* ends the writing */
    uint64_t events;           /* that match, of the processes so far */
};
/* Writes all processes. Returns the number of events that match. */
uint64_t each_write(const struct each *each, struct each_file file);
/* Ends the output, which lacks an answer if no event matched the filters. */
void each_end(struct each *each, uint64_t events);

#endif
