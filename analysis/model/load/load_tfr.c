/* load_tfr.c - fills the model from one of our traces: one function per kind of record that the model keeps. */
#include "model/load/load_tfr.h"

#include "model/other_profilers.h"
#include "model/join.h"
#include "model/host/whole_run.h"
#include "model/load/load.h"
#include "model/sweep/sweep.h"
#include "model/ranges/step_ranges.h"
#include "pattern.h"

#include <stdlib.h>
#include <string.h>

static bool details(const struct load *load)
{
    return load->needs.details;
}

static bool range_details(const struct load *load)
{
    return (load->needs.details || load->needs.payloads);
}

/* ---- the process ---- */

static void on_clock(struct load *load)
{
    const uint64_t *clock = load_column(load, COL_clock_clock), *ticks = load_column(load, COL_clock_ticks);
    const uint64_t *value = load_column(load, COL_clock_value), *error = load_column(load, COL_clock_error);
    for (uint32_t i = 0; i < load_rows(load); i++)
        clock_add(&load->process->clock, (uint32_t)clock[i], ticks[i], value[i], error[i]);
}

static void on_drop(struct load *load)
{
    const uint64_t *cause = load_column(load, COL_drop_cause), *count = load_column(load, COL_drop_count);
    for (uint32_t i = 0; i < load_rows(load); i++)
        if (cause[i] < TFI_MAX_DROPS) load->drops[cause[i]] = MAX(load->drops[cause[i]], count[i]);
}

static void on_message(struct load *load)
{
    struct messages *m = &load->process->messages;
    const uint64_t *text = load_column(load, COL_message_text), *level = load_column(load, COL_message_level);
    const uint64_t *time = load_column(load, COL_message_time);
    messages_reserve(m, load->group->count);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        size_t at = m->table.count++;
        m->time[at] = (int64_t)time[i];
        m->text[at] = load_name(load, text[i]);
        m->level[at] = (uint32_t)level[i];
    }
}

static void on_rank(struct load *load)
{
    const uint64_t *rank = load_column(load, COL_rank_rank), *world = load_column(load, COL_rank_world);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        load->process->rank = (int64_t)rank[i];
        load->process->world = (int64_t)world[i];
    }
}

static void on_category(struct load *load)
{
    struct process *p = load->process;
    const uint64_t *domain = load_column(load, COL_category_domain),
                   *category = load_column(load, COL_category_category);
    const uint64_t *name = load_column(load, COL_category_name);
    for (uint32_t i = 0; i < load_rows(load) && details(load); i++) {
        p->category = mem_grow(p->category, &p->category_capacity, p->categories + 1, sizeof *p->category);
        struct category c = {load_name(load, domain[i]), (uint32_t)category[i], load_name(load, name[i])};
        uint64_t key = (uint64_t)c.domain << 32 | c.category;
        if (map_get(&p->category_of, key) == MAP_NONE) map_put(&p->category_of, key, (uint32_t)p->categories);
        p->category[p->categories++] = c;
    }
}

/* ---- ranges and marks ---- */

static const uint64_t *detail_column(struct load *load, unsigned own)
{
    return range_details(load) ? load_column(load, own) : NULL;
}

static void on_range_begin(struct load *load)
{
    struct begins *b = &load->process->begins;
    const uint64_t *name = load_column(load, COL_range_begin_name), *time = load_column(load, COL_range_begin_time);
    const uint64_t *id = load_column(load, COL_range_begin_id), *flags = load_column(load, COL_range_begin_flags);
    const uint64_t *domain = load_column(load, COL_range_begin_domain),
                   *depth = load_column(load, COL_range_begin_depth);
    const uint64_t *category = detail_column(load, COL_range_begin_category),
                   *color = detail_column(load, COL_range_begin_color);
    const uint64_t *payload = detail_column(load, COL_range_begin_payload);
    const uint64_t *type = detail_column(load, COL_range_begin_payload_type);
    load_range_inputs(load, id);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        size_t at = begins_add(b, id[i], range_details(load));
        b->time[at] = (int64_t)time[i];
        b->name[at] = load_name(load, name[i]);
        b->thread[at] = load->piece->thread;
        b->domain[at] = load_name(load, domain[i]);
        b->flags[at] = (uint32_t)flags[i] & ~(RANGE_UNFINISHED | RANGE_CONTINUED);
        b->depth[at] = (uint32_t)depth[i];
        if (range_details(load)) {
            b->detail[at] =
                (struct range_detail){payload[i], (uint32_t)category[i], (uint32_t)color[i], (uint32_t)type[i]};
        }
    }
}

