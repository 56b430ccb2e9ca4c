/* merge.c - writes one timeline of many ranks and profilers.
 *
 * The processes come one after the other (each.h), and their times are shifted to one clock.
 */
#include "commands/export/merge.h"

#include "commands/export/each.h"
#include "write/export/export.h"
#include "write/export/export_tfr.h"
#include "write/chrome/chrome_merge.h"

struct merge {
    struct session *session;
    const char *artefact;
    struct each each;
    struct merged file;
    size_t place; /* of the process that is written */
    uint64_t events, invalid;
};

/* ---- messages ---- */

static void say_left_out(struct merge *merge)
{
    if (merge->invalid) {
        complain(NULL, "%llu events are not valid JSON and were left out", (unsigned long long)merge->invalid);
        session_spoil(merge->session);
    }
    if (merge->file.lost_members) {
        complain(NULL,
                 "%llu members beside the events were left out: they are not valid JSON, or more than 16 MB in all",
                 (unsigned long long)merge->file.lost_members);
        session_spoil(merge->session);
    }
}

/* ---- one process ---- */

static bool write_process(void *argument, const struct selection *chosen, const struct process *p)
{
    struct merge *merge = argument;
    if (is_of_others(p)) {
        struct event_taker taker = rewriting_taker(&merge->file, merge->place);
        uint64_t events = 0;
        return export_events(chosen, p, merge->artefact, &taker, &events);
    }
    struct tfr_export asked = {.process = &p,
                               .processes = 1,
                               .out = &merge->session->out,
                               .artefact = merge->artefact,
                               .of_name = chosen->stages};
    merge->file.one[merge->place].events = export_tfr_merged(&asked, chosen, &merge->file, merge->place);
    return true;
}

static void write_one(struct merge *merge, size_t place)
{
    merge->place = place;
    each_process(&merge->each, merge->each.order[place], write_process, merge);
    merge->events += merge->file.one[place].events;
    merge->invalid += merge->file.one[place].invalid;
}

/* ---- the answer ---- */

static void write_all(struct merge *merge)
{
    const struct selection *chosen = &merge->session->chosen;
    merged_begin(&merge->file, &merge->session->out, merge->artefact, chosen, &merge->each.clock, merge->each.order);
    for (size_t i = 0; i < merge->file.count && !merge->session->out.failed; i++) write_one(merge, i);
    merged_end(&merge->file, chosen, &merge->each.clock);
    say_left_out(merge);
    merged_free(&merge->file);
}

void merge_write(struct session *session, const char *artefact)
{
    struct merge merge = {.session = session, .artefact = artefact};
    if (!each_begin(&merge.each, session)) return;
    write_all(&merge);
    each_end(&merge.each, merge.events);
}

void cmd_merge(struct session *session)
{
    if (each_load(session)) merge_write(session, "merge");
}
