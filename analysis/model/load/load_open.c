/* load_open.c - loads what each thread is in from the slots of the .live file: calls, the innermost stage, a collective.
 *
 * A collective in a slot becomes an entry of process->collectives without the end of its call. If its record was
 * written after the slot was read, the record counts. A slot may be read while its thread changes it, so a string that
 * is missing is no fault.
 */
#include <stdlib.h>
#include <string.h>

#include "model/load/load.h"

enum { NCCL_IN_PROGRESS = 7 };

/* Returns the name of the function that a string describes. */
static uint32_t function_name(struct load *load, uint32_t string)
{
    const struct string *text = strings_get(&load->trace->strings, string);
    if (!text || !memchr(text->text, '\x1f', text->length)) return NAME_NONE;
    uint32_t place = load_func(load, string); /* this call may move process->func */
    const char *name = load->process->func[place].name;
    return names_add(load->names, name, strlen(name));
}

static void take_open_calls(struct load *load, struct open_thread *open, const struct tfi_slot *slot)
{
    open->calls = slot->calls;
    for (uint32_t i = 0; i < MIN(slot->calls, (uint32_t)TFI_SLOT_CALLS); i++) {
        open->call[i].start = clock_ns(&load->process->clock, slot->call[i].start);
        open->call[i].name = function_name(load, slot->call[i].func);
    }
}

static void take_open_stage(struct load *load, struct open_thread *open, const struct tfi_slot *slot)
{
    open->stage_start = UNKNOWN_TIME;
    if (!slot->stages) return;
    size_t last = MIN(slot->stages - 1, (uint32_t)TFI_SLOT_STAGES - 1);
    open->stage = load_name(load, slot->stage[last].name);
    open->stage_start = clock_ns(&load->process->clock, slot->stage[last].start);
}

/* The latest recorded collective of each thread, and one of each communicator; and the communicators that were made. All
 * are indices. */
struct recorded {
    struct map of_thread, of_communicator, made;
};

/* Finds the rank of this process in a communicator, and its size. */
static void find_place(const struct process *p, const struct recorded *recorded, struct nccl_arguments *given,
                       uint32_t communicator)
{
    uint32_t used = map_get(&recorded->of_communicator, communicator), made = map_get(&recorded->made, communicator);
    int64_t rank = UNKNOWN_NUMBER, ranks = UNKNOWN_NUMBER;
    if (communicator == NAME_NONE) return;
    if (used != MAP_NONE) {
        rank = p->collectives.collective[used].rank;
        ranks = p->collectives.collective[used].size;
    } else if (made != MAP_NONE) {
        rank = p->communicator[made].rank;
        ranks = p->communicator[made].ranks;
    }
    given->rank = (int32_t)rank;
    given->ranks = ranks > 0 ? (uint32_t)ranks : 0;
}

static void take_open_collective(struct load *load, struct open_thread *open, const struct tfi_slot *slot,
                                 const struct recorded *recorded)
{
    struct collectives *all = &load->process->collectives;
    uint32_t call = slot->collective.call;
    open->collective_start = UNKNOWN_TIME;
    if (!call || call > MIN(slot->calls, (uint32_t)TFI_SLOT_CALLS)) return;
    const char *function = names_get(load->names, open->call[call - 1].name)->text;
    int64_t start = open->call[call - 1].start;
    uint32_t latest = map_get(&recorded->of_thread, slot->thread);
    if (!*function || (latest != MAP_NONE && all->collective[latest].call_start >= start)) return;
    struct nccl_arguments given = {.communicator = slot->collective.communicator,
                                   .sequence = slot->collective.sequence,
                                   .count = slot->collective.count,
                                   .type = slot->collective.type,
                                   .peer = slot->collective.peer,
                                   .rank = -1};
    find_place(load->process, recorded, &given, nccl_communicator_name(load, given.communicator));
    struct collective *c = collectives_add(all);
    nccl_describe(load, c, function, &given);
    c->thread = slot->thread;
    c->call_start = start;
    open->collective_start = start;
}

