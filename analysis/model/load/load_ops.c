/* load_ops.c - loads a framework's records from our traces: operators, memory, and records about stages.
 *
 * An operator is a span, as in a Kineto trace, with a number of its own as its external id. A backward operator names
 * its forward one by thread and sequence number. Operators share a sequence number until one of them makes an
 * autograd node: that is the one that began last. It is paired with the first backward operator that asks for it.
 * Kineto links them likewise.
 */
#include "model/load/load.h"

#include <stdlib.h>
#include <string.h>

/* ---- call stacks ---- */

uint32_t load_stack(struct load *load, uint64_t string)
{
    struct stack_list list;
    uint32_t stack = string ? map_get(&load->stack_of, string) : NAME_NONE;
    if (stack == MAP_NONE) {
        load->bad_stacks += !stack_read(&load->trace->strings, string, &list);
        stack = stack_shown(&load->shown_frames, &load->trace->strings, load->names, &list);
        map_put(&load->stack_of, string, stack);
    }
    return stack;
}

/* ---- what stays in the file ---- */

uint8_t load_block_kind(const struct load *load, uint32_t allocator)
{
    const struct name *name = names_get(load->names, allocator);
    bool is_libc = (name->length == 6 && memcmp(name->text, "malloc", 6) == 0) ||
                   (name->length == 4 && memcmp(name->text, "mmap", 4) == 0);
    return is_libc ? BLOCK_LIBC : BLOCK_NONE;
}

/* Blocks of libc are no blocks of torch: only questions about all allocators get them. */
static bool is_wanted(const struct load *load, uint8_t kind)
{
    return load->needs.all_blocks || kind != BLOCK_LIBC;
}

uint32_t load_left_rows(struct load *load)
{
    bool is_op = load->group->number == TFI_KIND_op, has_links = load->needs.stream == STREAM_UNLINKED;
    bool shows_stacks = is_op ? has_links && load->needs.operator_details : load->needs.all_blocks;
    group_values(&load->reader.decoder, load->group, load->group->kind->time);
    group_values(&load->reader.decoder, load->group, load->group->kind->duration);
    if (is_op && has_links) load_column(load, COL_op_forward_thread);
    if (is_op && has_links) load_column(load, COL_op_scope);
    if (!is_op) load_column(load, COL_memory_allocator);
    if (shows_stacks) load_column(load, is_op ? COL_op_stack : COL_memory_stack);
    return load_rows(load);
}

/* Notes where the operators or blocks of the current group are, and when. */
static void leave(struct load *load, const uint64_t *time, const uint64_t *duration, uint64_t *left)
{
    struct tables_in_file *u = &load->process->in_file;
    uint32_t piece = (uint32_t)(load->piece - load->trace->piece), rows = load_rows(load);
    uint64_t first = UINT64_MAX, last = 0;
    u->needs = load->needs;
    if (!u->count || u->piece[u->count - 1].piece != piece) {
        u->piece = mem_grow(u->piece, &u->capacity, u->count + 1, sizeof *u->piece);
        u->piece[u->count++] = (struct chunk_in_file){piece, (uint32_t)u->ops, (uint32_t)u->blocks, UINT64_MAX, 0};
    }
    for (uint32_t i = 0; i < rows; i++) {
        first = MIN(first, time[i]);
        last = MAX(last, duration ? (uint64_t)load_end(time[i], duration[i]) : time[i]);
    }
    struct chunk_in_file *at = &u->piece[u->count - 1];
    at->first = MIN(at->first, first);
    at->last = MAX(at->last, last);
    *left += rows;
}

/* Checks the stacks of records that stay in the file, if the answer shows them. */
static void check_stacks(struct load *load, const uint64_t *stack)
{
    uint64_t last = 0;
    for (uint32_t i = 0, rows = load_rows(load); i < rows; i++) {
        if (stack[i] != last) load_stack(load, stack[i]);
        last = stack[i];
    }
}

