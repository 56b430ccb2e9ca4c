/* kineto_places.h - maps each event of a Kineto trace to its row in the model and to its stage.
 *
 * The file is read a second time: the n-th event of a table (kineto_table) is the n-th row of the model's table. So the
 * reader still has every value of an event, including those that the model drops.
 */
#ifndef TFA_KINETO_PLACES_H
#define TFA_KINETO_PLACES_H

#include "ask/attribute.h"
#include "read/kineto.h"

struct kineto_place {
    struct belonging at;
    uint32_t span, work; /* indices into the model's tables, or NO_PLACE */
};

/* `attribution` must include spans. The caller closes the result. */
struct kineto_places *kineto_places_open(const struct names *names, const struct process *process,
                                         const struct attribution *attribution);
/* Sets `place` for the next event. Call this for every event of the file, in file order. Returns false if the event
 * describes a row of the display or has no time. */
bool kineto_places_next(struct kineto_places *places, const struct kineto_event *event, struct kineto_place *place);
void kineto_places_close(struct kineto_places *places); /* accepts NULL */

#endif
