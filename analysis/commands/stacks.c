/* stacks.c - writes the own time of operators by call stack, for flame graphs. */
#include "ask/ops/op_flames.h"

#include "ask/attribute.h"
#include "commands/session.h"
#include "write/flames/flames.h"

static void say(const struct session *session, const struct flames *flames, size_t written)
{
    bool on_device = session->options.metric == METRIC_SELF_DEVICE;
    if (!flames->with_stack && is_filtered(&session->options)) return; /* the filters may be to blame */
    if (!flames->with_stack)
        complain(NULL,
                 "no operator has a call stack; TFI_WITH_STACK=1, or with_stack=True of torch.profiler, records them");
    else if (!written)
        complain(NULL, "no operator with a call stack has %s time; --metric %s is the other one",
                 on_device ? "device" : "host", on_device ? "self_cpu" : "self_device");
}

struct needs stacks_needs(const struct options *options)
{
    struct needs needs = {
        .calls = true, .operators = true, .operator_details = true, .all_spans = true, .stream = STREAM_UNLINKED};
    needs.operators_of_work = needs.stages_of_spans = true;
    return needs_union(work_needs(options), needs);
}

void cmd_stacks(struct session *session)
{
    struct flames flames;
    struct options *options = &session->options;
    bool speedscope = options->stack_layout == STACKS_SPEEDSCOPE;
    bool on_device = options->metric == METRIC_SELF_DEVICE;
    options->group_ops = (struct group_ops){.stack = TFI_STACK_FRAMES};
    if (!session_load(session)) return;
    if (!out_open(&session->out, options->output)) {
        session->status = 1;
        return;
    }
    flames_of(&flames, &session->chosen, on_device);
    size_t written = flames.count;
    if (speedscope) flames_speedscope(&session->out, &session->chosen, &flames, on_device ? "self_device" : "self_cpu");
    else written = flames_collapsed(&session->out, &session->chosen, &flames);
    say(session, &flames, written);
    session_end(session, written || !is_filtered(options));
    flames_free(&flames);
}
