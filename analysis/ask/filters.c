/* filters.c - reads the filters of the options: --rank, --pid, --stage, --from and --to. */
#include "ask/filters.h"

#include <math.h>
#include <string.h>

#include "ask/selection.h"
#include "pattern.h"

bool wants_process(const struct options *options, const struct process *process)
{
    return list_has(&options->rank, process->rank) && list_has(&options->pid, process->pid);
}

bool wants_stage(const struct options *options, const char *name)
{
    const struct strings_list *globs = &options->stage;
    for (size_t i = 0; i < globs->count; i++)
        if (tfi_glob(globs->text[i], name, strlen(name), false)) return true;
    return globs->count == 0;
}

void selection_window(const struct selection *selection, int64_t *from, int64_t *to)
{
    const struct options *options = selection->options;
    int64_t start = selection->model->start;
    *from = INT64_MIN;
    *to = INT64_MAX;
    if (!isnan(options->from) && (double)start + options->from * 1e9 < 9e18)
        *from = start + (int64_t)llround(options->from * 1e9);
    else if (!isnan(options->from)) *from = INT64_MAX;
    if (!isnan(options->to) && (double)start + options->to * 1e9 < 9e18)
        *to = start + (int64_t)llround(options->to * 1e9);
}

bool is_filtered(const struct options *o)
{
    return o->stage.count || o->step.count || o->cycle.count || o->device.count || o->stream.count || !isnan(o->from) ||
           !isnan(o->to);
}

bool without_window(const struct options *o)
{
    return isnan(o->from) && isnan(o->to);
}