static void leave_operators(struct load *load)
{
    struct tables_in_file *u = &load->process->in_file;
    if (!load_left_rows(load)) return;
    bool has_links = load->needs.stream == STREAM_UNLINKED;
    if (has_links && !u->is_linked) {
        const uint64_t *forward = load_column(load, COL_op_forward_thread), *scope = load_column(load, COL_op_scope);
        for (uint32_t i = 0; i < load_rows(load); i++)
            u->is_linked |= forward[i] != 0 || scope[i] == TFI_SCOPE_BACKWARD;
    }
    if (has_links && load->needs.operator_details) check_stacks(load, load_column(load, COL_op_stack));
    leave(load, load_column(load, COL_op_time), load_column(load, COL_op_duration), &u->ops);
}

static void leave_blocks(struct load *load)
{
    struct tables_in_file *u = &load->process->in_file;
    uint32_t rows = load_left_rows(load);
    if (!rows) return;
    const uint64_t *allocator = load_column(load, COL_memory_allocator);
    for (uint32_t i = 0; i < rows; i++)
        if (!i || allocator[i] != allocator[i - 1])
            u->has_others |= !is_wanted(load, load_block_kind(load, load_name(load, allocator[i])));
    if (load->needs.all_blocks) check_stacks(load, load_column(load, COL_memory_stack));
    leave(load, load_column(load, COL_memory_time), NULL, &u->blocks);
}

/* ---- operators ---- */

struct op_columns {
    const uint64_t *shapes, *types, *concrete, *strides, *modules, *stack, *flops;
};

static void detail_op(struct load *load, struct op_detail *detail, const struct op_columns *from, uint32_t i)
{
    detail->shapes = load_name(load, from->shapes[i]);
    detail->types = load_name(load, from->types[i]);
    detail->concrete = load_name(load, from->concrete[i]);
    detail->strides = load_name(load, from->strides[i]);
    detail->modules = load_name(load, from->modules[i]);
    detail->stack = load_stack(load, from->stack[i]);
    detail->flops = from->flops[i];
}

struct link_columns load_link_columns(struct load *load)
{
    return (struct link_columns){load_column(load, COL_op_time), load_column(load, COL_op_scope),
                                 load_column(load, COL_op_sequence), load_column(load, COL_op_forward_thread)};
}

bool load_link(const struct load *load, const struct link_columns *from, uint32_t i, struct op_link *link)
{
    bool is_backward = from->forward[i] != 0;
    if ((int64_t)from->sequence[i] < 0 || (!is_backward && from->scope[i] != TFI_SCOPE_FUNCTION)) return false;
    *link = (struct op_link){.sequence = (int64_t)from->sequence[i],
                             .time = (int64_t)from->time[i],
                             .own = load->piece->thread,
                             .thread = is_backward ? (uint32_t)from->forward[i] : load->piece->thread,
                             .is_backward = is_backward};
    return true;
}

void keep_link(struct load *load, const struct op_link *link)
{
    load->link = mem_grow(load->link, &load->link_capacity, load->links + 1, sizeof *load->link);
    load->link[load->links++] = *link;
}