static void on_stage_name(struct load *load)
{
    struct stage_names *names = &load->process->stage_names;
    const uint64_t *string = load_column(load, COL_range_begin_name), *flags = load_column(load, COL_range_begin_flags);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        uint32_t name = flags[i] & TFI_RANGE_STAGE ? load_name(load, string[i]) : NAME_NONE;
        if (name == NAME_NONE || map_get(&names->known, name) != MAP_NONE) continue;
        map_put(&names->known, name, 1);
        names->name = mem_grow(names->name, &names->capacity, names->count + 1, sizeof *names->name);
        names->name[names->count++] = name;
    }
}

static void on_range_end(struct load *load)
{
    struct ranges *r = &load->process->ranges;
    const uint64_t *name = load_column(load, COL_range_end_name), *time = load_column(load, COL_range_end_time);
    const uint64_t *duration = load_column(load, COL_range_end_duration), *id = load_column(load, COL_range_end_id);
    const uint64_t *flags = load_column(load, COL_range_end_flags), *thread = load_column(load, COL_range_end_thread);
    const uint64_t *domain = load_column(load, COL_range_end_domain), *depth = load_column(load, COL_range_end_depth);
    const uint64_t *cpu = load_column(load, COL_range_end_cpu);
    ranges_reserve(r, load->group->count, range_details(load));
    for (uint32_t i = 0; i < load_rows(load); i++) {
        size_t at = r->table.count++;
        r->start[at] = (int64_t)(time[i] - MIN(duration[i], time[i]));
        r->end[at] = (int64_t)time[i];
        r->id[at] = id[i];
        r->name[at] = load_name(load, name[i]);
        r->thread[at] = (uint32_t)thread[i];
        r->domain[at] = load_name(load, domain[i]);
        r->flags[at] = (uint32_t)flags[i] & ~(RANGE_UNFINISHED | RANGE_CONTINUED);
        r->depth[at] = (uint32_t)depth[i];
        r->step[at] = NO_PLACE;
        r->cpu[at] = (int64_t)cpu[i] - 1;
        if (range_details(load)) r->detail[at] = (struct range_detail){0};
        begins_meet(load->process, range_details(load));
    }
}

static void on_mark(struct load *load)
{
    struct marks *m = &load->process->marks;
    const uint64_t *name = load_column(load, COL_mark_name), *time = load_column(load, COL_mark_time);
    const uint64_t *flags = load_column(load, COL_mark_flags), *domain = load_column(load, COL_mark_domain);
    const uint64_t *category = load_detail_column(load, COL_mark_category),
                   *color = load_detail_column(load, COL_mark_color);
    const uint64_t *payload = load_detail_column(load, COL_mark_payload),
                   *type = load_detail_column(load, COL_mark_payload_type);
    marks_reserve(m, load->group->count, details(load));
    for (uint32_t i = 0; i < load_rows(load); i++) {
        size_t at = m->table.count++;
        m->time[at] = (int64_t)time[i];
        m->name[at] = load_name(load, name[i]);
        m->thread[at] = load->piece->thread;
        m->domain[at] = load_name(load, domain[i]);
        m->flags[at] = (uint32_t)flags[i];
        if (details(load)) {
            m->detail[at] =
                (struct range_detail){payload[i], (uint32_t)category[i], (uint32_t)color[i], (uint32_t)type[i]};
        }
    }
}

/* ---- calls ---- */

