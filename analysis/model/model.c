/* model.c - fills and frees the tables of a process, and finds what they hold. */
#include "model/model.h"

#include "base/hash.h"
#include "model/beginnings.h"
#include "model/host/whole_run.h"
#include "model/needs/guard.h"
#include "model/replays/captured_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tables ---- */

#define COLUMN(table, column)                                                                                          \
    {                                                                                                                  \
        offsetof(struct table, column), sizeof *((struct table *)0)->column                                            \
    }

/* The details come last, so that a table without them has the same layout, one column shorter. */
static const struct layout range_layout[] = {COLUMN(ranges, start), COLUMN(ranges, end),    COLUMN(ranges, id),
                                             COLUMN(ranges, name),  COLUMN(ranges, thread), COLUMN(ranges, domain),
                                             COLUMN(ranges, flags), COLUMN(ranges, depth),  COLUMN(ranges, step),
                                             COLUMN(ranges, cpu),   COLUMN(ranges, detail)};
static const struct layout whole_layout[] = {COLUMN(wholes, start), COLUMN(wholes, end), COLUMN(wholes, range),
                                             COLUMN(wholes, pieces)};
static const struct layout pause_layout[] = {COLUMN(pauses, time), COLUMN(pauses, id), COLUMN(pauses, thread),
                                             COLUMN(pauses, is_resume)};
static const struct layout block_layout[] = {
    COLUMN(blocks, time),     COLUMN(blocks, bytes),  COLUMN(blocks, address), COLUMN(blocks, allocated),
    COLUMN(blocks, reserved), COLUMN(blocks, device), COLUMN(blocks, thread),  COLUMN(blocks, allocator),
    COLUMN(blocks, stack),    COLUMN(blocks, other),  COLUMN(blocks, kind)};
static const struct layout begin_layout[] = {COLUMN(begins, time),   COLUMN(begins, id),     COLUMN(begins, name),
                                             COLUMN(begins, thread), COLUMN(begins, domain), COLUMN(begins, flags),
                                             COLUMN(begins, depth),  COLUMN(begins, waits),  COLUMN(begins, detail)};
static const struct layout mark_layout[] = {COLUMN(marks, time),   COLUMN(marks, name),  COLUMN(marks, thread),
                                            COLUMN(marks, domain), COLUMN(marks, flags), COLUMN(marks, detail)};
static const struct layout call_layout[] = {COLUMN(calls, start), COLUMN(calls, end),      COLUMN(calls, result),
                                            COLUMN(calls, func),  COLUMN(calls, thread),   COLUMN(calls, error),
                                            COLUMN(calls, span),  COLUMN(calls, first_arg)};
static const struct layout look_layout[] = {COLUMN(looks, start), COLUMN(looks, end),   COLUMN(looks, cpu),
                                            COLUMN(looks, tid),   COLUMN(looks, stack), COLUMN(looks, call),
                                            COLUMN(looks, count), COLUMN(looks, flags)};
static const struct layout message_layout[] = {COLUMN(messages, time), COLUMN(messages, text), COLUMN(messages, level)};

static const struct layout span_layout[] = {COLUMN(spans, start), COLUMN(spans, end),    COLUMN(spans, id),
                                            COLUMN(spans, name),  COLUMN(spans, thread), COLUMN(spans, event_class)};
static const struct layout work_layout[] = {COLUMN(works, start),      COLUMN(works, end),  COLUMN(works, correlation),
                                            COLUMN(works, external),   COLUMN(works, name), COLUMN(works, lane),
                                            COLUMN(works, event_class)};
static const struct layout stage_time_layout[] = {COLUMN(stage_times, range), COLUMN(stage_times, start),
                                                  COLUMN(stage_times, end), COLUMN(stage_times, busy),
                                                  COLUMN(stage_times, lane)};
static const struct layout forward_layout[] = {COLUMN(forwards, id), COLUMN(forwards, time), COLUMN(forwards, thread),
                                               COLUMN(forwards, is_forward)};

