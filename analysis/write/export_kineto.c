/* export_kineto.c - copies events of a Kineto trace to the outputs they belong to.
 *
 * ask/kineto_places.h determines the stage of each event. Events that describe rows (M) go to every output. Events
 * without a row of a process (the profiler's own marks) go only to whole outputs. Events stay as they are, except that
 * work which overlaps other work of its stream gets another row, and what is no JSON is replaced.
 */
#include "write/export_kineto.h"

#include <stdlib.h>
#include <string.h>

#include "ask/dump_choice.h"
#include "ask/kineto_places.h"
#include "ask/stages/order.h"
#include "model/load/load_kineto.h"
#include "read/json/clean.h"
#include "write/work_rows.h"

const struct needs export_kineto_needs = {
    .traces = true, .ranges = true, .device = true, .launches = true, .operators = true};

struct copy {
    struct targets *targets;
    const struct process *process;
    const struct attribution *attribution;
    struct kineto_places *places; /* NULL: all targets are whole */
    uint64_t *of_stage;           /* by range: bits of the targets of it and of all stages around it */
    int64_t *all_until;           /* by range: earliest end of the stages around it */
    struct stage_paths *paths;    /* by target: links over the target's stages, made when first needed */
    uint64_t events;
    uint64_t checked; /* number of the event that `valid` is of */
    struct slice valid;
    struct strict strict;
    int64_t base;
    struct work_rows rows; /* rows of overlapping work, unless the events are given away */
    size_t works;          /* works read so far: the next one's index in the model */
    int64_t moved_at;      /* start of the work read last, and its new row; 0: it keeps its row */
    uint64_t moved_to;
    struct text moved; /* an event with another row */
};

/* ---- writing ---- */

void put_writer(struct out *out, const char *artefact, const struct name *stage, int64_t rank)
{
    out_puts(out, "\"tfinject\": {\"artefact\": ");
    out_json_string(out, artefact, strlen(artefact));
    if (stage) {
        out_puts(out, ", \"stage\": ");
        out_json_string(out, stage->text, stage->length);
    }
    out_puts(out, ", \"rank\": ");
    if (rank >= 0) out_number(out, (uint64_t)rank);
    else out_puts(out, "null");
    out_puts(out, ", \"writer\": \"tfanalyze " TFI_VERSION "\"}");
}

static void write_event(struct copy *copy, struct target *target, const struct kineto_event *event)
{
    if (target->seen == copy->events) return;
    target->seen = copy->events;
    target->events += event->phase != 'M';
    if (target->taker) {
        const struct event given = event_of_file(event);
        target->taker->event(target->taker->context, &given);
        return;
    }
    if (!target->in_events) {
        out_puts(&target->out, ",\n\"traceEvents\": [");
        target->in_events = true;
    }
    out_puts(&target->out, target->written++ ? ",\n" : "\n");
    if (copy->checked != copy->events) { /* once per event, for all targets */
        copy->checked = copy->events;
        copy->valid = event->has & HAS_CLEAN ? event->raw : strict_json(&copy->strict, event->raw);
    }
    out_write(&target->out, copy->valid.at, copy->valid.length);
}

/* Returns the bit of the target of this stage's name; 0 if it has none. */
static uint64_t bit_of(const struct copy *copy, uint32_t stage)
{
    uint32_t target = copy->targets->of_name[copy->process->ranges.name[stage]];
    return target == NO_PLACE ? 0 : UINT64_C(1) << target;
}

static void find_targets(struct copy *copy)
{
    const struct attribution *a = copy->attribution;
    const struct ranges *r = &copy->process->ranges;
    copy->of_stage = mem_zero(r->table.count, sizeof *copy->of_stage);
    copy->all_until = mem_zero(r->table.count, sizeof *copy->all_until);
    for (size_t i = 0; i < r->table.count; i++) {
        copy->of_stage[i] = bit_of(copy, (uint32_t)i);
        copy->all_until[i] = INT64_MAX;
    }
    for (size_t i = 0; i < a->stages; i++) { /* the order has outer stages first */
        size_t at = a->order[i];
        uint32_t outer = a->paths.outer[at];
        if (outer != NO_PLACE) {
            copy->of_stage[at] |= copy->of_stage[outer];
            copy->all_until[at] = MIN(copy->all_until[outer], r->end[outer]);
        }
    }
    copy->paths = mem_zero(copy->targets->count, sizeof *copy->paths);
}

/* True if a stage of the target was open at `time`. A stage around this one may end earlier, as ranges may cross. */
static bool is_inside(struct copy *copy, uint32_t target, uint32_t stage, int64_t time)
{
    struct stage_paths *paths = &copy->paths[target];
    if (!paths->ranges) *paths = chosen_paths(copy->attribution, copy->targets->of_name, target);
    return stage_or_around(paths, stage, time) != NO_PLACE;
}