/* Loads all function descriptions. They are the strings with separators in them. */
static void take_funcs(struct load *load)
{
    const struct strings *strings = &load->trace->strings;
    for (size_t i = 0; i < strings->count && load->needs.funcs; i++) {
        const struct string *string = &strings->string[i];
        if (memchr(string->text, '\x1f', string->length)) load_func(load, string->id);
    }
}

/* Appends the arguments of the calls to process->args, in the order of the calls. */
static void load_call_args(struct load *load, const uint64_t *values, const uint32_t *first)
{
    struct process *p = load->process;
    uint32_t total = values ? first[load->group->count] : 0;
    p->args = mem_grow(p->args, &p->arg_capacity, p->arg_count + total, sizeof *p->args);
    if (total) memcpy(p->args + p->arg_count, values, total * sizeof *values);
    for (uint32_t i = 0; i <= load->group->count; i++)
        p->calls.first_arg[p->calls.table.count + i] = p->arg_count + (values ? first[i] : 0);
    p->arg_count += total;
}

/* Calls of a device's libraries are needed even if no question needs calls: they give the exact times of launches. Calls of NCCL
 * tell which collectives a group contains. */
static bool is_wanted(const struct load *load, uint32_t func)
{
    const struct func *described = &load->process->func[func];
    bool is_nccl = load->needs.collectives && strcmp(described->library, "nccl") == 0;
    return load->needs.calls || is_nccl || is_device_call(described);
}

static void on_call(struct load *load)
{
    struct calls *c = &load->process->calls;
    const uint32_t *first = NULL;
    const uint64_t *func = load_column(load, COL_call_func), *time = load_column(load, COL_call_time);
    const uint64_t *duration = load_column(load, COL_call_duration), *result = load_column(load, COL_call_result);
    const uint64_t *error = load_column(load, COL_call_error);
    int args = load->group->kind->own[COL_call_args];
    bool with_args = load->needs.calls && details(load);
    const uint64_t *values = with_args ? group_list(&load->reader.decoder, load->group, args, &first) : NULL;
    if (load->group->damaged) return;
    calls_reserve(c, load->group->count, with_args);
    if (with_args) load_call_args(load, values, first);
    for (uint32_t i = 0; i < load->group->count; i++) {
        uint32_t place = load_func(load, func[i]);
        if (!is_wanted(load, place)) continue;
        size_t at = c->table.count++;
        c->start[at] = (int64_t)time[i];
        c->end[at] = load_end(time[i], duration[i]);
        c->result[at] = (int64_t)result[i];
        c->error[at] = (int32_t)error[i];
        c->thread[at] = load->piece->thread;
        c->func[at] = place;
        c->span[at] = NO_PLACE;
    }
}

/* A collective is a call too, without arguments. */
static void on_collective(struct load *load)
{
    struct calls *c = &load->process->calls;
    const uint64_t *func = load_column(load, COL_collective_func), *time = load_column(load, COL_collective_time);
    const uint64_t *duration = load_column(load, COL_collective_duration);
    const uint64_t *error = load_column(load, COL_collective_error);
    if (load->group->damaged) return;
    calls_reserve(c, load->group->count, details(load));
    if (details(load)) load_call_args(load, NULL, NULL);
    for (uint32_t i = 0; i < load->group->count; i++) {
        size_t at = c->table.count++;
        c->start[at] = (int64_t)time[i];
        c->end[at] = load_end(time[i], duration[i]);
        c->result[at] = (int32_t)error[i];
        c->error[at] = 0;
        c->thread[at] = load->piece->thread;
        c->func[at] = load_func(load, func[i]);
        c->span[at] = NO_PLACE;
    }
}

/* ---- every record ---- */