void ranges_reserve(struct ranges *ranges, size_t more, bool details)
{
    table_reserve(ranges, range_layout, ARRAY_SIZE(range_layout) - !details, more);
}

void marks_reserve(struct marks *marks, size_t more, bool details)
{
    table_reserve(marks, mark_layout, ARRAY_SIZE(mark_layout) - !details, more);
}

/* Reserves one more entry than calls, for the end of the last call's arguments. */
void calls_reserve(struct calls *calls, size_t more, bool details)
{
    table_reserve(calls, call_layout, ARRAY_SIZE(call_layout) - !details, more + 1);
}

void looks_reserve(struct looks *looks, size_t more)
{
    table_reserve(looks, look_layout, ARRAY_SIZE(look_layout), more);
}

void messages_reserve(struct messages *messages, size_t more)
{
    table_reserve(messages, message_layout, ARRAY_SIZE(message_layout), more);
}

void spans_reserve(struct spans *spans, size_t more)
{
    table_reserve(spans, span_layout, ARRAY_SIZE(span_layout), more);
}

void works_reserve(struct works *works, size_t more)
{
    table_reserve(works, work_layout, ARRAY_SIZE(work_layout), more);
}

void pauses_reserve(struct pauses *pauses, size_t more)
{
    table_reserve(pauses, pause_layout, ARRAY_SIZE(pause_layout), more);
}

void wholes_reserve(struct wholes *wholes, size_t more)
{
    table_reserve(wholes, whole_layout, ARRAY_SIZE(whole_layout), more);
}

void blocks_reserve(struct blocks *blocks, size_t more)
{
    table_reserve(blocks, block_layout, ARRAY_SIZE(block_layout), more);
}

void range_inputs_add(struct process *process, uint64_t key, const struct op_detail *inputs)
{
    size_t at = process->range_input_count++;
    process->range_input =
        mem_grow(process->range_input, &process->range_input_capacity, at + 1, sizeof *process->range_input);
    process->range_input[at] = *inputs;
    map_put(&process->range_inputs, key, (uint32_t)at);
}

const struct op_detail *range_inputs(const struct process *process, size_t range)
{
    uint32_t at = map_get(&process->range_inputs, is_of_kineto(process) ? range : process->ranges.id[range]);
    return at == MAP_NONE ? NULL : &process->range_input[at];
}

struct work_detail *works_detail(struct works *works, bool details)
{
    if (!details) return NULL;
    works->detail = mem_grow(works->detail, &works->detail_capacity, works->table.count, sizeof *works->detail);
    struct work_detail *detail = &works->detail[works->table.count - 1];
    *detail = (struct work_detail){0};
    return detail;
}

void process_copied(struct process *process, struct copied copied)
{
    process->copied =
        mem_grow(process->copied, &process->copied_capacity, process->copied_count + 1, sizeof *process->copied);
    process->copied[process->copied_count++] = copied;
}

void calls_free(struct calls *calls)
{
    table_free(calls, call_layout, ARRAY_SIZE(call_layout));
    *calls = (struct calls){0};
}

bool selects_stages(const struct process *process)
{
    return process->names_asked && strcmp(process->names_asked, "*") != 0;
}

void stage_times_reserve(struct stage_times *times, size_t more)
{
    table_reserve(times, stage_time_layout, ARRAY_SIZE(stage_time_layout), more);
}

void forwards_reserve(struct forwards *forwards, size_t more)
{
    table_reserve(forwards, forward_layout, ARRAY_SIZE(forward_layout), more);
}

/* ---- a process ---- */

void process_init(struct process *process, const char *path, const char *kind)
{
    *process = (struct process){.path = string_format("%s", path), .kind = kind, .rank = -1, .world = -1, .pid = -1};
}

