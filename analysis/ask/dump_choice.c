/* dump_choice.c - finds the model's row for a record, and applies the filters to that row. */
#include "ask/dump_choice.h"

#include "ask/stages/order.h"
#include "base/hash.h"
#include "read/kineto.h"

struct needs dump_choice_needs(void)
{
    return (struct needs){
        .ranges = true, .calls = true, .device = true, .launches = true, .operators = true, .stream = STREAM_HELD};
}

bool dump_is_filtered(const struct options *o)
{
    return o->stage.count || o->step.count || o->cycle.count || o->device.count || o->stream.count;
}

static void index_model(struct dump_choice *chosen, const struct process *p)
{
    const struct spans *s = &p->spans;
    const struct works *w = &p->works;
    for (size_t i = 0; i < s->table.count; i++) {
        map_put(&chosen->span_at, hash_numbers(s->thread[i], (uint64_t)s->start[i]), (uint32_t)i);
        if (s->event_class[i] == CLASS_API && s->id[i] != NO_ID) map_put(&chosen->span_of, s->id[i], (uint32_t)i);
    }
    for (size_t i = 0; i < w->table.count; i++)
        if (w->correlation[i] != NO_ID && map_get(&chosen->work_of, w->correlation[i]) == MAP_NONE)
            map_put(&chosen->work_of, w->correlation[i], (uint32_t)i);
    ranges_by_id(&chosen->range_of, p);
}

void dump_choice_init(struct dump_choice *chosen, const struct selection *selection, const struct process *process)
{
    *chosen = (struct dump_choice){.asked = dump_is_filtered(selection->options)};
    scope_init(&chosen->scope, selection, process, (struct needs){.stages_of_spans = true});
    if (!chosen->asked) return;
    scope_attribute(&chosen->scope);
    if (is_of_kineto(process))
        chosen->places = kineto_places_open(&selection->model->names, process, &chosen->scope.attribution);
    else index_model(chosen, process);
}

void dump_choice_free(struct dump_choice *chosen)
{
    map_free(&chosen->span_at);
    map_free(&chosen->span_of);
    map_free(&chosen->work_of);
    map_free(&chosen->range_of);
    kineto_places_close(chosen->places);
    scope_free(&chosen->scope);
    *chosen = (struct dump_choice){0};
}

/* ---- records of .tfr traces ---- */

static bool has_range(const struct dump_choice *chosen, const struct dumped *record)
{
    const struct choice *c = &chosen->scope.choice;
    const struct ranges *r = &c->process->ranges;
    uint32_t range = record->id ? map_get(&chosen->range_of, *record->id) : MAP_NONE;
    if (range == MAP_NONE) return false;
    struct belonging at = {r->start[range], range, 0};
    at.stage = is_stage(r, range) ? range : stage_at(&chosen->scope.attribution.finder, r->thread[range], at.time);
    bool on_lane = record->kind == TFI_KIND_stage_device && record->device && record->stream &&
                   choice_lane(c, (int64_t)*record->device, (int64_t)*record->stream);
    return choice_belonging(c, &at) && (!c->by_lane || on_lane);
}

static bool has_work(const struct dump_choice *chosen, const struct dumped *record)
{
    const struct choice *c = &chosen->scope.choice;
    const struct works *w = &c->process->works;
    uint32_t work = record->correlation ? map_get(&chosen->work_of, *record->correlation) : MAP_NONE;
    if (work == MAP_NONE) return false;
    bool on_lane = record->device && record->stream ? choice_lane(c, (int64_t)*record->device, (int64_t)*record->stream)
                                                    : c->lane[w->lane[work]];
    return choice_belonging(c, &chosen->scope.attribution.work[work]) && (!c->by_lane || on_lane);
}

static bool has_span(const struct dump_choice *chosen, uint32_t span)
{
    const struct choice *c = &chosen->scope.choice;
    return choice_belonging(c, &chosen->scope.attribution.span[span]) && (!c->by_lane || c->launches[span]);
}

static bool has_moment(const struct dump_choice *chosen, const struct dumped *record)
{
    const struct choice *c = &chosen->scope.choice;
    const struct spans *s = &c->process->spans;
    uint32_t span =
        record->has_time ? map_get(&chosen->span_at, hash_numbers(record->thread, (uint64_t)record->time)) : MAP_NONE;
    if (span != MAP_NONE && s->thread[span] == record->thread && s->start[span] == record->time) {
        bool may_launch = record->kind == TFI_KIND_call;
        return has_span(chosen, span) && (!c->by_lane || may_launch);
    }
    struct belonging at = {record->time, NO_PLACE, 0};
    at.stage = stage_at(&chosen->scope.attribution.finder, record->thread, record->time);
    return record->has_time && !c->by_lane && choice_belonging(c, &at);
}

bool dump_choice_has(const struct dump_choice *chosen, const struct dumped *record)
{
    uint32_t span;
    if (!chosen->asked) return true;
    switch (record->kind) {
    case TFI_KIND_range_begin:
    case TFI_KIND_range_end:
    case TFI_KIND_range_pause:
    case TFI_KIND_range_resume:
    case TFI_KIND_signature:
    case TFI_KIND_stage_memory:
    case TFI_KIND_stage_device: return has_range(chosen, record);
    case TFI_KIND_kernel:
    case TFI_KIND_copy:
    case TFI_KIND_set:
    case TFI_KIND_sync:
    case TFI_KIND_graph_launch: return has_work(chosen, record);
    case TFI_KIND_correlation:
        span = record->correlation ? map_get(&chosen->span_of, *record->correlation) : MAP_NONE;
        return span != MAP_NONE && has_span(chosen, span);
    case TFI_KIND_mark:
    case TFI_KIND_call:
    case TFI_KIND_io:
    case TFI_KIND_op:
    case TFI_KIND_memory:
    case TFI_KIND_oom:
    case TFI_KIND_collective:
    case TFI_KIND_framework_collective:
    case TFI_KIND_function_begin:
    case TFI_KIND_function_end:
    case TFI_KIND_tensors: return has_moment(chosen, record);
    default: return false;
    }
}

/* ---- events of PyTorch traces ---- */

bool dump_choice_has_event(struct dump_choice *chosen, const struct kineto_event *event)
{
    const struct choice *c = &chosen->scope.choice;
    struct kineto_place place;
    if (!chosen->asked) return true;
    if (!kineto_places_next(chosen->places, event, &place) || !choice_belonging(c, &place.at)) return false;
    bool on_lane = (place.work != NO_PLACE && c->lane[c->process->works.lane[place.work]]) ||
                   (place.span != NO_PLACE && c->process->spans.event_class[place.span] == CLASS_API && c->launches &&
                    c->launches[place.span]);
    return !c->by_lane || on_lane;
}
