/* work_kinds.h - classifies device work as computation, communication or memory, by the rules of ours or of another tool. */
#ifndef TFA_WORK_KINDS_H
#define TFA_WORK_KINDS_H

#include "base/opts.h"
#include "model/model.h"

enum work_kind { WORK_COMPUTATION, WORK_COMMUNICATION, WORK_MEMORY, WORK_OTHER, NR_WORK_KINDS };
extern const char *const work_kind_names[NR_WORK_KINDS];

/* Each kind's bit in a set of kinds. */
#define KIND_BIT(kind) (1u << (kind))

struct kind_rules {
    enum work_kind (*kind)(enum event_class event_class, const struct name *name);
    bool by_description; /* a kernel that its trace describes as a collective communicates, whatever its name is */
};
extern const struct kind_rules exact_kinds;

/* Cache of kinds by name: each distinct name is classified once. */
struct work_kinds {
    const struct kind_rules *rules;
    const struct names *names;
    struct map known; /* kind by name and class */
};
void work_kinds_init(struct work_kinds *kinds, const struct kind_rules *rules, const struct names *names);
enum work_kind work_kind(struct work_kinds *kinds, enum event_class event_class, uint32_t name);
/* The kind of a process's work. */
enum work_kind work_kind_of(struct work_kinds *kinds, const struct process *process, size_t work);
void work_kinds_free(struct work_kinds *kinds);

#endif
