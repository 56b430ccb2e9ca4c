/* scope.h - what all questions of a run share of a process: the stages of its device work, and what the filters choose.
 *
 * The first question that asks makes it, as wide as any question of the run needs it; the selection keeps it until no
 * question is left. One thread at a time has a scope. Making it reads tables that the question itself may not read
 * (model/needs/guard.h): what it finds in them is no business of a question that did not ask for it.
 */
#ifndef TFA_SCOPE_H
#define TFA_SCOPE_H

#include "ask/left_out.h"

struct scope {
    const struct selection *chosen;
    const struct process *process;
    struct scope **place;           /* where the selection keeps it; NULL: it does not */
    struct needs needs;             /* how wide the attribution is */
    struct choice choice;           /* knows of launches once the attribution is made */
    struct attribution attribution; /* made by scope_attribute; all zero before */
    struct left_out left_out;       /* made by scope_left_out */
    bool has_left_out;
};

/* Returns the scope of a process, by its number in the selection. */
struct scope *scope_begin(const struct selection *chosen, size_t number);
/* Frees it, unless another question of the run may ask for it. */
void scope_end(struct scope *scope);
/* Frees all scopes of a selection. */
void scopes_forget(const struct selection *chosen);

/* The same for what is no question, and shares nothing. */
void scope_init(struct scope *scope, const struct selection *chosen, const struct process *process, struct needs needs);
void scope_free(struct scope *scope);

/* Makes the attribution if there is none yet, and returns it. */
const struct attribution *scope_attribute(struct scope *scope);
/* The same of what was left out. A question that asks needs `device`, and work_needs if choice_needs_launches. */
const struct left_out *scope_left_out(struct scope *scope);
/* Adds what an answer from the chosen work of a process lacks. */
void scope_left_rows(struct scope *scope, struct left_rows *rows);

#endif
