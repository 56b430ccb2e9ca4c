/* export_kineto.c - reads a Kineto trace again, and gives its events to the outputs of an export.
 *
 * ask/kineto_places.h determines the stage of each event. Events without a row of a process (the profiler's own marks) go
 * only to whole outputs. Events stay as they are, except that where they are drawn, work which overlaps other work of its
 * stream gets another row, and work of a replayed graph gets arguments with its operator if a capture is known.
 */
#include "write/export/export_kineto.h"

#include <stdlib.h>
#include <string.h>

#include "ask/kineto_places.h"
#include "model/graphs.h"
#include "model/load/load_kineto.h"
#include "model/replays/captured_ops.h"
#include "write/export/captured_args.h"
#include "write/work_rows.h"

const struct needs export_kineto_needs = {
    .traces = true, .ranges = true, .device = true, .launches = true, .operators = true, .captures = true};

struct copy {
    struct targets *targets;
    const struct process *process;
    struct kineto_places *places; /* NULL: all targets are whole */
    int64_t base;
    struct work_rows rows; /* rows of overlapping work, if the events are drawn */
    size_t works;          /* works read so far: the next one's index in the model */
    int64_t moved_at;      /* start of the work read last, and its new row; 0: it keeps its row */
    uint64_t moved_to;
    struct text moved, captured; /* an event with another row, and one with more arguments */
    struct names *names;
};

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
    const struct event event = {.raw = {raw, strlen(raw)}, .phase = 'M'};
    targets_event(copy->targets, &event, true, NULL);
    free(raw);
}

/* Returns the next work's index in the model if the event is work that the model has; SIZE_MAX otherwise. */
static size_t next_work(struct copy *copy, const struct kineto_event *event)
{
    if (kineto_table(event, kineto_class(event->category, event->name)) != TABLE_WORKS) return SIZE_MAX;
    size_t work = copy->works++;
    if (work >= copy->process->works.table.count) return SIZE_MAX;
    return copy->process->works.start[work] == (int64_t)((uint64_t)event->ts + (uint64_t)copy->base) ? work : SIZE_MAX;
}

/* Appends a JSON string. Outputs escape what else is unsafe in it, as in the rest of the event. */
static void put_string(struct text *text, const char *bytes, size_t length)
{
    text_puts(text, "\"");
    for (size_t i = 0; i < length; i++) {
        bool is_control = (unsigned char)bytes[i] < ' ';
        if (is_control) text_format(text, "\\u%04x", bytes[i]);
        if (bytes[i] == '"' || bytes[i] == '\\') text_puts(text, "\\");
        if (!is_control) text_add(text, &bytes[i], 1);
    }
    text_puts(text, "\"");
}

static void put_captured(struct text *text, const struct copy *copy, const struct graph_node *node)
{
    static const struct op_detail unknown;
    struct captured_arg arg[CAPTURED_ARGS];
    bool known = node->call != NO_PLACE;
    const struct op_detail *detail = known ? &copy->process->graphs.calls->op[node->call].detail : &unknown;
    size_t count = captured_args(copy->names, node, node->op, detail, arg);
    for (size_t i = 0; i < count; i++) {
        text_format(text, "%s\"%s\": ", i ? ", " : "", arg[i].key);
        put_string(text, arg[i].text, arg[i].length);
        text_free(&arg[i].made);
    }
}

/* Adds the operator of a replayed node to the arguments of its work. */
static void add_captured(struct copy *copy, struct kineto_event *event, size_t work)
{
    const struct graphs *g = &copy->process->graphs;
    struct slice args = event->args, rest = args, key, value;
    const char *end = event->raw.at + event->raw.length;
    if (work == SIZE_MAX || !g->matched || g->matched[work] >= (uint32_t)NOT_MATCHED) return;
    if (!args.at || *args.at != '{' || args.at < event->raw.at || args.at >= end) return;
    size_t before = (size_t)(args.at - event->raw.at) + 1;
    copy->captured.length = 0;
    text_add(&copy->captured, event->raw.at, before);
    put_captured(&copy->captured, copy, &g->node[g->matched[work]]);
    if (copy->captured.length == before) return;
    if (json_next(&rest, &key, &value)) text_puts(&copy->captured, ", ");
    size_t added = copy->captured.length - before;
    text_add(&copy->captured, args.at + 1, (size_t)(end - args.at) - 1);
    event->raw = (struct slice){copy->captured.data, copy->captured.length};
    event->args = (struct slice){copy->captured.data + before - 1, args.length + added};
    event->has &= ~(unsigned)HAS_CLEAN;
}

/* Moves work that overlaps other work of its stream, and the arrow that follows it, to a row of its own. */
static void move_overlapping(struct copy *copy, struct kineto_event *event, size_t work)
{
    bool is_new;
    if (!copy->rows.lane) return;
    if (event->phase == 'f' && copy->moved_to && event->ts == copy->moved_at) move_event(copy, event, copy->moved_to);
    if (kineto_table(event, kineto_class(event->category, event->name)) != TABLE_WORKS) return;
    copy->moved_to = 0;
    if (work == SIZE_MAX || !copy->rows.lane[work] || !(event->has & HAS_PID)) return;
    uint64_t row = work_row(&copy->rows, copy->process, work, &is_new);
    if (is_new) describe_row(copy, event, work, row);
    move_event(copy, event, row);
    copy->moved_to = row;
    copy->moved_at = event->ts;
}

static void export_kineto_event(void *context, const struct kineto_event *in_file)
{
    struct copy *copy = context;
    struct kineto_event own = *in_file;
    struct kineto_place place;
    bool has_place = copy->places && kineto_places_next(copy->places, in_file, &place);
    struct dump_choice *filter = copy->targets->filter;
    bool wanted = !filter || dump_choice_has_event(filter, in_file) || in_file->phase == 'M';
    size_t work = next_work(copy, &own);
    add_captured(copy, &own, work);
    move_overlapping(copy, &own, work);
    if (__builtin_add_overflow(own.ts, copy->base, &own.ts)) own.ts = INT64_MAX; /* the model's time */
    const struct event event = event_of_file(&own);
    if (wanted) targets_event(copy->targets, &event, kineto_is_kept(in_file), has_place ? &place.at : NULL);
}

static void export_kineto_member(void *context, struct slice key, struct slice value)
{
    struct copy *copy = context;
    if (!slice_is(key, "tfinject")) targets_member(copy->targets, key, value);
}

bool export_kineto(struct targets *targets, const struct selection *chosen, struct notes *notes)
{
    const struct process *process = targets->process;
    struct copy copy = {.targets = targets, .process = process, .names = &chosen->model->names};
    bool is_drawn = targets->count && targets->target[0].taker.is_drawn;
    struct kineto_sink sink = {&copy, export_kineto_event, export_kineto_member, !targets->filter && is_drawn};
    struct kineto_damage damage;
    atomic_ullong done = 0;
    copy.base = kineto_base(process);
    if (is_drawn) work_rows_init(&copy.rows, process);
    if (targets->by_stage) copy.places = kineto_places_open(&chosen->model->names, process, targets->attribution);
    bool read = kineto_read(process->path, &process->way, &sink, &damage, notes, &done);
    kineto_places_close(copy.places);
    work_rows_next(&copy.rows);
    text_free(&copy.moved);
    text_free(&copy.captured);
    return read;
}
