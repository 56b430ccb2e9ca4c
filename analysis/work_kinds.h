/* work_kinds.h - is a device computing, communicating or copying: one table of rules for each way to tell. */
#ifndef TFA_WORK_KINDS_H
#define TFA_WORK_KINDS_H

#include "model.h"
#include "opts.h"

enum work_kind { WORK_COMPUTATION, WORK_COMMUNICATION, WORK_MEMORY, WORK_OTHER, NR_WORK_KINDS };
extern const char *const work_kind_names[NR_WORK_KINDS];

/* Each kind's bit in a set of kinds. */
#define KIND_BIT(kind) (1u << (kind))

/* By name, as each distinct name is looked at once. */
struct work_kinds {
    enum rules rules;
    const struct names *names;
    uint8_t *known; /* kind + 1 by class and name, 0: not looked at yet */
    size_t count;   /* of names when this was made */
};
void work_kinds_init(struct work_kinds *kinds, enum rules rules, const struct names *names);
enum work_kind work_kind(struct work_kinds *kinds, enum event_class class, uint32_t name);
void work_kinds_free(struct work_kinds *kinds);

#endif
