/* work_sums.c - adds up device work by rank, stage and kernel (or operator, or category of device work).
 *
 * Each piece of work counts once, for the innermost stage it was launched in, so the sum over all rows is the total.
 * With --stage it counts for the innermost of the chosen stages.
 * Rows of kernels include only kernels. Rows of operators include copies and sets too (TraceLens, ops_summary:
 * total_direct_kernel_time). A call of an operator counts if it launched work itself. Work that no operator launched
 * is in the row (none).
 * Work replayed from a CUDA graph belongs to the operator it was captured in; each replay is then one call of that
 * operator.
 */
#include "ask/device/work_sums.h"

#include <stdlib.h>
#include <string.h>

#include "model/host/whole_run.h"

void work_sums_init(struct work_sums *b, const struct breakdown_rules *rules, struct names *names)
{
    *b = (struct work_sums){.rules = rules, .names = names};
    work_kinds_init(&b->kinds, rules->kinds, names);
}

static struct work_sum *row_of(struct work_sums *b, int64_t rank, uint32_t stage, uint32_t name)
{
    const struct row_head head = {.rank = rank, .stage = stage, .name = name};
    struct work_sum *row = keyed_row(&b->keyed, &head, ROW_KEY, sizeof *row);
    if (!row->values.count) row->kind = NOT_YET;
    return row;
}

static uint32_t category_name(struct work_sums *b, enum event_class event_class)
{
    static const char *const names[] = {
        [CLASS_KERNEL] = "kernel", [CLASS_MEMCPY] = "gpu_memcpy", [CLASS_MEMSET] = "gpu_memset"};
    return names_add(b->names, names[event_class], strlen(names[event_class]));
}

static void add_kernel(struct work_sums *b, uint32_t name, int64_t time, const struct belonging *at)
{
    b->kernel_time = add_ns(b->kernel_time, time);
    b->launches++;
    b->via[at->via]++;
    map_put(&b->kernels, name, 1);
}

/* One value per operator call: the time of the work that the call launched itself. */
struct by_operator {
    struct map last; /* index in `value` by operator call */
    struct {
        uint32_t stage, name;
        int64_t time;
        int kind; /* as in a row */
    } * value;
    size_t count, capacity;
};

/* Sets `name` to a work's operator and returns a number for that operator's call; each replay has its own number.
 * NO_ID: no operator. */
static uint64_t call_of(const struct attribution *a, size_t work, bool launched, uint32_t *name)
{
    uint32_t op = a->op[work];
    *name = op == NO_PLACE ? NAME_OUTSIDE : a->process->spans.name[op];
    if (launched || !captured_operator(a, work, name)) return op == NO_PLACE ? NO_ID : op;
    if (*name == NAME_NONE) *name = NAME_OUTSIDE;
    return captured_call(a, work);
}

/* The kind of what has had one kind and gets another work. */
static int with_kind(int known, int kind)
{
    return known == NOT_YET || known == kind ? kind : SEVERAL;
}

static void add_to_operator(struct by_operator *o, const struct attribution *a, size_t work, bool launched,
                            uint32_t stage, int64_t time, int kind)
{
    uint32_t name;
    uint64_t call = call_of(a, work, launched, &name);
    uint32_t place = call == NO_ID ? MAP_NONE : map_get(&o->last, call);
    if (place == MAP_NONE) {
        o->value = mem_grow(o->value, &o->capacity, o->count + 1, sizeof *o->value);
        o->value[o->count].stage = stage;
        o->value[o->count].name = name;
        o->value[o->count].time = 0;
        o->value[o->count].kind = NOT_YET;
        place = (uint32_t)o->count++;
        if (call != NO_ID) map_put(&o->last, call, place);
    }
    o->value[place].time = add_ns(o->value[place].time, time);
    o->value[place].kind = with_kind(o->value[place].kind, kind);
}

static void end_operators(struct work_sums *b, struct by_operator *o, int64_t rank)
{
    for (size_t i = 0; i < o->count; i++) {
        struct work_sum *row = row_of(b, rank, o->value[i].stage, o->value[i].name);
        row->kind = with_kind(row->kind, o->value[i].kind);
        values_add(&row->values, o->value[i].time);
    }
    map_free(&o->last);
    free(o->value);
}