struct thread *process_thread(struct process *process, uint32_t serial)
{
    uint32_t place = map_get(&process->thread_of, serial);
    if (place == MAP_NONE) {
        place = (uint32_t)process->threads;
        process->thread =
            mem_grow(process->thread, &process->thread_capacity, process->threads + 1, sizeof *process->thread);
        process->thread[process->threads++] = (struct thread){.serial = serial, .pid = -1};
        map_put(&process->thread_of, serial, place);
    }
    return &process->thread[place];
}

/* Finds or adds a lane by a hash of the three values; on a collision the next key is tried. */
uint32_t process_lane(struct process *process, int64_t device, int64_t stream, bool has_stream)
{
    uint64_t key = hash_numbers((uint64_t)stream, (uint64_t)device) ^ has_stream;
    uint32_t place;
    for (; (place = map_get(&process->lane_of, key)) != MAP_NONE; key += 0x9e3779b97f4a7c15u) {
        const struct lane *lane = &process->lane[place];
        if (lane->stream == stream && lane->device == device && lane->has_stream == has_stream) return place;
    }
    process->lane = mem_grow(process->lane, &process->lane_capacity, process->lanes + 1, sizeof *process->lane);
    process->lane[process->lanes] = (struct lane){device, stream, has_stream};
    map_put(&process->lane_of, key, (uint32_t)process->lanes);
    return (uint32_t)process->lanes++;
}

void process_count(struct process *process, uint32_t kind, const char *name, uint64_t count)
{
    size_t i = 0;
    while (i < process->kind_count && process->kinds[i].kind < kind) i++;
    if (i == process->kind_count || process->kinds[i].kind != kind) {
        process->kinds =
            mem_grow(process->kinds, &process->kind_capacity, process->kind_count + 1, sizeof *process->kinds);
        memmove(process->kinds + i + 1, process->kinds + i, (process->kind_count - i) * sizeof *process->kinds);
        process->kinds[i] = (struct count){kind, name ? string_format("%s", name) : string_format("kind%u", kind), 0};
        process->kind_count++;
    }
    process->kinds[i].count += count;
    process->events += count;
}

void process_lose(struct process *process, const char *cause, uint64_t count, bool lost)
{
    if (!count) return;
    process->losses =
        mem_grow(process->losses, &process->loss_capacity, process->loss_count + 1, sizeof *process->losses);
    process->losses[process->loss_count++] = (struct loss){string_format("%s", cause), count, lost};
    process->lost += lost ? count : 0;
}

/* ---- beginnings and ends of ranges ---- */

size_t begins_add(struct begins *begins, uint64_t id, bool details)
{
    size_t place;
    if (begins->free) {
        place = begins->free - 1;
        begins->free = begins->thread[place];
    } else {
        table_reserve(begins, begin_layout, ARRAY_SIZE(begin_layout) - !details, 1);
        place = begins->table.count++;
    }
    begins->id[place] = id;
    begins->waits[place] = true;
    map_put(&begins->by_id, id, (uint32_t)place);
    return place;
}

/* Completes a range from its beginning. Returns false if the beginning is not read yet. A range of unknown duration
 * takes its start from the beginning. */
static bool meet(struct process *process, size_t range, bool details)
{
    struct begins *begins = &process->begins;
    struct ranges *ranges = &process->ranges;
    uint32_t place = map_get(&begins->by_id, ranges->id[range]);
    if (place == MAP_NONE) return false;
    if (details) ranges->detail[range] = begins->detail[place];
    if (ranges->flags[range] & TFI_RANGE_UNTRACKED) {
        ranges->start[range] = (int64_t)MIN((uint64_t)begins->time[place], (uint64_t)ranges->end[range]);
        ranges->flags[range] &= ~(uint32_t)TFI_RANGE_UNTRACKED;
    }
    map_remove(&begins->by_id, ranges->id[range]);
    begins->waits[place] = false;
    begins->thread[place] = begins->free;
    begins->free = place + 1;
    return true;
}