static const struct {
    uint16_t kind;
    struct needs needs; /* for any of these; none: always */
    void (*take)(struct load *load);
} takers[] = {
    {TFI_KIND_thread, {0}, load_threads},
    {TFI_KIND_thread_end, {0}, load_thread_ends},
    {TFI_KIND_thread_name, {0}, load_thread_names},
    {TFI_KIND_clock, {0}, on_clock},
    {TFI_KIND_drop, {0}, on_drop},
    {TFI_KIND_message, {.messages = true}, on_message},
    {TFI_KIND_rank, {0}, on_rank},
    {TFI_KIND_range_begin, {.ranges = true}, on_range_begin},
    {TFI_KIND_range_begin, {.stage_names = true}, on_stage_name},
    {TFI_KIND_range_end, {.ranges = true}, on_range_end},
    {TFI_KIND_mark, {.marks = true}, on_mark},
    {TFI_KIND_category, {.details = true}, on_category},
    {TFI_KIND_range_pause, {.ranges = true}, load_pauses},
    {TFI_KIND_range_resume, {.ranges = true}, load_resumes},
    {TFI_KIND_signature, {.signatures = true}, load_signatures},
    {TFI_KIND_stage_memory, {.ranges = true}, load_stage_memory},
    {TFI_KIND_metadata, {0}, load_metadata},
    {TFI_KIND_recording, {0}, load_switchings},
    {TFI_KIND_op, {.operators = true}, load_operators},
    {TFI_KIND_op, {.tensors = true}, load_tensor_operators},
    {TFI_KIND_tensors, {.tensors = true}, load_tensors},
    {TFI_KIND_memory, {.memory = true}, load_blocks},
    {TFI_KIND_oom, {.memory = true}, load_ooms},
    {TFI_KIND_call, {.calls = true, .launches = true}, on_call},
    {TFI_KIND_call, {.all_blocks = true, .grants = true}, load_cuda_blocks},
    {TFI_KIND_io, {.io = true}, load_ios},
    {TFI_KIND_call, {.open = true}, load_communicators},
    {TFI_KIND_io_sum, {.io = true}, load_io_sums},
    {TFI_KIND_collective, {.calls = true}, on_collective},
    {TFI_KIND_collective, {.collectives = true}, load_collectives},
    {TFI_KIND_framework_collective, {.collectives = true}, load_framework_collectives},
    {TFI_KIND_nccl_plan, {.collectives = true}, load_plans},
    {TFI_KIND_correlation, {.launches = true}, load_correlations},
    {TFI_KIND_device, {0}, load_device},
    {TFI_KIND_device_sample, {.samples = true}, load_samples},
    {TFI_KIND_kernel, {.device = true}, load_kernels},
    {TFI_KIND_copy, {.device = true}, load_copies},
    {TFI_KIND_set, {.device = true}, load_sets},
    {TFI_KIND_sync, {.device = true}, load_syncs},
    {TFI_KIND_graph_launch, {.device = true}, load_graph_launches},
    {TFI_KIND_stage_device, {.device = true}, load_stage_devices},
    {TFI_KIND_stage_work, {.device = true}, load_stage_works},
    {TFI_KIND_graph_node, {.device = true}, load_graph_nodes},
    {TFI_KIND_graph_source, {.device = true}, load_graph_sources},
    {TFI_KIND_elsewhere, {0}, load_elsewheres},
    {TFI_KIND_silence, {.open = true}, load_silences},
    {TFI_KIND_process_sample, {.machine = true}, load_process_samples},
    {TFI_KIND_thread_pool, {.machine = true}, load_thread_pools},
    {TFI_KIND_sample, {.looks = true}, load_looks},
    {TFI_KIND_startup, {.startup = true}, load_startup},
    {TFI_KIND_compile, {.startup = true}, load_compile},
    {TFI_KIND_aggregate, {0}, load_aggregates},
    {TFI_KIND_kept, {0}, load_kept},
};

static void extend(int64_t *first, int64_t *last, bool *has, uint64_t from, uint64_t to)
{
    *first = *has ? (int64_t)MIN((uint64_t)*first, from) : (int64_t)from;
    *last = *has ? (int64_t)MAX((uint64_t)*last, to) : (int64_t)to;
    *has = true;
}

