/* attribute.h - which stage a device's work, a call or an operator belongs to.
 *
 * The contract's rule: what was launched belongs to the innermost stage open at that moment, (1) on its own thread; (2) a
 * backward operator's without one: to the stage of its forward operator; (3) any other thread's without one: to the
 * innermost open stage, if all open stages are on one thread; (4) else to none. The launch of a device's work is the call
 * with its correlation id (of several the last that began before the work did); where that is missing, the operator with
 * its external id.
 */
#ifndef TFA_ATTRIBUTE_H
#define TFA_ATTRIBUTE_H

#include "stage_paths.h"

enum via { VIA_NONE, VIA_THREAD, VIA_FORWARD, VIA_ONLY, NR_VIAS };
extern const char *const via_names[NR_VIAS];

/* Where something was launched, and what it belongs to. */
struct belonging {
    int64_t time;   /* of the launch, or of the forward operator */
    uint32_t stage; /* a place in process->ranges, NO_PLACE: none */
    uint8_t via;
};

struct attribution {
    const struct process *process;
    struct belonging *work;  /* by place in process->works */
    struct belonging *span;  /* by place in process->spans; NULL unless asked for */
    struct belonging *block; /* by place in process->blocks; the same */
    uint32_t *launch;        /* by work: its place in process->spans, or NO_PLACE */
    uint32_t *operator;      /* by work: the innermost operator it was launched in, a place in process->spans */
    uint32_t *captured; /* by work: as what it was captured, a place in process->graphs.node; NULL: no node is known */
    struct belonging *node;  /* by place in process->graphs.node: its stage; NULL likewise */
    uint32_t *node_operator; /* and its operator */
    size_t *order;           /* stages_sorted */
    size_t stages;
    struct stage_paths paths; /* of all stages */
    uint64_t unlinked;        /* works without a launch and without an operator */
    uint64_t replayed;   /* works that were nodes of graphs, in a trace that knows of any what it was captured as */
    uint64_t uncaptured; /* those of them of which it is not known as what they were captured */
    uint64_t doubled;    /* correlation ids that several calls of the same kind have */
};

void attribute(struct attribution *attribution, const struct process *process, bool spans);
void attribution_free(struct attribution *attribution);
/* The name of the operator a work was captured in: NAME_NONE where it was captured in none; false: it is not known. */
bool captured_operator(const struct attribution *attribution, size_t work, uint32_t *name);
/* The way outwards over stages alone whose name has the number `target` in `of_name`; all if that is NULL. To be freed. */
struct stage_paths chosen_paths(const struct attribution *attribution, const uint32_t *of_name, uint32_t target);

#endif