/* Writes an event to the targets of a stage and of the stages around it that were open at the time. */
static void write_for_stage(struct copy *copy, uint32_t stage, int64_t time, const struct kineto_event *event)
{
    uint64_t targets = stage == NO_PLACE ? 0 : copy->of_stage[stage];
    for (; targets; targets &= targets - 1) {
        uint32_t target = (uint32_t)__builtin_ctzll(targets);
        if (copy->all_until[stage] > time || is_inside(copy, target, stage, time))
            write_event(copy, &copy->targets->target[target], event);
    }
}

/* ---- the second pass ---- */

static bool in_window(const struct copy *copy, const struct kineto_event *event)
{
    const struct targets *t = copy->targets;
    if (event->phase == 'M' || (t->from == INT64_MIN && t->to == INT64_MAX)) return true;
    int64_t end = event->ts;
    if (event->has & HAS_DUR && __builtin_add_overflow(event->ts, event->dur, &end)) end = INT64_MAX;
    return event->has & HAS_TS && event->ts < t->to && end >= t->from;
}

/* Sets the event's row. Its other members stay as they are. */
static void move_event(struct copy *copy, struct kineto_event *event, uint64_t row)
{
    struct slice rest = event->raw, key, value;
    const char *end = event->raw.at + event->raw.length;
    while (json_next(&rest, &key, &value)) {
        if (!json_is_key(key, "tid")) continue;
        copy->moved.length = 0;
        text_add(&copy->moved, event->raw.at, (size_t)(value.at - event->raw.at));
        text_format(&copy->moved, "%llu", (unsigned long long)row);
        text_add(&copy->moved, value.at + value.length, (size_t)(end - value.at) - value.length);
        event->raw = (struct slice){copy->moved.data, copy->moved.length};
        event->has &= ~(unsigned)HAS_CLEAN;
        return;
    }
}

/* Names a row of overlapping work, in all targets. */
static void describe_row(struct copy *copy, const struct kineto_event *of, size_t work, uint64_t row)
{
    const struct lane *lane = &copy->process->lane[copy->process->works.lane[work]];
    char *raw =
        string_format("{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %lld, \"tid\": %llu, \"ts\": 0, "
                      "\"args\": {\"name\": \"stream %lld, lane %u\"}}",
                      (long long)of->pid, (unsigned long long)row, (long long)lane->stream, copy->rows.lane[work] + 1);
    struct kineto_event event = {.raw = {raw, strlen(raw)}, .phase = 'M'};
    copy->events++;
    for (size_t i = 0; i < copy->targets->count; i++) write_event(copy, &copy->targets->target[i], &event);
    copy->events++;
    free(raw);
}

/* Moves work that overlaps other work of its stream, and the arrow that follows it, to a row of its own. */
static void move_overlapping(struct copy *copy, struct kineto_event *event)
{
    bool is_new;
    if (!copy->rows.lane) return;
    if (event->phase == 'f' && copy->moved_to && event->ts == copy->moved_at) move_event(copy, event, copy->moved_to);
    if (kineto_table(event, kineto_class(event->category, event->name)) != TABLE_WORKS) return;
    size_t work = copy->works++;
    copy->moved_to = 0;
    if (work >= copy->process->works.table.count || !copy->rows.lane[work] || !(event->has & HAS_PID)) return;
    if (copy->process->works.start[work] != (int64_t)((uint64_t)event->ts + (uint64_t)copy->base)) return;
    uint64_t row = work_row(&copy->rows, copy->process, work, &is_new);
    if (is_new) describe_row(copy, event, work, row);
    move_event(copy, event, row);
    copy->moved_to = row;
    copy->moved_at = event->ts;
}

static void copy_event(void *context, const struct kineto_event *in_file)
{
    struct copy *copy = context;
    struct kineto_event own = *in_file, *event = &own;
    struct kineto_place place;
    bool has_place = copy->places && kineto_places_next(copy->places, in_file, &place);
    struct dump_choice *filter = copy->targets->filter;
    bool wanted = !filter || dump_choice_has_event(filter, in_file) || event->phase == 'M';
    copy->events++;
    move_overlapping(copy, event);
    if (__builtin_add_overflow(event->ts, copy->base, &event->ts)) event->ts = INT64_MAX; /* the model's time */
    if (!wanted || !in_window(copy, event)) return;
    for (size_t i = 0; i < copy->targets->count; i++) {
        struct target *target = &copy->targets->target[i];
        bool left_out = target->taker && target->taker->only_kept && !kineto_is_kept(in_file);
        if (left_out) continue;
        if (target->whole || event->phase == 'M') write_event(copy, target, event);
    }
    if (has_place) write_for_stage(copy, place.at.stage, place.at.time, event);
}