/* Extends the lifetimes of the thread and the process to all times of the group. Clock readings, samples, the start and sums extend only the end: the first reading is from the library's constructor, long before any record. */
static void take_span(struct load *load)
{
    struct group *group = load->group;
    struct decoder *d = &load->reader.decoder;
    const uint64_t *time = group->kind ? group_values(d, group, group->kind->time) : NULL;
    uint64_t from = UINT64_MAX, to = 0;
    if (!time) return;
    const uint64_t *duration = group_values(d, group, group->kind->duration);
    bool is_end = group->kind->time_is_end;
    for (uint32_t i = 0; i < group->count; i++) {
        uint64_t lasts = duration ? duration[i] : 0, end = time[i] + (is_end ? 0 : lasts);
        from = MIN(from, time[i] - (is_end ? MIN(lasts, time[i]) : 0));
        to = MAX(to, MAX(end, time[i]));
    }
    if (to < load->process->ring.since) return; /* of the time before, the trace has a few records only */
    from = MAX(from, load->process->ring.since);
    if (group->number == TFI_KIND_clock || group->number == TFI_KIND_device_sample ||
        group->number == TFI_KIND_process_sample || group->number == TFI_KIND_sample ||
        group->number == TFI_KIND_startup || group->number == TFI_KIND_aggregate || group->number == TFI_KIND_kept) {
        load->last_clock = MAX(load->last_clock, to);
        if (group->number == TFI_KIND_sample) load->first_look = load->first_look ? MIN(load->first_look, from) : from;
        return;
    }
    extend(&load->process->first, &load->process->last, &load->process->has_time, from, to);
    if (load->piece->thread) {
        struct thread *thread = process_thread(load->process, load->piece->thread);
        thread->tid = thread->tid ? thread->tid : load->piece->tid;
        extend(&thread->first, &thread->last, &thread->has_time, from, to);
    }
}

/* True if the library recorded storages of tensors. */
static bool has_tensors(const struct trace *trace)
{
    const char *asked = trace_info(trace, "env.TFI_TENSOR_ADDRESSES");
    return asked && strcmp(asked, "0") != 0;
}

static void give_group(struct load *load)
{
    for (size_t i = 0; i < ARRAY_SIZE(takers); i++)
        if (takers[i].kind == load->group->number && needs_meet(takers[i].needs, load->needs)) takers[i].take(load);
}

static void take_group(struct load *load)
{
    struct group *group = load->group;
    if (!group->count) return;
    take_span(load);
    if (group->kind && !group->damaged) give_group(load);
    if (group->damaged) {
        load->trace->bad_records += group->count;
    } else {
        process_count(load->process, group->number, group->kind ? group->kind->name : NULL, group->count);
        load->unknown += group->kind ? 0 : group->count;
    }
}

static void take_chunk(struct load *load, const struct piece *piece, struct chunk *chunk)
{
    load->piece = piece;
    for (int begins = 1; begins >= 0; begins--) { /* beginnings first: most ranges end in the chunk where they begin */
        for (unsigned g = 0; g < chunk->groups; g++) {
            load->group = &chunk->group[g];
            if ((load->group->number == TFI_KIND_range_begin) == begins) take_group(load);
        }
    }
}

/* ---- the operators of a second reading ---- */

/* Takes the operators of a group whose other parts are loaded and counted. */
static void take_operators(struct load *load)
{
    struct group *group = load->group;
    if (group->number != TFI_KIND_op || !group->kind) return;
    group_values(&load->reader.decoder, group, group->kind->time);
    group_values(&load->reader.decoder, group, group->kind->duration);
    if (group->damaged) return; /* the first reading counted it */
    load_operators(load);
    if (group->damaged) load->trace->bad_records += group->count;
}

static void take_groups(struct load *load, struct chunk *chunk)
{
    for (unsigned g = 0; g < chunk->groups; g++) {
        load->group = &chunk->group[g];
        take_operators(load);
    }
}

