/* export.c - chooses the source of a process's events. */
#include "write/export/export.h"

#include "ask/stages/order.h"
#include "write/chrome/chrome_file.h"
#include "write/dftracer/to_chrome.h"
#include "write/export/export_kineto.h"
#include "write/export/export_tfr.h"

bool export_targets(struct targets *targets, const struct selection *chosen, const struct process *process,
                    const struct attribution *attribution)
{
    struct notes notes = {0};
    targets_begin(targets, process, attribution);
    bool read = is_of_dftracer(process) ? export_dftracer(targets, &notes) : export_kineto(targets, chosen, &notes);
    targets_end(targets);
    if (!read && !notes_have(&chosen->inputs->input[process->input].notes, UNUSABLE))
        complain(process->path, "cannot be read a second time");
    notes_free(&notes);
    return read;
}

/* Gives away all events, or those of the chosen stages. The filter chooses those of a dftracer trace. */
static bool export_of_others(const struct selection *chosen, const struct process *process,
                             const struct event_taker *taker, uint64_t *events)
{
    struct dump_choice filter;
    struct target target = {.taker = *taker};
    struct targets targets = {.target = &target, .count = 1, .of_name = chosen->stages};
    selection_window(chosen, &targets.from, &targets.to);
    target.whole = is_of_dftracer(process) || !chosen->stages || (!has_stages(process) && !chosen->stages[NAME_RUN]);
    dump_choice_init(&filter, chosen, process);
    if (!target.whole) scope_attribute(&filter.scope);
    targets.filter = filter.asked ? &filter : NULL;
    bool read = export_targets(&targets, chosen, process, &filter.scope.attribution);
    dump_choice_free(&filter);
    *events += target.events;
    return read;
}

bool export_events(const struct selection *chosen, const struct process *process, const char *artefact,
                   const struct event_taker *taker, uint64_t *events)
{
    if (is_of_others(process)) return export_of_others(chosen, process, taker, events);
    const struct tfr_export asked = {
        .process = &process, .processes = 1, .artefact = artefact, .of_name = chosen->stages, .taker = taker};
    *events += export_tfr(&asked, chosen);
    return true;
}

uint64_t export_file(const struct selection *chosen, const struct process *process, struct out *out,
                     const char *artefact)
{
    const struct tfr_export asked = {
        .process = &process, .processes = 1, .out = out, .artefact = artefact, .of_name = chosen->stages};
    if (!is_of_others(process)) return export_tfr(&asked, chosen);
    struct chrome_file file = {.out = out, .artefact = artefact};
    const struct event_taker taker = chrome_taker(&file);
    uint64_t events = 0;
    export_of_others(chosen, process, &taker, &events);
    return events;
}
