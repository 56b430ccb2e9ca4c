/* dump_choice.h - which records of a trace the filters choose that ask where something belongs: stage, step, cycle, device
 * and stream.
 *
 * A record belongs where the model says that what it tells of does: an operator, a call or a block at its beginning on its
 * thread, a range's records to the range, a device's to what launched it. With --device and --stream records of work there
 * are chosen, and calls that launched it. What tells of the process alone (its threads, clocks, messages) belongs nowhere.
 */
#ifndef TFA_DUMP_CHOICE_H
#define TFA_DUMP_CHOICE_H

#include "choice.h"
#include "export_kineto.h"
#include "stage_at.h"

/* The model has to hold these where some of the filters are given. */
#define WANT_FOR_DUMP (WANT_RANGES | WANT_CALLS | WANT_DEVICE | WANT_LAUNCHES | WANT_OPERATORS)

struct dump_choice {
    bool asked; /* some of these filters are given */
    struct attribution attribution;
    struct choice choice;
    struct stage_finder finder;
    struct map span_at;           /* by thread and start, mixed */
    struct map span_of;           /* by correlation id */
    struct map work_of;           /* the same: the first work with it */
    struct map range_of;          /* by id */
    struct kineto_places *places; /* of a PyTorch trace */
};

/* One record of ours. */
struct dumped {
    uint16_t kind;
    uint32_t thread;
    bool has_time;
    int64_t time;
    const uint64_t *id, *correlation, *device, *stream; /* NULL: it has none */
};

bool dump_is_filtered(const struct session *session);
void dump_choice_init(struct dump_choice *chosen, const struct session *session, const struct process *process);
bool dump_choice_has(const struct dump_choice *chosen, const struct dumped *record);
/* To be asked for every event of the file, in its order. */
bool dump_choice_has_event(struct dump_choice *chosen, const struct kineto_event *event);
void dump_choice_free(struct dump_choice *chosen);

#endif