/* Reads the trace once more for its operators if it has work of a device that they may have launched. A long run of a
 * CPU has tens of millions of operators and no such work: 50 bytes each. */
static void load_launchers(struct load *load)
{
    const struct process *p = load->process;
    struct chunk chunk;
    if (!p->works.table.count && !p->graphs.nodes) return;
    reader_free(&load->reader);
    load->reader.trace = load->trace;
    while ((load->piece = reader_next(&load->reader, &chunk)) != NULL) take_groups(load, &chunk);
}

/* ---- the whole trace ---- */

static char *copy_of(const char *text)
{
    return text ? string_format("%s", text) : NULL;
}

static int64_t number_of(const struct trace *trace, const char *key)
{
    uint64_t value;
    return trace_number(trace, key, &value) && value <= INT64_MAX ? (int64_t)value : -1;
}

/* Takes the rank from the name rankR.HOST.PID.tfr, for a file whose header is lost. */
static int64_t rank_in_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char digits[16] = {0};
    uint64_t value;
    if (strncmp(name, "rank", 4) != 0 || strcspn(name + 4, ".") >= sizeof digits) return -1;
    memcpy(digits, name + 4, strcspn(name + 4, "."));
    return tfi_whole_number(digits, 0, UINT64_MAX, &value) ? (int64_t)value : -1;
}

static void describe(struct load *load)
{
    struct trace *trace = load->trace;
    struct process *p = load->process;
    uint64_t ticks, value, error;
    p->rank = number_of(trace, "rank");
    p->rank = p->rank < 0 ? rank_in_name(trace->path) : p->rank;
    p->world = number_of(trace, "world");
    p->pid = number_of(trace, "pid");
    p->host = copy_of(trace_info(trace, "host"));
    p->command = copy_of(trace_info(trace, "command"));
    p->directory = copy_of(trace_info(trace, "directory"));
    p->names_asked = copy_of(trace_info(trace, "env.ENABLE_PROFILER_NAMES"));
    p->stages_asked = copy_of(trace_info(trace, "env.TFI_STAGES"));
    const char *activities = trace_info(trace, "activities"), *preloaded = trace_info(trace, "preloaded");
    p->activities = copy_of(activities ? activities : trace_info(trace, "env.TFI_ACTIVITIES"));
    p->is_late = preloaded && strcmp(preloaded, "no") == 0;
    p->clock_name = copy_of(trace_info(trace, "clock"));
    p->version = copy_of(trace_info(trace, "version"));
    p->metadata = mem_zero(1, sizeof *p->metadata);
    const struct pairs *info = trace->info.count || !trace->live ? &trace->info : &trace->live->info;
    for (size_t i = 0; i < info->count; i++)
        if (strncmp(info->pair[i].key, "meta.", 5) == 0)
            pairs_add(p->metadata, info->pair[i].key + 5, info->pair[i].value);
    load_machine_facts(p, info);
    p->clock.is_nanoseconds = p->clock_name && strcmp(p->clock_name, "monotonic") == 0;
    if (trace_number(trace, "clock.ticks", &ticks) && trace_number(trace, "clock.error", &error)) {
        if (trace_number(trace, "clock.monotonic", &value))
            clock_add(&p->clock, TFI_CLOCK_MONOTONIC, ticks, value, error);
        if (trace_number(trace, "clock.realtime", &value))
            clock_add(&p->clock, TFI_CLOCK_REALTIME, ticks, value, error);
    }
}

static void lose(struct load *load)
{
    char cause[64];
    process_lose(load->process, "damaged",
                 load->trace->lost_damaged + load->trace->beyond + load->trace->bad_records + load->reader.unread,
                 true);
    process_lose(load->process, "missing", load->trace->lost_missing, true);
    for (size_t k = 0; k < drop_count; k++) {
        lower_case(cause, sizeof cause, drop_table[k].name);
        process_lose(load->process, cause, load->drops[drop_table[k].number], drop_table[k].lost);
    }
}