void begins_meet(struct process *process, bool details)
{
    struct begins *begins = &process->begins;
    size_t range = process->ranges.table.count - 1;
    if (!meet(process, range, details)) {
        begins->early = mem_grow(begins->early, &begins->early_capacity, begins->earlies + 1, sizeof *begins->early);
        begins->early[begins->earlies++] = range;
    }
}

void begins_meet_early(struct process *process, bool details)
{
    for (size_t i = 0; i < process->begins.earlies; i++) meet(process, process->begins.early[i], details);
}

void begins_free(struct begins *begins)
{
    map_free(&begins->by_id);
    free(begins->early);
    table_free(begins, begin_layout, ARRAY_SIZE(begin_layout));
    *begins = (struct begins){0};
}

static void tables_free(struct process *process)
{
    table_free(&process->ranges, range_layout, ARRAY_SIZE(range_layout));
    table_free(&process->wholes, whole_layout, ARRAY_SIZE(whole_layout));
    table_free(&process->pauses, pause_layout, ARRAY_SIZE(pause_layout));
    table_free(&process->blocks, block_layout, ARRAY_SIZE(block_layout));
    map_free(&process->blocks.untold);
    map_free(&process->ooms.untold);
    table_free(&process->ooms, block_layout, ARRAY_SIZE(block_layout));
    table_free(&process->grants, block_layout, ARRAY_SIZE(block_layout));
    tensors_free(&process->tensors);
    begins_free(&process->begins);
    free(process->lost_ends.stage);
    table_free(&process->marks, mark_layout, ARRAY_SIZE(mark_layout));
    calls_free(&process->calls);
    ios_free(&process->ios);
    table_free(&process->looks, look_layout, ARRAY_SIZE(look_layout));
    table_free(&process->messages, message_layout, ARRAY_SIZE(message_layout));
    op_details_free(&process->spans.details);
    table_free(&process->spans, span_layout, ARRAY_SIZE(span_layout));
    table_free(&process->works, work_layout, ARRAY_SIZE(work_layout));
    table_free(&process->stage_times, stage_time_layout, ARRAY_SIZE(stage_time_layout));
    table_free(&process->forwards, forward_layout, ARRAY_SIZE(forward_layout));
    collectives_free(&process->collectives);
}

static void graphs_free(struct graphs *graphs)
{
    free(graphs->node);
    free(graphs->source);
    free(graphs->node_of_work);
    free(graphs->run);
    free(graphs->matched);
    if (graphs->calls) free(graphs->calls->op);
    free(graphs->calls);
    map_free(&graphs->whole_of);
    map_free(&graphs->kernel_of);
}

static void maps_free(struct process *process)
{
    struct map *maps[] = {
        &process->described, &process->stage_names.known, &process->thread_of,    &process->func_of,
        &process->lane_of,   &process->device_of,         &process->category_of,  &process->folded,
        &process->full_name, &process->range_of_id,       &process->uncorrelated, &process->range_inputs,
        &process->arrows};
    for (size_t i = 0; i < ARRAY_SIZE(maps); i++) map_free(maps[i]);
}

/* Frees what each element of a list owns, then the lists. */
static void lists_free(struct process *process)
{
    for (size_t i = 0; i < process->funcs; i++) func_free(&process->func[i]);
    for (size_t i = 0; i < process->kind_count; i++) free(process->kinds[i].name);
    for (size_t i = 0; i < process->loss_count; i++) free(process->losses[i].cause);
    if (process->metadata) pairs_free(process->metadata);
    void *lists[] = {process->metadata,         process->func,          process->kinds,         process->losses,
                     process->thread,           process->args,          process->category,      process->lane,
                     process->streamed,         process->device,        process->works.detail,  process->copied,
                     process->numbers.span,     process->numbers.work,  process->stage_memory,  process->switching,
                     process->signature,        process->elsewhere,     process->sample,        process->open,
                     process->silence,          process->communicator,  process->filling,       process->counters.range,
                     process->counters.counted, process->numbers.range, process->in_file.piece, process->block.bytes,
                     process->stage_names.name, process->python_call,   process->range_input,   process->waited,
                     process->memory_row,       process->segment};
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) free(lists[i]);
}

