/* targets.h - the stage between a source of an export and its sinks: chooses events, and fans them out.
 *
 * An output takes all events in the window, or those of its stages: each event that belongs to one of them, or to a stage
 * inside one that is still open. Descriptions of rows (M) go to every output.
 */
#ifndef TFA_TARGETS_H
#define TFA_TARGETS_H

#include "ask/attribute.h"
#include "ask/dump_choice.h"
#include "write/event.h"

/* One output. */
struct target {
    struct event_taker taker;
    bool whole;      /* it takes all events in the window */
    uint64_t events; /* that it got, without descriptions of rows */
    uint64_t seen;   /* number of the event that it got last */
};

struct targets {
    struct target *target;
    size_t count;               /* at most 64 */
    const uint32_t *of_name;    /* by name: the target of stages of that name, or NO_PLACE */
    int64_t from, to;           /* of the window */
    struct dump_choice *filter; /* which the source asks about its events; NULL: all are chosen */
    /* Set by targets_begin. */
    const struct process *process;
    const struct attribution *attribution;
    bool by_stage;             /* some target is not whole */
    uint64_t *of_stage;        /* by range: bits of the targets of it and of all stages around it */
    int64_t *all_until;        /* by range: earliest end of the stages around it */
    struct stage_paths *paths; /* by target: links over the target's stages, made when first needed */
    uint64_t number;           /* of the current event */
};

/* `attribution` is needed if a target is not whole. */
void targets_begin(struct targets *targets, const struct process *process, const struct attribution *attribution);
/* Gives a chosen event, whose time is the model's, to its outputs. `at`: the stage that it belongs to; NULL: unknown.
 * `is_kept`: the loader does not count it as lost. */
void targets_event(struct targets *targets, const struct event *event, bool is_kept, const struct belonging *at);
void targets_member(struct targets *targets, struct slice key, struct slice value);
void targets_end(struct targets *targets);

#endif