static void end_span(struct load *load)
{
    struct process *p = load->process;
    if (!load->last_clock) return;
    uint64_t first = p->has_time ? (uint64_t)p->first : load->first_look; /* of a program that only was sampled */
    extend(&p->first, &p->last, &p->has_time, first ? first : load->last_clock, load->last_clock);
}

static void conclude(struct load *load, struct notes *notes)
{
    struct trace *trace = load->trace;
    struct process *p = load->process;
    const char *reason = pairs_get(&trace->footer, "reason");
    uint64_t cost;
    load_name_threads(load);
    end_span(load);
    trace_drops(trace, load->drops);
    lose(load);
    trace_judge(trace, load->drops, notes);
    if (load->reader.unread) notes_add(notes, LOSS, UNREAD, (unsigned long long)load->reader.unread);
    if (load->unknown) {
        notes_add(notes, NOTE, "%llu records of kinds that its schema lacks were skipped",
                  (unsigned long long)load->unknown);
    }
    if (load->bad_stacks) notes_add(notes, LOSS, BAD_STACKS, (unsigned long long)load->bad_stacks);
    p->ended = trace->life == LIFE_ENDED     ? copy_of(reason)
               : trace->life == LIFE_RUNNING ? copy_of("running")
               : trace->live                 ? copy_of("killed")
                                             : NULL;
    p->complete = trace->life == LIFE_ENDED && !p->ring.chunks && !notes_have(notes, LOSS);
    p->has_cost = pairs_number(&trace->footer, "cost_ns", &cost) && trace->life == LIFE_ENDED &&
                  !p->ring.chunks; /* it is of the whole run */
    p->own_cost_ns = p->has_cost ? MIN(cost, (uint64_t)INT64_MAX) : 0;
    clock_build(&p->clock);
    if (p->has_time && !p->clock.has_rate)
        notes_add(notes, LOSS, "has too few clock records: its times are ticks of its counter, not nanoseconds");
    whole_run_end(p, notes);
    if (p->clock.steps) {
        notes_add(notes, NOTE, "the clock of %s was set %zu time%s while it ran, first by %.3f s; durations are right",
                  p->host ? p->host : "its host", p->clock.steps, p->clock.steps > 1 ? "s" : "",
                  (double)p->clock.step[0].by / 1e9);
    }
}

void load_tfr(struct trace *trace, struct names *names, struct needs needs, struct process *process,
              struct notes *notes, atomic_ullong *done)
{
    struct load load = {.trace = trace, .names = names, .process = process, .needs = needs};
    struct chunk chunk;
    const struct piece *piece;
    load.reader.trace = trace;
    process->ring = trace_ring(trace);
    load.needs.device |= needs.collectives;   /* the kernels of a collective have its times */
    load.needs.launches |= load.needs.device; /* launches tell which work was launched during warm-up */
    load.needs.tensors &= has_tensors(trace);
    describe(&load);
    reveals_find(&process->reveals, trace);
    take_funcs(&load);
    bool goes_on = true;
    while (goes_on && (piece = reader_next(&load.reader, &chunk)) != NULL) {
        take_chunk(&load, piece, &chunk);
        atomic_fetch_add_explicit(done, piece->stored + sizeof(struct tfi_block), memory_order_relaxed);
        goes_on = needs.stream == STREAM_HELD || can_sweep(process, trace, needs);
    }
    if (!goes_on) goto out;
    if (needs.launchers && !needs.operators) load_launchers(&load);
    load_devices_end(&load, notes);
    load_operators_end(&load);
    load_switchings_end(&load);
    load_elsewheres_end(&load);
    conclude(&load, notes);
    process_finish(process);
    load_samples_end(&load);
    machine_sort(&process->machine);
    startup_sort(&process->startup);
    elsewheres_pair(process);
    name_steps(process, names);
    join_calls(process, names);
    load_collectives_end(&load);
    if (needs.open) load_open_threads(&load);
    load_framework_collectives_end(&load);
    if (!needs.calls) calls_free(&process->calls); /* they were only needed for launch times */
out:
    load_free(&load);
}
