/* counts.c - finds the stages of a process and what was recorded of each. */
#include "ask/budget/counts.h"

#include <stdlib.h>
#include <string.h>

#include "ask/stages/order.h"
#include "ask/stages/stages_with_records.h"
#include "pattern.h"

enum {
#define ACTIVITY(name, word, meaning) BIT_##name,
#include "env.def"
#undef ACTIVITY
};

struct stage_counts *counts_row(struct counts *counts, int64_t rank, uint32_t stage)
{
    const struct stage_counts key = {.rank = rank, .stage = stage};
    return keyed_row(&counts->keyed, &key, offsetof(struct stage_counts, recorded), sizeof key);
}

/* ---- activities ---- */

static bool list_names(const char *list, const char *word)
{
    char entry[64];
    while (tfi_next_name(&list, entry, sizeof entry))
        if (strcmp(entry, word) == 0) return true;
    return false;
}

/* False if TFI_ACTIVITIES, or a switch at run time, left the activity out. */
static bool is_active(const struct process *p, unsigned bit, const char *word)
{
    for (size_t i = 0; i < p->switchings; i++)
        if (p->switching[i].state == RECORDING_ON && !(p->switching[i].activities >> bit & 1)) return false;
    return !p->activities || list_names(p->activities, word);
}

/* True if the calls were recorded. They were not if there is device work without any call, or if a trace of PyTorch's
 * profiler, or of a library that was not preloaded, has no call. `calls`: there is one. */
static bool are_calls_known(const struct process *p, bool calls)
{
    if (is_of_kineto(p) || p->is_late) return calls && is_active(p, BIT_CPU, "cpu");
    return is_active(p, BIT_CPU, "cpu") && (calls || !p->works.table.count);
}

/* ---- recording that was off ---- */

/* Collects the times at which a trigger or a time, and not the program or its steps, kept recording off. */
static struct intervals find_gaps(const struct choice *choice, const struct names *names)
{
    struct intervals gaps = {0};
    const struct process *p = choice->process;
    uint32_t schedule = names_find(names, "schedule", strlen("schedule"));
    uint32_t capture = names_find(names, "capture", strlen("capture"));
    for (size_t i = 0; i < p->switchings; i++) {
        const struct switching *from = &p->switching[i];
        int64_t until = i + 1 < p->switchings ? from[1].time : INT64_MAX;
        if (from->state == RECORDING_OFF && from->cause != schedule && from->cause != capture)
            intervals_add(&gaps, from->time, until);
    }
    intervals_merge(&gaps);
    return gaps;
}

/* True if a gap lies in a range, or a part of one. */
static bool has_gap(const struct intervals *gaps, int64_t start, int64_t end)
{
    size_t next = intervals_after(gaps, start);
    return next < gaps->count && gaps->interval[next].start < MAX(end, start + 1);
}

/* True if the calls inside a stage were recorded, at least some of the time it was open. */
static bool is_recorded(const struct choice *choice, size_t range)
{
    const struct ranges *r = &choice->process->ranges;
    return !intervals_hold(&choice->off, r->start[range], r->end[range]) &&
           !intervals_hold(&choice->warmup, r->start[range], r->end[range]);
}

/* ---- rows ---- */

void counts_add_stages(struct counts *counts, const struct scope *scope, bool calls, bool operators)
{
    const struct selection *chosen = scope->chosen;
    const struct choice *choice = &scope->choice;
    const struct attribution *a = &scope->attribution;
    const struct process *p = scope->process;
    const struct ranges *r = &p->ranges;
    struct selected_stages selected;
    struct intervals gaps = find_gaps(choice, &chosen->model->names);
    bool calls_known = are_calls_known(p, calls), dispatches_known = operators && is_active(p, BIT_OPS, "ops");
    selected_stages_init(&selected, choice, &chosen->model->names);
    for (size_t i = 0; i <= a->stages; i++) {
        bool outside = i == a->stages;
        size_t range = outside ? 0 : a->order[i];
        uint32_t stage = outside ? choice->outside : p->ranges.name[range];
        if (outside ? !choice->outside_wanted : !choice_stage(choice, range) || !selection_wants(chosen, stage))
            continue;
        struct stage_counts *row = counts_row(counts, p->rank, stage);
        bool is_kept = outside ? !selected.list : is_selected(&selected, range);
        row->recorded |= is_kept && (outside || is_recorded(choice, range));
        row->partly |= !is_kept || (outside ? gaps.count > 0 : has_gap(&gaps, r->start[range], r->end[range]));
        for (int k = 0; k < NR_CALL_KINDS; k++) row->unknown[k] |= !(k == DISPATCH ? dispatches_known : calls_known);
    }
    selected_stages_free(&selected);
    intervals_free(&gaps);
}

bool counts_are_known(const struct stage_counts *row, enum call_kind kind)
{
    return row->recorded && !row->partly && !row->unknown[kind];
}

void counts_free(struct counts *counts)
{
    keyed_free(&counts->keyed);
}
