/* ncu_launches.h - chooses the launches of a process that Nsight Compute is to measure, as ncu counts them.
 *
 * ncu counts the launches of a process that its filter for names lets through, in the order in which they are launched,
 * and skips the first ones. So a launch is known by the kernels with such a name that the process launched before it, in
 * any stage.
 */
#ifndef TFA_NCU_LAUNCHES_H
#define TFA_NCU_LAUNCHES_H

#include "ask/scope.h"
#include "base/sets/rows_by_key.h"

enum { MOST_MEASURED = 3 }; /* launches of one kernel: each is replayed once for each pass */

/* A kernel of a stage. */
struct ncu_planned {
    uint32_t stage, name; /* the key */
    bool communicates;    /* ncu replays a kernel, and one that waits for other ranks would then wait for ever */
    int64_t total, of_stage;
    size_t *launch; /* places in the order of the process's launches */
    size_t calls, capacity;
    uint64_t at;    /* number of the launch to measure among those of this row, from 0: the one of median duration */
    uint64_t skip;  /* launches with such a name before it */
    uint64_t count; /* launches to measure: those that follow it with the same name in the same stage */
};

struct ncu_plan {
    KEYED_ROWS(struct ncu_planned);
};

/* True if ncu can know the kernel by its mangled name; otherwise by its function alone. */
bool ncu_by_mangled(const char *kernel);
/* Appends that name. */
void ncu_filter_name(const char *kernel, struct text *name);
/* Makes the rows of a process, those with the most time first. Kernel names must be mangled where the trace has them so. */
void ncu_plan_of(struct ncu_plan *plan, struct scope *scope, const struct names *names);
void ncu_plan_free(struct ncu_plan *plan);
/* Returns why the trace may lack launches that ncu will count; NULL: it has all of them. */
const char *ncu_plan_doubt(const struct process *process);

#endif