void load_operators(struct load *load)
{
    struct spans *s = &load->process->spans;
    if (load->needs.stream != STREAM_HELD) {
        leave_operators(load);
        return;
    }
    const uint64_t *name = load_column(load, COL_op_name), *duration = load_column(load, COL_op_duration);
    const struct link_columns links = load_link_columns(load);
    struct op_link link;
    bool details = load->needs.operator_details;
    const struct op_columns more = {
        details ? load_column(load, COL_op_shapes) : NULL,   details ? load_column(load, COL_op_types) : NULL,
        details ? load_column(load, COL_op_concrete) : NULL, details ? load_column(load, COL_op_strides) : NULL,
        details ? load_column(load, COL_op_modules) : NULL,  details ? load_column(load, COL_op_stack) : NULL,
        details ? load_column(load, COL_op_flops) : NULL};
    if (!load->part) spans_reserve(s, load->group->count);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        uint64_t number = load->ops++, time = links.time[i];
        int64_t end = load_end(time, duration[i]);
        if (load->part && !part_has(load->part, time, (uint64_t)end)) continue;
        if (load->part) spans_reserve(s, 1);
        size_t at = s->table.count++;
        s->start[at] = (int64_t)time;
        s->end[at] = end;
        s->id[at] = number + 1;
        s->name[at] = load_name(load, name[i]);
        s->thread[at] = load->piece->thread;
        s->event_class[at] = CLASS_OPERATOR;
        if (load_link(load, &links, i, &link)) {
            link.number = number;
            keep_link(load, &link);
        }
        if (details) {
            struct op_detail detail = {.sequence = (int64_t)links.sequence[i],
                                       .forward_thread = (uint32_t)links.forward[i],
                                       .scope = (uint32_t)links.scope[i]};
            detail_op(load, &detail, &more, i);
            op_details_add(&s->details, at, &detail);
        }
    }
}

void load_range_inputs(struct load *load, const uint64_t *id)
{
    const uint64_t *shapes = load_column(load, COL_range_begin_shapes),
                   *types = load_column(load, COL_range_begin_types);
    const uint64_t *concrete = load_column(load, COL_range_begin_concrete),
                   *strides = load_column(load, COL_range_begin_strides);
    const uint64_t *modules = load_column(load, COL_range_begin_modules);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        if (shapes[i] || modules[i]) {
            struct op_detail inputs = {.sequence = -1,
                                       .shapes = load_name(load, shapes[i]),
                                       .types = load_name(load, types[i]),
                                       .concrete = load_name(load, concrete[i]),
                                       .strides = load_name(load, strides[i]),
                                       .modules = load_name(load, modules[i])};
            range_inputs_add(load->process, id[i], &inputs);
        }
    }
}

int op_link_order(const struct op_link *a, const struct op_link *b)
{
    return a->time != b->time ? ((uint64_t)a->time < (uint64_t)b->time ? -1 : 1)
                              : (a->number > b->number) - (a->number < b->number);
}

/* Sorts by forward operator, then forward links before backward ones, each by time. So the last forward link is
 * directly before the first backward one. */
static int by_forward(const void *a, const void *b)
{
    const struct op_link *x = a, *y = b;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    if (x->sequence != y->sequence) return x->sequence < y->sequence ? -1 : 1;
    if (x->is_backward != y->is_backward) return x->is_backward ? 1 : -1;
    return op_link_order(x, y);
}

static void add_end(struct forwards *f, const struct op_link *link, uint64_t id)
{
    forwards_reserve(f, 1);
    size_t at = f->table.count++;
    f->id[at] = id;
    f->time[at] = link->time;
    f->thread[at] = link->own;
    f->is_forward[at] = !link->is_backward;
}

void load_operators_end(struct load *load)
{
    uint64_t id = 0;
    if (load->links) qsort(load->link, load->links, sizeof *load->link, by_forward);
    for (size_t i = 1; i < load->links; i++) {
        const struct op_link *link = &load->link[i], *before = link - 1;
        bool same = link->thread == before->thread && link->sequence == before->sequence;
        if (same && link->is_backward && !before->is_backward) {
            add_end(&load->process->forwards, before, ++id);
            add_end(&load->process->forwards, link, id);
        }
    }
}

/* ---- memory ---- */

/* Columns of a record of one block. */
struct block_columns {
    const uint64_t *allocator, *time, *address, *bytes, *allocated, *reserved, *device, *stack, *stream;
};

