/* stacks.c - writes the own time of operators, or the time of sampled threads, by call stack, for flame graphs. */
#include "ask/ops/op_flames.h"

#include "ask/attribute.h"
#include "ask/samples/sample_flames.h"
#include "ask/samples/periods.h"
#include "commands/session.h"
#include "write/flames/flames.h"

static bool is_of_samples(const struct options *options)
{
    return options->metric >= METRIC_WALL;
}

static void say_of_samples(const struct session *session, const struct flames *flames, size_t written)
{
    if (is_filtered(&session->options)) return;
    if (!flames->with_stack)
        complain(NULL, "no thread was sampled: tfrun samples Python programs, unless TFI_SAMPLE_HZ is 0");
    else if (!written) complain(NULL, "no sampled thread has %s time", metric_names[session->options.metric]);
}

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
    if (is_of_samples(options)) return sampled_needs(options);
    needs.operators_of_work = needs.stages_of_spans = true;
    return needs_union(work_needs(options), needs);
}

void cmd_stacks(struct session *session)
{
    struct flames flames;
    struct options *options = &session->options;
    bool speedscope = options->stack_layout == STACKS_SPEEDSCOPE;
    options->group_ops = (struct group_ops){.stack = TFI_STACK_FRAMES};
    if (!session_load(session)) return;
    if (!out_open(&session->out, options->output)) {
        session->status = 1;
        return;
    }
    if (is_of_samples(options)) sample_flames(&flames, &session->chosen);
    else flames_of(&flames, &session->chosen, options->metric == METRIC_SELF_DEVICE);
    size_t written = flames.count;
    if (speedscope) flames_speedscope(&session->out, &session->chosen, &flames, metric_names[options->metric]);
    else written = flames_collapsed(&session->out, &session->chosen, &flames);
    if (is_of_samples(options)) say_of_samples(session, &flames, written);
    else say(session, &flames, written);
    session_end(session, written || !is_filtered(options));
    flames_free(&flames);
}
