/* attribute.h - finds the stage that device work, a call or an operator belongs to.
 *
 * The contract's rules, tried in this order at the moment of the launch:
 * (1) the innermost stage open on the launching thread;
 * (2) for a launch in a backward operator: the stage of its forward operator;
 * (3) if all open stages are on one thread: the innermost of them;
 * (4) no stage.
 * The launch of device work is the call with its correlation id. If several calls share the id, it is the last one that
 * began before the work. If no call has the id, it is the operator with the work's external id.
 */
#ifndef TFA_ATTRIBUTE_H
#define TFA_ATTRIBUTE_H

#include "ask/stages/stage_at.h"
#include "base/opts.h"

enum via { VIA_NONE, VIA_THREAD, VIA_FORWARD, VIA_ONLY, NR_VIAS };
extern const char *const via_names[NR_VIAS];

/* The launch time of an item and the stage it belongs to. */
struct belonging {
    int64_t time;   /* time of the launch, or of the forward operator */
    uint32_t stage; /* index into process->ranges; NO_PLACE: none */
    uint8_t via;
};

struct attribution {
    const struct process *process;
    struct belonging *work;  /* by index in process->works */
    struct belonging *span;  /* by index in process->spans; NULL unless stages_of_spans */
    struct belonging *block; /* by index in process->blocks; likewise */
    uint32_t *launch;        /* by work: the launching call's index in process->spans, or NO_PLACE */
    uint32_t *op;            /* by work: an index into process->spans. The innermost operator around the launching call,
                                only with operators_of_work; of work without a call the one with its external id */
    uint32_t *captured;      /* by work: its node, an index into process->graphs.node; NULL: no nodes known */
    struct belonging *node;  /* by index in process->graphs.node: its stage; NULL: no nodes known */
    uint32_t *node_op;       /* by node: its operator; NULL: no nodes known */
    size_t *order;           /* stages_sorted */
    size_t stages;
    struct stage_paths paths;   /* links over all stages */
    struct stage_finder finder; /* for items without a table in the model */
    uint64_t unlinked;          /* works without a launch and without an operator */
    uint64_t replayed;          /* works that were graph nodes; counted only in traces that record captures */
    uint64_t uncaptured;        /* replayed works whose captured node is unknown */
    uint64_t by_order;          /* replayed works whose node was found by the order of calls without names */
    uint64_t doubled;           /* correlation ids shared by several calls */
};

/* Returns what a question about device work needs: the work, and what tells its stage, step and operator. */
struct needs work_needs(const struct options *options);

/* The attribution must not be moved. Of the needs, operators_of_work and stages_of_spans make it wider. */
void attribute(struct attribution *attribution, const struct process *process, struct needs needs);
void attribution_free(struct attribution *attribution);
/* Sets `name` to the operator a work was captured in; NAME_NONE: captured in none. Returns false if that is unknown. */
bool captured_operator(const struct attribution *attribution, size_t work, uint32_t *name);
/* Returns a number for the call of that operator, of which each replay has its own; NO_ID: captured in none. */
uint64_t captured_call(const struct attribution *attribution, size_t work);
/* Returns its inputs, modules and Python frames in the capture; all unknown if it is unknown or not loaded. */
const struct op_detail *captured_detail(const struct attribution *attribution, size_t work);
/* Links over only those stages whose name maps to `target` in `of_name`. The caller frees the result. */
struct stage_paths chosen_paths(const struct attribution *attribution, const uint32_t *of_name, uint32_t target);

#endif