static void take_blocks(struct load *load, struct blocks *b, const struct block_columns *from)
{
    if (!load->part) blocks_reserve(b, load->group->count);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        uint32_t allocator = load_name(load, from->allocator[i]);
        uint8_t kind = load_block_kind(load, allocator);
        if (!is_wanted(load, kind) || (load->part && !part_has(load->part, from->time[i], from->time[i]))) continue;
        if (load->part) blocks_reserve(b, 1);
        size_t at = b->table.count++;
        b->time[at] = (int64_t)from->time[i];
        b->bytes[at] = (int64_t)from->bytes[i];
        b->address[at] = from->address ? from->address[i] : 0;
        b->allocated[at] = from->allocated[i];
        b->reserved[at] = from->reserved[i];
        b->device[at] = (int64_t)from->device[i];
        b->thread[at] = load->piece->thread;
        b->allocator[at] = allocator;
        b->stack[at] = load_stack(load, from->stack[i]);
        b->other[at] = from->stream ? from->stream[i] : 0;
        b->kind[at] = kind;
    }
}

void load_blocks(struct load *load)
{
    if (load->needs.stream != STREAM_HELD) {
        leave_blocks(load);
        return;
    }
    struct block_columns from = {
        load_column(load, COL_memory_allocator), load_column(load, COL_memory_time),
        load_column(load, COL_memory_address),   load_column(load, COL_memory_bytes),
        load_column(load, COL_memory_allocated), load_column(load, COL_memory_reserved),
        load_column(load, COL_memory_device),    load_column(load, COL_memory_stack),
        load_column(load, COL_memory_stream),
    };
    take_blocks(load, &load->process->blocks, &from);
}

void load_ooms(struct load *load)
{
    struct block_columns from = {
        load_column(load, COL_oom_allocator), load_column(load, COL_oom_time),      NULL,
        load_column(load, COL_oom_bytes),     load_column(load, COL_oom_allocated), load_column(load, COL_oom_reserved),
        load_column(load, COL_oom_device),    load_column(load, COL_oom_stack),     NULL,
    };
    take_blocks(load, &load->process->ooms, &from);
}

void load_stage_memory(struct load *load)
{
    struct process *p = load->process;
    const uint64_t *device = load_column(load, COL_stage_memory_device), *id = load_column(load, COL_stage_memory_id);
    const uint64_t *after[2] = {load_column(load, COL_stage_memory_allocated_after),
                                load_column(load, COL_stage_memory_reserved_after)};
    const uint64_t *peak[2] = {load_column(load, COL_stage_memory_allocated_peak),
                               load_column(load, COL_stage_memory_reserved_peak)};
    const uint64_t *sum[2] = {load_column(load, COL_stage_memory_allocated), load_column(load, COL_stage_memory_freed)};
    for (uint32_t i = 0; i < load_rows(load); i++) {
        p->stage_memory =
            mem_grow(p->stage_memory, &p->stage_memory_capacity, p->stage_memories + 1, sizeof *p->stage_memory);
        p->stage_memory[p->stage_memories++] = (struct stage_memory){.range = id[i],
                                                                     .device = (int64_t)device[i],
                                                                     .allocated_after = after[0][i],
                                                                     .reserved_after = after[1][i],
                                                                     .allocated_peak = peak[0][i],
                                                                     .reserved_peak = peak[1][i],
                                                                     .allocated = sum[0][i],
                                                                     .freed = sum[1][i]};
    }
}

/* ---- stages and the run ---- */

static void keep_pauses(struct load *load, const uint64_t *time, const uint64_t *id, bool is_resume)
{
    struct pauses *p = &load->process->pauses;
    pauses_reserve(p, load->group->count);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        size_t at = p->table.count++;
        p->time[at] = (int64_t)time[i];
        p->id[at] = id[i];
        p->thread[at] = load->piece->thread;
        p->is_resume[at] = is_resume;
    }
}

void load_pauses(struct load *load)
{
    const uint64_t *time = load_column(load, COL_range_pause_time), *id = load_column(load, COL_range_pause_id);
    keep_pauses(load, time, id, false);
}

