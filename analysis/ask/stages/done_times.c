/* done_times.c - finds when each call of a stage was done.
 *
 * A call hands its time on to the stage around it, inner calls first. If ranges cross, the call ends after the stage it
 * was opened in, and some of its work was launched when that one had ended. Work in such calls climbs by itself to all
 * stages that were open at its launch. The times of these stages are unknown if too many stages are open (open_stages.h), or if
 * there are only sums of the work.
 */
#include "ask/stages/done_times.h"

#include <stdlib.h>
#include <string.h>

#include "ask/device/call_kinds.h"
#include "ask/stages/open_stages.h"
#include "model/other_profilers.h"

static void raise(int64_t *done, int64_t to)
{
    *done = MAX(*done, to);
}

/* Sets the times of the stages in which the work was launched. */
static void add_own(const struct choice *choice, int64_t *done, const bool *chosen)
{
    const struct process *p = choice->process;
    const struct stage_times *t = &p->stage_times;
    struct map by_id = {0};
    for (size_t i = 0; i < p->works.table.count; i++)
        if (chosen[i] && choice->attribution->work[i].stage != NO_PLACE)
            raise(&done[choice->attribution->work[i].stage], p->works.end[i]);
    if (t->table.count) ranges_by_id(&by_id, p);
    for (size_t i = 0; i < t->table.count; i++) {
        uint32_t range = choice->lane[t->lane[i]] ? map_get(&by_id, t->range[i]) : MAP_NONE;
        if (range != MAP_NONE) raise(&done[range], t->end[i]);
    }
    map_free(&by_id);
}

/* Hands the times on to the stages around. Returns, by range, whether it or a stage around it crosses another one; NULL
 * if none does. */
static bool *hand_on(const struct choice *choice, int64_t *done)
{
    const struct attribution *a = choice->attribution;
    const struct ranges *r = &choice->process->ranges;
    bool *crosses = NULL;
    if (!a) return NULL; /* there is no work */
    for (size_t i = a->stages; i-- > 0;) {
        size_t at = a->order[i];
        uint32_t outer = a->paths.outer[at];
        if (outer == NO_PLACE) continue;
        if (r->end[outer] >= r->end[at]) {
            raise(&done[outer], done[at]);
        } else {
            if (!crosses) crosses = mem_zero(r->table.count, sizeof *crosses);
            crosses[at] = true;
        }
    }
    for (size_t i = 0; i < a->stages && crosses; i++)
        if (a->paths.outer[a->order[i]] != NO_PLACE) crosses[a->order[i]] |= crosses[a->paths.outer[a->order[i]]];
    return crosses;
}

static void climb(const struct choice *choice, int64_t *done, const bool *chosen, const bool *crosses)
{
    const struct attribution *a = choice->attribution;
    const struct process *p = a->process;
    uint8_t *deep = stages_deep(&p->ranges, a->order, a->stages, p->ranges.name);
    bool unknown = deep || p->stage_times.table.count;
    for (size_t i = 0; i < p->works.table.count && !deep; i++) {
        const struct belonging *b = &a->work[i];
        uint32_t s = chosen[i] && b->stage != NO_PLACE && crosses[b->stage] ? b->stage : NO_PLACE;
        for (; s != NO_PLACE; s = stages_around(&a->paths, s, b->time)) raise(&done[s], p->works.end[i]);
    }
    for (size_t i = 0; i < a->stages && unknown; i++) {
        uint32_t outer = crosses[a->order[i]] ? a->paths.outer[a->order[i]] : NO_PLACE;
        for (; outer != NO_PLACE && done[outer] != DONE_UNKNOWN; outer = a->paths.outer[outer])
            done[outer] = DONE_UNKNOWN;
    }
    free(deep);
}

/* Gives all pieces of a range the time of the whole. */
static void join_pieces(const struct process *p, int64_t *done)
{
    const struct ranges *r = &p->ranges;
    const struct wholes *w = &p->wholes;
    struct map whole_of = {0};
    int64_t *whole = mem_zero(w->table.count, sizeof *whole);
    wholes_by_id(&whole_of, p);
    for (size_t i = 0; i < w->table.count; i++) whole[i] = w->end[i];
    for (size_t i = 0; i < r->table.count; i++) {
        uint32_t of = map_get(&whole_of, r->id[i]);
        if (of == MAP_NONE) continue;
        if (done[i] == DONE_UNKNOWN || whole[of] == DONE_UNKNOWN) whole[of] = DONE_UNKNOWN;
        else raise(&whole[of], done[i]);
    }
    for (size_t i = 0; i < r->table.count; i++) {
        uint32_t of = map_get(&whole_of, r->id[i]);
        if (of != MAP_NONE) done[i] = whole[of];
    }
    map_free(&whole_of);
    free(whole);
}

/* True if a call launched work. */
static bool launches(const struct process *p, const struct names *names)
{
    uint8_t *judged = mem_zero(names->count, sizeof *judged); /* by name: 1 a launch, 2 none */
    bool found = false;
    for (size_t i = 0; i < p->spans.table.count && !found; i++) {
        uint8_t *is = &judged[p->spans.name[i]];
        if (p->spans.event_class[i] != CLASS_API) continue;
        if (!*is) {
            enum call_kind kind = call_kind_of(names_get(names, p->spans.name[i])->text);
            *is = kind == LAUNCH || kind == GRAPH_LAUNCH ? 1 : 2;
        }
        found = *is == 1;
    }
    free(judged);
    return found;
}

/* True if the process has used a device, and neither records nor sums hold all its work. */
static bool device_is_unknown(const struct process *p, const struct names *names)
{
    bool recorded = p->works.table.count || p->stage_times.table.count, used = false;
    for (size_t i = 0; i < p->loss_count; i++)
        if (p->losses[i].count && strcmp(p->losses[i].cause, "device_outside") == 0) return true;
    for (size_t i = 0; i < p->stage_memories && !recorded; i++) used |= p->stage_memory[i].device >= 0;
    return !recorded && (used || launches(p, names));
}

int64_t *stages_done(const struct choice *choice, const struct names *names)
{
    const struct process *p = choice->process;
    const struct ranges *r = &p->ranges;
    size_t works = p->works.table.count;
    bool unknown = device_is_unknown(p, names);
    if (!works && !p->stage_times.table.count && !p->elsewheres && !unknown) return NULL;
    int64_t *done = mem_zero(r->table.count, sizeof *done);
    bool *chosen = mem_zero(works, sizeof *chosen);
    for (size_t i = 0; i < works; i++) chosen[i] = choice_stage_work_at_any_time(choice, i);
    for (size_t i = 0; i < r->table.count; i++) done[i] = r->end[i];
    add_own(choice, done, chosen);
    bool *crosses = hand_on(choice, done);
    if (crosses) climb(choice, done, chosen, crosses);
    join_pieces(p, done);
    for (size_t i = 0; i < r->table.count; i++)
        if (unknown || (p->elsewheres && elsewhere_between(p, r->start[i], r->end[i]) != NAME_NONE))
            done[i] = DONE_UNKNOWN;
    free(crosses);
    free(chosen);
    return done;
}