static void add_work(struct work_sums *b, const struct choice *choice, struct by_operator *operators, size_t i)
{
    const struct attribution *a = choice->attribution;
    const struct works *w = &choice->process->works;
    enum group_by group = choice->options->group_by;
    struct interval when;
    uint32_t stage;
    bool is_kernel = w->event_class[i] == CLASS_KERNEL;
    if (!choice_work(choice, i, &when) || !choice_stage_name(choice, &a->work[i], &stage)) return;
    int64_t time = when.end - when.start;
    if (is_kernel) add_kernel(b, w->name[i], time, &a->work[i]);
    bool launched = b->rules->launched;
    if (group == GROUP_OP && launched && (a->launch[i] == NO_PLACE || a->op[i] == NO_PLACE)) return;
    int kind = (int)work_kind_of(&b->kinds, choice->process, i);
    if (group == GROUP_OP) {
        add_to_operator(operators, a, i, launched, stage, time, kind);
    } else if (is_kernel || group == GROUP_CATEGORY) {
        uint32_t name = group == GROUP_CATEGORY ? category_name(b, w->event_class[i]) : w->name[i];
        struct work_sum *row = row_of(b, choice->process->rank, stage, name);
        row->kind = with_kind(row->kind, kind);
        values_add(&row->values, time);
    }
}

/* ---- sums of the whole run ---- */

static void add_sum(struct work_sums *b, int64_t rank, const struct whole_sum *sum)
{
    struct work_sum *row = row_of(b, rank, NAME_NONE, sum->name);
    row->whole = row->calls ? NULL : sum;
    row->of_whole_run = true;
    row->kind = (int)work_kind(&b->kinds, CLASS_KERNEL, sum->name);
    row->calls += sum->count;
    row->values.total = add_ns(row->values.total, sum->sum);
    b->kernel_time = add_ns(b->kernel_time, sum->sum);
    b->launches += sum->count;
    map_put(&b->kernels, sum->name, 1);
}

/* Adds the kernels that are in no row, because the library had no room for them. */
static void add_others(struct work_sums *b, const struct whole_sum *sum)
{
    b->kernel_time = add_ns(b->kernel_time, sum->sum);
    b->launches += sum->count;
    b->others += sum->count;
}

/* Adds the kernels of a process of TFI_MODE=flight by its sums if the trace lacks records of the run and nothing but kernels
 * is asked for. Returns false otherwise. */
static bool add_whole_run(struct work_sums *b, const struct scope *scope)
{
    const struct options *o = scope->chosen->options;
    const struct whole_run *run = whole_run_of(scope->process, TFI_AGGREGATE_KERNEL);
    if (!run || o->group_by != GROUP_KERNEL || b->rules->kinds != &exact_kinds || is_filtered(o)) return false;
    b->of_whole_run = true;
    for (size_t i = 0; i < run->sums; i++) {
        if (run->sum[i].what != TFI_AGGREGATE_KERNEL) continue;
        if (run->sum[i].name == NAME_NONE) add_others(b, &run->sum[i]);
        else add_sum(b, scope->process->rank, &run->sum[i]);
    }
    return true;
}

void work_sums_add(struct work_sums *b, struct scope *scope)
{
    const struct process *process = scope->process;
    if (add_whole_run(b, scope)) return;
    const struct attribution *a = scope_attribute(scope);
    struct by_operator operators = {0};
    for (size_t i = 0; i < process->works.table.count; i++) add_work(b, &scope->choice, &operators, i);
    end_operators(b, &operators, process->rank);
    scope_left_rows(scope, &b->left);
    b->unlinked += a->unlinked;
    b->replayed += a->replayed;
    b->uncaptured += a->uncaptured;
    b->by_order += a->by_order;
}

/* ---- order of rows ---- */

void work_sums_sort(struct work_sums *b)
{
    for (size_t i = 0; i < b->count; i++) b->row[i].head.time = b->row[i].values.total;
    rows_sort(b->row, b->count, sizeof *b->row, b->names);
    for (size_t i = 0, from = 0; i <= b->count; i++) {
        if (i == b->count || b->row[i].head.rank != b->row[from].head.rank) {
            int64_t total = 0;
            for (size_t k = from; k < i; k++) total = add_ns(total, b->row[k].head.time);
            for (; from < i; from++) b->row[from].of_rank = total;
        }
    }
}

void work_sums_free(struct work_sums *b)
{
    for (size_t i = 0; i < b->count; i++) values_free(&b->row[i].values);
    keyed_free(&b->keyed);
    map_free(&b->kernels);
    left_rows_free(&b->left);
    work_kinds_free(&b->kinds);
}