static void find_recorded(const struct process *p, struct recorded *recorded)
{
    const struct collectives *all = &p->collectives;
    for (size_t i = 0; i < p->communicators; i++) map_put(&recorded->made, p->communicator[i].name, (uint32_t)i);
    for (size_t i = 0; i < all->count; i++) {
        const struct collective *c = &all->collective[i];
        uint32_t before = map_get(&recorded->of_thread, c->thread);
        if (before == MAP_NONE || all->collective[before].call_start <= c->call_start)
            map_put(&recorded->of_thread, c->thread, (uint32_t)i);
        if (c->rank != UNKNOWN_NUMBER) map_put(&recorded->of_communicator, c->nccl_communicator, (uint32_t)i);
    }
}

/* ---- communicators ---- */

static void take_communicator(struct load *load, const struct func *func, const uint64_t *values, uint32_t count)
{
    struct process *p = load->process;
    int hash = load_argument(func, "communicator"), rank = load_argument(func, "rank"),
        ranks = load_argument(func, "ranks");
    int last = MAX(hash, MAX(rank, ranks));
    if (hash < 0 || rank < 0 || ranks < 0 || (uint32_t)last >= count || !values[hash]) return;
    p->communicator =
        mem_grow(p->communicator, &p->communicator_capacity, p->communicators + 1, sizeof *p->communicator);
    p->communicator[p->communicators++] = (struct communicator){
        .name = nccl_communicator_name(load, values[hash]),
        .rank = (int64_t)values[rank] >= 0 ? (int64_t)MIN(values[rank], INT32_MAX) : UNKNOWN_NUMBER,
        .ranks = values[ranks] ? (int64_t)MIN(values[ranks], INT32_MAX) : UNKNOWN_NUMBER};
}

void load_communicators(struct load *load)
{
    const uint64_t *func = load_column(load, COL_call_func), *result = load_column(load, COL_call_result);
    const uint64_t *values = NULL;
    const uint32_t *first = NULL;
    for (uint32_t i = 0; i < load_rows(load); i++) {
        uint32_t place = load_func(load, func[i]); /* this call may move process->func */
        const struct func *described = &load->process->func[place];
        if (strcmp(described->call_class, "COMMUNICATOR") != 0 || (result[i] && result[i] != NCCL_IN_PROGRESS))
            continue;
        if (!values)
            values = group_list(&load->reader.decoder, load->group, load->group->kind->own[COL_call_args], &first);
        if (!values || load->group->damaged) return;
        take_communicator(load, described, values + first[i], first[i + 1] - first[i]);
    }
}

/* ---- the Python frames of silent threads ---- */

static uint32_t take_frames(struct load *load, uint64_t stack)
{
    struct stack_list list;
    uint32_t frame[TFI_STACK_FRAMES];
    if (!stack) return NAME_NONE;
    load->bad_stacks += !stack_read(&load->trace->strings, stack, &list);
    for (size_t i = 0; i < list.count; i++)
        frame[i] = list.frame[i] == TFI_STRING_LOST ? NAME_LOST : load_name(load, list.frame[i]);
    return list.count ? stack_add(load->names, frame, list.count) : NAME_NONE;
}