static void copy_member(void *context, struct slice key, struct slice value)
{
    struct copy *copy = context;
    if (slice_is(key, "tfinject")) return;
    struct slice valid = copy->targets->target[0].taker ? value : strict_json(&copy->strict, value);
    for (size_t i = 0; i < copy->targets->count; i++) {
        struct target *target = &copy->targets->target[i];
        if (target->taker) {
            if (target->taker->member) target->taker->member(target->taker->context, key, value);
            continue;
        }
        out_puts(&target->out, target->in_events ? "\n],\n" : ",\n");
        target->in_events = false;
        out_json_string(&target->out, key.at, key.length);
        out_puts(&target->out, ": ");
        out_write(&target->out, valid.at, valid.length);
    }
}

/* Begins all targets. Returns true if some target is not whole. */
static bool begin_targets(struct copy *copy)
{
    bool parts = false;
    for (size_t i = 0; i < copy->targets->count; i++) {
        struct target *target = &copy->targets->target[i];
        parts |= !target->whole;
        if (target->taker) continue;
        out_puts(&target->out, "{");
        put_writer(&target->out, target->artefact, target->stage, copy->process->rank);
    }
    return parts;
}

/* Ends all targets. Readers expect traceEvents even if there are none. */
static void end_targets(struct copy *copy)
{
    for (size_t i = 0; i < copy->targets->count; i++) {
        struct target *target = &copy->targets->target[i];
        if (target->taker) continue;
        if (!target->written) {
            out_puts(&target->out, ",\n\"traceEvents\": [");
            target->in_events = true;
        }
        out_puts(&target->out, target->in_events ? "\n]}\n" : "}\n");
    }
}

bool export_kineto(struct targets *targets, const struct selection *chosen, const struct process *process,
                   const struct attribution *attribution)
{
    struct copy copy = {.targets = targets, .process = process, .attribution = attribution};
    copy.base = kineto_base(process);
    if (!targets->target[0].taker) work_rows_init(&copy.rows, process);
    struct kineto_sink sink = {&copy, copy_event, copy_member, !targets->filter && !targets->target[0].taker};
    struct kineto_damage damage;
    struct notes notes = {0};
    atomic_ullong done = 0;
    if (begin_targets(&copy)) {
        copy.places = kineto_places_open(&chosen->model->names, process, attribution);
        find_targets(&copy);
    }
    bool read = kineto_read(process->path, &process->way, &sink, &damage, &notes, &done);
    if (!read && !notes_have(&chosen->inputs->input[process->input].notes, UNUSABLE))
        complain(process->path, "cannot be read a second time");
    end_targets(&copy);
    notes_free(&notes);
    for (size_t i = 0; copy.paths && i < targets->count; i++) stage_paths_free(&copy.paths[i]);
    kineto_places_close(copy.places);
    free(copy.paths);
    work_rows_next(&copy.rows);
    text_free(&copy.moved);
    strict_free(&copy.strict);
    free(copy.of_stage);
    free(copy.all_until);
    return read;
}

/* Writes or gives away all events, or those of the stages whose value in `of_name` is 0. */
static bool export_one(const struct selection *chosen, const struct process *process, struct target *target,
                       const uint32_t *of_name)
{
    struct dump_choice filter;
    struct targets targets = {.target = target, .count = 1, .of_name = of_name};
    selection_window(chosen, &targets.from, &targets.to);
    target->whole = !of_name || (!has_stages(process) && of_name[NAME_RUN] == 0);
    dump_choice_init(&filter, chosen, process);
    if (!target->whole) scope_attribute(&filter.scope);
    targets.filter = filter.asked ? &filter : NULL;
    bool read = export_kineto(&targets, chosen, process, &filter.scope.attribution);
    dump_choice_free(&filter);
    return read;
}

uint64_t export_kineto_whole(const struct selection *chosen, const struct process *process, struct out *out,
                             const char *artefact, const uint32_t *of_name)
{
    struct target target = {.out = *out, .artefact = artefact};
    export_one(chosen, process, &target, of_name);
    *out = target.out;
    return target.events;
}

bool export_kineto_events(const struct selection *chosen, const struct process *process,
                          const struct event_taker *taker, uint64_t *events)
{
    struct target target = {.taker = taker};
    taker->begin(taker->context, process, process->pid);
    bool read = export_one(chosen, process, &target, chosen->stages);
    taker->end(taker->context);
    *events += target.events;
    return read;
}
