/* export_kineto.h - writes a Kineto trace, or the parts of it that belong to stages, with the events unchanged but
 * for the rows of overlapping work.
 *
 * The model determines the stage of each event. The file is then read a second time: the n-th event of a table
 * (kineto_table) is the n-th row of the model's table. So the output keeps every value of an event, including those
 * that the model drops, and one pass writes any number of outputs.
 */
#ifndef TFA_EXPORT_KINETO_H
#define TFA_EXPORT_KINETO_H

#include "ask/attribute.h"
#include "ask/selection.h"
#include "write/out.h"
#include "write/event.h"

/* An export needs these. */
extern const struct needs export_kineto_needs;

struct dump_choice;

/* One output. */
struct target {
    struct out out;                  /* open, unless `taker` is set */
    const struct event_taker *taker; /* NULL: a file is written; else this gets the events */
    const char *artefact;
    const struct name *stage; /* NULL: not of a single stage */
    bool whole;               /* takes all events in the window */
    uint64_t events;          /* events written, without descriptions of rows */
    uint64_t written;
    bool in_events;
    uint64_t seen; /* number of the event written last */
};

struct targets {
    struct target *target;
    size_t count;            /* at most 64 */
    const uint32_t *of_name; /* by name: the target of stages of that name, or NO_PLACE */
    int64_t from, to;
    struct dump_choice *filter; /* additional filter of events; NULL: none */
};

/* Returns false, after a message, if the file can't be read again. `attribution` is needed if a target is not whole. */
bool export_kineto(struct targets *targets, const struct selection *chosen, const struct process *process,
                   const struct attribution *attribution);
/* Writes one output: all events, or those of the stages whose value in `of_name` is 0. Returns the number of events. */
uint64_t export_kineto_whole(const struct selection *chosen, const struct process *process, struct out *out,
                             const char *artefact, const uint32_t *of_name);
/* Gives these events to `taker` instead, and adds their number to *events. Returns false, after a message, if the file
 * can't be read again. */
bool export_kineto_events(const struct selection *chosen, const struct process *process,
                          const struct event_taker *taker, uint64_t *events);
/* Writes the member that marks a file as tfanalyze's: {"artefact": ..., "stage": ..., "rank": ..., "writer": ...}. */
void put_writer(struct out *out, const char *artefact, const struct name *stage, int64_t rank);

#endif
