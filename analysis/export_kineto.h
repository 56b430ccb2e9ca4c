/* export_kineto.h - writes a Kineto trace, or those parts of it that belong to stages, event by event as they stand in it.
 *
 * The model says what belongs where; the file is then read a second time, and the n-th event of a table (kineto_table) is
 * the n-th place of the model's. So nothing of an event is lost that the model does not keep, and any number of outputs
 * is written in one pass.
 */
#ifndef TFA_EXPORT_KINETO_H
#define TFA_EXPORT_KINETO_H

#include "attribute.h"
#include "session.h"

/* What the model has to hold. */
#define WANT_FOR_EXPORT (WANT_RANGES | WANT_DEVICE | WANT_LAUNCHES | WANT_OPERATORS)

struct dump_choice;

/* One output. */
struct target {
    struct out out; /* open */
    const char *artefact;
    const struct name *stage; /* NULL: not of one */
    bool whole;               /* takes everything in the window */
    uint64_t events;          /* written, the trace's own descriptions of rows apart */
    uint64_t written;
    bool in_events;
    uint64_t seen; /* the event it has already */
};

struct targets {
    struct target *target;
    size_t count;            /* at most 64 */
    const uint32_t *of_name; /* by name: the target of the stages that are called so, or NO_PLACE */
    int64_t from, to;
    struct dump_choice *chosen; /* what else has to choose an event; NULL: nothing */
};

/* False: the file can't be read again, which is said. `attribution` is needed where a target is not whole. */
bool export_kineto(struct targets *targets, const struct session *session, const struct process *process,
                   const struct attribution *attribution);
/* Into one output: everything, or the stages whose number in `of_name` is 0. Returns how many events that are. */
uint64_t export_kineto_whole(const struct session *session, const struct process *process, struct out *out,
                             const char *artefact, const uint32_t *of_name);
/* The place that one event of a file belongs to; the events come one after the other. */
struct kineto_place {
    struct belonging at;
    uint32_t span, work; /* places in the model, or NO_PLACE */
};
struct kineto_event;
struct kineto_places *kineto_places_open(const struct session *session, const struct process *process,
                                         const struct attribution *attribution);
/* Gives the place of the next event; false: the event describes a row, or has no time. */
bool kineto_places_next(struct kineto_places *places, const struct kineto_event *event, struct kineto_place *place);
void kineto_places_close(struct kineto_places *places); /* NULL: nothing */
/* {"artefact": ..., "stage": ..., "rank": ..., "writer": ...}: by it a file of ours is known. */
void put_writer(struct out *out, const char *artefact, const struct name *stage, int64_t rank);
/* What the times of its file count from, in the model's nanoseconds. */
int64_t kineto_base(const struct process *process);

#endif