void load_resumes(struct load *load)
{
    const uint64_t *time = load_column(load, COL_range_resume_time), *id = load_column(load, COL_range_resume_id);
    keep_pauses(load, time, id, true);
}

void load_signatures(struct load *load)
{
    struct process *p = load->process;
    const uint64_t *text = load_column(load, COL_signature_text), *time = load_column(load, COL_signature_time);
    const uint64_t *id = load_column(load, COL_signature_id), *name = load_column(load, COL_signature_name);
    const uint64_t *direction = load_column(load, COL_signature_direction);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        p->signature = mem_grow(p->signature, &p->signature_capacity, p->signatures + 1, sizeof *p->signature);
        p->signature[p->signatures++] = (struct signature){.time = (int64_t)time[i],
                                                           .range = id[i],
                                                           .stage = load_name(load, name[i]),
                                                           .text = load_name(load, text[i]),
                                                           .direction = (uint32_t)direction[i]};
    }
}

static const char *text_of(struct load *load, uint64_t string)
{
    const struct string *found = strings_get(&load->trace->strings, string);
    return found ? found->text : "";
}

void load_metadata(struct load *load)
{
    const uint64_t *key = load_column(load, COL_metadata_key), *value = load_column(load, COL_metadata_value);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        const char *name = text_of(load, key[i]), *text = text_of(load, value[i]);
        pairs_add(load->process->metadata, name, text);
    }
}

void load_switchings(struct load *load)
{
    struct process *p = load->process;
    const uint64_t *state = load_column(load, COL_recording_state), *time = load_column(load, COL_recording_time);
    const uint64_t *activities = load_column(load, COL_recording_activities);
    const uint64_t *cause = load_column(load, COL_recording_cause), *step = load_column(load, COL_recording_step);
    const uint64_t *cycle = load_column(load, COL_recording_cycle);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        p->switching = mem_grow(p->switching, &p->switching_capacity, p->switchings + 1, sizeof *p->switching);
        p->switching[p->switchings++] = (struct switching){.time = (int64_t)time[i],
                                                           .step = step[i],
                                                           .state = (uint32_t)state[i],
                                                           .activities = (uint32_t)activities[i],
                                                           .cause = load_name(load, cause[i]),
                                                           .cycle = (uint32_t)cycle[i]};
    }
}

static int operators_by_time(const void *a, const void *b)
{
    const struct switching *x = a, *y = b;
    uint64_t time_x = (uint64_t)x->time, time_y = (uint64_t)y->time;
    return (time_x > time_y) - (time_x < time_y);
}

void load_switchings_end(struct load *load)
{
    if (load->process->switchings)
        qsort(load->process->switching, load->process->switchings, sizeof *load->process->switching, operators_by_time);
}

/* ---- periods in which another profiler owned the device ---- */

static int elsewhere_by_time(const void *a, const void *b)
{
    const struct elsewhere *x = a, *y = b;
    uint64_t time_x = (uint64_t)x->from, time_y = (uint64_t)y->from;
    return time_x != time_y ? (time_x > time_y) - (time_x < time_y) : x->begins - y->begins;
}

void load_elsewheres(struct load *load)
{
    struct process *p = load->process;
    const uint64_t *state = load_column(load, COL_elsewhere_state), *time = load_column(load, COL_elsewhere_time);
    const uint64_t *who = load_column(load, COL_elsewhere_who);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        p->elsewhere = mem_grow(p->elsewhere, &p->elsewhere_capacity, p->elsewheres + 1, sizeof *p->elsewhere);
        p->elsewhere[p->elsewheres++] =
            (struct elsewhere){.from = (int64_t)time[i], .who = load_name(load, who[i]), .begins = state[i] != 0};
    }
}

void load_elsewheres_end(struct load *load)
{
    if (load->process->elsewheres)
        qsort(load->process->elsewhere, load->process->elsewheres, sizeof *load->process->elsewhere, elsewhere_by_time);
}
