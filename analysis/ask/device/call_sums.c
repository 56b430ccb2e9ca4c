/* call_sums.c - adds up the calls of CUDA and NCCL by function, over all ranks and threads.
 *
 * A result that says that a stream or event is not ready yet is not an error.
 */
#include "ask/device/call_sums.h"

#include <stdlib.h>
#include <string.h>

#include "model/join.h"

enum { NOT_READY = 600 }; /* CUDA_ERROR_NOT_READY, cudaErrorNotReady */

/* One call of either kind of trace. */
struct made {
    uint32_t name, thread;
    int64_t start, end;
    bool has_result, failed;
};

static void sum_call(struct call_sums *sums, const struct made *made)
{
    struct call_sum *row = keyed_row(&sums->keyed, &made->name, sizeof made->name, sizeof *row);
    row->has_errors |= made->has_result;
    row->errors += made->failed;
    values_add(&row->values, made->end - made->start);
}

static void add_call(struct call_sums *sums, const struct scope *scope, struct made made, uint32_t span)
{
    const struct choice *choice = &scope->choice;
    struct belonging at = {made.start, NO_PLACE, 0};
    if (choice_call(choice, made.start, span)) {
        if (choice->by_stage) at.stage = stage_at(&scope->attribution.finder, made.thread, made.start);
        if (choice_in_stage(choice, &at)) sum_call(sums, &made);
    }
}

static void take_call(struct call_sums *sums, const struct scope *scope, const struct made_call *call)
{
    const struct calls *c = &scope->process->calls;
    bool has_result = call->call != NO_PLACE;
    int64_t result = has_result ? c->result[call->call] : 0;
    bool failed = result != 0 && result != NOT_READY;
    add_call(sums, scope, (struct made){call->name, call->thread, call->start, call->end, has_result, failed},
             call->span);
}

void call_sums_add(struct call_sums *sums, struct scope *scope)
{
    struct made_calls made;
    struct made_call call;
    sums->unknown |= selects_stages(scope->process) && !scope->choice.by_stage;
    if (is_filtered(scope->choice.options)) scope_attribute(scope);
    made_calls_init(&made, scope->process, sums->names);
    while (made_calls_next(&made, &call)) take_call(sums, scope, &call);
    made_calls_free(&made);
}

static int longest_first(const void *a, const void *b, void *context)
{
    const struct call_sum *x = a, *y = b;
    const struct names *names = context;
    if (x->values.total != y->values.total) return x->values.total > y->values.total ? -1 : 1;
    return strcmp(names_get(names, x->name)->text, names_get(names, y->name)->text);
}

void call_sums_sort(struct call_sums *sums)
{
    if (sums->count) qsort_r(sums->row, sums->count, sizeof *sums->row, longest_first, sums->names);
}

void call_sums_free(struct call_sums *sums)
{
    for (size_t i = 0; i < sums->count; i++) values_free(&sums->row[i].values);
    keyed_free(&sums->keyed);
}