void load_silences(struct load *load)
{
    struct process *p = load->process;
    const uint64_t *thread = load_column(load, COL_silence_thread), *time = load_column(load, COL_silence_time);
    const uint64_t *since = load_column(load, COL_silence_since), *tid = load_column(load, COL_silence_tid);
    const uint64_t *stack = load_column(load, COL_silence_stack), *reading = load_column(load, COL_silence_reading);
    const uint64_t *exception = load_column(load, COL_silence_exception), *flags = load_column(load, COL_silence_flags);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        bool raised = reading[i] == TFI_READING_RAISED; /* kept beside the last reading from outside */
        uint64_t key = (thread[i] ? thread[i] : tid[i] << 32) | (uint64_t)raised << 63;
        uint32_t at = map_get(&load->silence_of, key);
        if (at == MAP_NONE) {
            map_put(&load->silence_of, key, at = (uint32_t)p->silences);
            p->silence = mem_grow(p->silence, &p->silence_capacity, p->silences + 1, sizeof *p->silence);
            p->silence[p->silences++] = (struct silence){.time = INT64_MIN};
        }
        struct silence *s = &p->silence[at];
        if ((int64_t)time[i] < s->time) continue;
        *s = (struct silence){.serial = (uint32_t)thread[i],
                              .tid = (uint32_t)tid[i],
                              .time = (int64_t)time[i], /* ticks until the end of loading */
                              .since = (int64_t)since[i],
                              .stack = take_frames(load, stack[i]),
                              .reading = (uint32_t)reading[i],
                              .exception = exception[i] ? load_name(load, exception[i]) : NAME_NONE,
                              .aborted = flags[i] & TFI_SILENCE_ABORT};
    }
}

static uint32_t take_look_stack(struct load *load, uint64_t string)
{
    uint32_t stack = string ? map_get(&load->look_stack, string) : NAME_NONE;
    if (!string || stack != MAP_NONE) return stack;
    stack = take_frames(load, string);
    map_put(&load->look_stack, string, stack);
    return stack;
}

void load_looks(struct load *load)
{
    struct looks *l = &load->process->looks;
    const uint64_t *tid = load_column(load, COL_sample_tid), *time = load_column(load, COL_sample_time);
    const uint64_t *duration = load_column(load, COL_sample_duration), *cpu = load_column(load, COL_sample_cpu);
    const uint64_t *stack = load_column(load, COL_sample_stack), *call = load_column(load, COL_sample_call);
    const uint64_t *count = load_column(load, COL_sample_looks), *flags = load_column(load, COL_sample_flags);
    looks_reserve(l, load->group->count);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        size_t at = l->table.count++;
        l->start[at] = (int64_t)time[i]; /* ticks until the end of loading */
        l->end[at] = (int64_t)(time[i] + duration[i]);
        l->cpu[at] = (int64_t)MIN(cpu[i], (uint64_t)INT64_MAX);
        l->tid[at] = (uint32_t)tid[i];
        l->stack[at] = take_look_stack(load, stack[i]);
        l->call[at] = (uint32_t)call[i];
        l->count[at] = (uint32_t)count[i];
        l->flags[at] = (uint32_t)flags[i];
    }
}

/* ---- the end of loading ---- */

void load_open_threads(struct load *load)
{
    struct process *p = load->process;
    const struct live *live = load->trace->live;
    struct recorded recorded = {0};
    for (size_t i = 0; i < p->silences; i++) {
        p->silence[i].time = clock_ns(&p->clock, (uint64_t)p->silence[i].time);
        p->silence[i].since = clock_ns(&p->clock, (uint64_t)p->silence[i].since);
    }
    if (!live) return;
    p->read_at = live->read_at;
    p->open = mem_zero(live->slots, sizeof *p->open);
    find_recorded(p, &recorded);
    for (size_t i = 0; i < live->slots; i++) {
        const struct tfi_slot *slot = &live->slot[i];
        struct open_thread *open = &p->open[p->opens++];
        open->serial = slot->thread;
        open->tid = slot->tid;
        const struct thread *known = find_thread(p, slot->thread);
        open->name = known && known->name ? known->name : names_add(load->names, slot->name, strlen(slot->name));
        take_open_calls(load, open, slot);
        take_open_stage(load, open, slot);
        take_open_collective(load, open, slot, &recorded);
    }
    map_free(&recorded.of_thread);
    map_free(&recorded.of_communicator);
    map_free(&recorded.made);
}
