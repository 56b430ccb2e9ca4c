/* dump_choice.h - selects a trace's records by stage, step, cycle, device and stream.
 *
 * A record belongs where the model places the item it describes: an operator, a call or a block at its start on its
 * thread, a range's records with the range, device work with its launch. --device and --stream choose records of work
 * there and of the calls that launched it. Records about the whole process (threads, clocks, messages) belong
 * nowhere: these filters leave them out.
 */
#ifndef TFA_DUMP_CHOICE_H
#define TFA_DUMP_CHOICE_H

#include "ask/scope.h"
#include "ask/kineto_places.h"

/* Returns what is needed if any of these filters is given. */
struct needs dump_choice_needs(void);

struct dump_choice {
    bool asked; /* at least one of these filters is given */
    struct scope scope;
    struct map span_at;           /* span by a hash of thread and start; the look-up compares both */
    struct map span_of;           /* call by correlation id */
    struct map work_of;           /* first work by correlation id */
    struct map range_of;          /* range by id */
    struct kineto_places *places; /* for a PyTorch trace */
};

/* One record of a .tfr trace. */
struct dumped {
    uint16_t kind;
    uint32_t thread;
    bool has_time;
    int64_t time;
    const uint64_t *id, *correlation, *device, *stream; /* NULL: the record has none */
};

bool dump_is_filtered(const struct options *options);
void dump_choice_init(struct dump_choice *chosen, const struct selection *selection, const struct process *process);
bool dump_choice_has(const struct dump_choice *chosen, const struct dumped *record);
/* Call this for every event of the file, in file order. */
bool dump_choice_has_event(struct dump_choice *chosen, const struct kineto_event *event);
void dump_choice_free(struct dump_choice *chosen);

#endif