void process_free(struct process *process)
{
    char **texts[] = {&process->path,         &process->host,      &process->command, &process->directory,
                      &process->clock_name,   &process->version,   &process->ended,   &process->names_asked,
                      &process->stages_asked, &process->activities};
    guard_lift(process);
    whole_run_free(process->ring.whole);
    tables_free(process);
    graphs_free(&process->graphs);
    lists_free(process);
    maps_free(process);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) free(*texts[i]);
    reveals_free(&process->reveals);
    machine_free(&process->machine);
    startup_free(&process->startup);
    bits_free(&process->unlinked);
    clock_free(&process->clock);
    *process = (struct process){0};
}

void process_forget(struct process *process)
{
    struct process kept = {.input = process->input,
                           .path = process->path,
                           .way = process->way,
                           .is_of_reader = process->is_of_reader,
                           .kind = process->kind,
                           .rank = process->rank,
                           .world = process->world,
                           .pid = process->pid,
                           .host = process->host,
                           .complete = process->complete,
                           .health = process->health,
                           .has_device_work = process->has_device_work,
                           .time_unit = process->time_unit,
                           .has_time = process->has_time,
                           .first = process->first,
                           .last = process->last,
                           .clock.has_axis = process->clock.has_axis,
                           .events = process->events,
                           .lost = process->lost,
                           .read_at = process->read_at,
                           .life = process->life,
                           .is_life_known = process->is_life_known,
                           .device = process->device,
                           .devices = process->devices};
    process->path = process->host = NULL;
    process->device = NULL;
    process_free(process);
    *process = kept;
}

/* ---- the model ---- */

void model_init(struct model *model)
{
    *model = (struct model){0};
    names_init(&model->names);
}

void model_free(struct model *model)
{
    for (size_t i = 0; i < model->processes; i++) process_free(&model->process[i]);
    free(model->process);
    names_free(&model->names);
    *model = (struct model){0};
}

const char *model_name(const struct model *model, uint32_t name)
{
    return names_get(&model->names, name)->text;
}

const struct thread *find_thread(const struct process *process, uint32_t serial)
{
    uint32_t place = map_get(&process->thread_of, serial);
    return place == MAP_NONE ? NULL : &process->thread[place];
}

const struct device *find_device(const struct process *process, int64_t number)
{
    uint32_t place = map_get(&process->device_of, (uint64_t)number);
    return place == MAP_NONE ? NULL : &process->device[place];
}

void device_uuid(const struct device *device, char text[DEVICE_UUID])
{
    uint64_t high = device->uuid[0], low = device->uuid[1];
    snprintf(text, DEVICE_UUID, "GPU-%08x-%04x-%04x-%04x-%012llx", (unsigned)(high >> 32),
             (unsigned)(high >> 16 & 0xffff), (unsigned)(high & 0xffff), (unsigned)(low >> 48),
             (unsigned long long)(low & 0xffffffffffff));
}

const char *find_category(const struct model *model, const struct process *process, uint32_t domain, uint32_t category)
{
    uint32_t place = map_get(&process->category_of, (uint64_t)domain << 32 | category);
    return place == MAP_NONE ? NULL : model_name(model, process->category[place].name);
}

uint32_t *no_places(size_t count)
{
    uint32_t *places = mem_zero(count, sizeof *places);
    memset(places, 0xff, count * sizeof *places);
    return places;
}

int64_t kineto_base(const struct process *process)
{
    uint64_t base;
    bool has_base = process->metadata && pairs_number(process->metadata, "baseTimeNanoseconds", &base);
    return has_base ? (int64_t)base : 0;
}
