/* parquet.c - writes a run as tables for DuckDB, pandas, Spark and the like: a Parquet file each for device work, operators,
 * stages, collectives and samples.
 *
 * A row is one event of one process, as the commands count it: a kernel of `breakdown`, a call of `ops`, of `stages`, a
 * collective of a rank of `comm`, a period of `hotspots`. Times are whole nanoseconds, so that sums are exact. The filters
 * choose the rows as they choose those of these commands. Rows are in the order of the processes and of their files.
 */
#include <stdlib.h>
#include <unistd.h>

#include "ask/comm/comm_reduction.h"
#include "ask/ops/walk.h"
#include "ask/samples/periods.h"
#include "ask/stages/order.h"
#include "commands/export/beside.h"
#include "commands/session.h"
#include "model/frames.h"
#include "write/parquet/parquet_file.h"

struct tables;

struct table_kind {
    const char *name;
    struct column_kind column[COLUMNS_MOST];
    void (*add)(struct tables *t, struct scope *scope); /* writes the rows of a process */
};

struct tables {
    struct session *session;
    struct parquet file; /* the open table */
    struct work_kinds kinds;
    uint32_t class_name[CLASS_MEMSET + 1], kind_name[NR_WORK_KINDS];
    uint64_t rows;
    struct text left_out; /* what the first process lacks that lacks work; empty: none does */
    const char *lacks;    /* the path of its trace */
};

/* ---- values ---- */

static void put_known(struct tables *t, int64_t number)
{
    if (number < 0) parquet_null(&t->file);
    else parquet_number(&t->file, number);
}

static void put_time(struct tables *t, int64_t time)
{
    if (time == UNKNOWN_TIME) parquet_null(&t->file);
    else parquet_number(&t->file, time);
}

static void put_thread(struct tables *t, const struct process *p, uint32_t serial)
{
    const struct thread *thread = find_thread(p, serial);
    if (thread) parquet_number(&t->file, (int64_t)(thread->tid ? thread->tid : serial));
    else parquet_null(&t->file);
}

static void begin_row(struct tables *t, const struct process *p)
{
    put_known(t, p->rank);
    put_known(t, p->pid);
}

static uint32_t name_of(struct tables *t, const char *text)
{
    return text ? names_add(&t->session->model.names, text, strlen(text)) : NAME_NONE;
}

/* ---- device work ---- */

/* The operator that launched the work, or in which it was captured. */
static uint32_t operator_of(const struct attribution *a, size_t work)
{
    uint32_t name = a->op[work] == NO_PLACE ? NAME_NONE : a->process->spans.name[a->op[work]];
    captured_operator(a, work, &name);
    return name;
}

/* Sizes are known of some works, in their order. */
static void put_bytes_of(struct tables *t, const struct process *p, size_t work, size_t *next)
{
    while (*next < p->copied_count && p->copied[*next].work < work) ++*next;
    const struct copied *c = &p->copied[*next];
    if (*next < p->copied_count && c->work == work && c->has_bytes && c->bytes <= INT64_MAX)
        parquet_number(&t->file, (int64_t)c->bytes);
    else parquet_null(&t->file);
}

static void add_kernels(struct tables *t, struct scope *scope)
{
    const struct process *p = scope->process;
    const struct attribution *a = scope_attribute(scope);
    const struct works *w = &p->works;
    size_t next = 0;
    for (size_t i = 0; i < w->table.count; i++) {
        struct interval when;
        uint32_t stage;
        if (!choice_work(&scope->choice, i, &when) || !choice_stage_name(&scope->choice, &a->work[i], &stage)) continue;
        const struct lane *lane = &p->lane[w->lane[i]];
        begin_row(t, p);
        put_known(t, lane->device);
        put_known(t, lane->stream);
        parquet_name(&t->file, w->name[i]);
        parquet_name(&t->file, t->class_name[w->event_class[i]]);
        parquet_name(&t->file, t->kind_name[work_kind_of(&t->kinds, p, i)]);
        parquet_name(&t->file, stage);
        parquet_name(&t->file, operator_of(a, i));
        put_time(t, a->launch[i] == NO_PLACE ? UNKNOWN_TIME : p->spans.start[a->launch[i]]);
        parquet_number(&t->file, when.start);
        parquet_number(&t->file, when.end - when.start);
        put_bytes_of(t, p, i, &next);
        parquet_row_end(&t->file);
    }
}

/* ---- operators and stages ---- */

static void add_operators(struct tables *t, struct scope *scope)
{
    struct op_walk walk;
    struct walked_op op;
    uint32_t stage;
    op_walk_begin(&walk, scope->process, scope_attribute(scope), &t->session->options, &t->session->model.names);
    while (op_walk_next(&walk, &op)) {
        if (!choice_moment(&scope->choice, op.start, op.at.time) || !choice_stage_name(&scope->choice, &op.at, &stage))
            continue;
        begin_row(t, scope->process);
        put_thread(t, scope->process, op.thread);
        parquet_name(&t->file, op.name);
        parquet_name(&t->file, stage);
        parquet_number(&t->file, op.start);
        parquet_number(&t->file, less_ns(op.end, op.start));
        parquet_row_end(&t->file);
    }
    op_walk_end(&walk);
}

/* A call that left its thread is one row, from entry to exit. */
static void add_stages(struct tables *t, struct scope *scope)
{
    const struct process *p = scope->process;
    const struct attribution *a = scope_attribute(scope);
    const struct ranges *r = &p->ranges;
    struct map whole_of = {0};
    wholes_by_id(&whole_of, p);
    for (size_t i = 0; i < a->stages; i++) {
        size_t range = a->order[i];
        uint32_t whole = map_get(&whole_of, r->id[range]);
        struct interval call = call_time(p, range, whole);
        if (r->flags[range] & RANGE_CONTINUED || !choice_stage(&scope->choice, range) ||
            !selection_wants(scope->chosen, r->name[range]))
            continue;
        call.start = MAX(call.start, scope->choice.window.from);
        call.end = MIN(call.end, scope->choice.window.to);
        begin_row(t, p);
        put_thread(t, p, r->thread[range]);
        parquet_name(&t->file, r->name[range]);
        parquet_number(&t->file, r->depth[range]);
        parquet_number(&t->file, call.start);
        parquet_number(&t->file, less_ns(call.end, call.start));
        put_known(t, r->cpu[range]);
        parquet_row_end(&t->file);
    }
    map_free(&whole_of);
}

/* ---- collectives ---- */

static void put_count(struct tables *t, uint64_t count)
{
    if (count > INT64_MAX) parquet_null(&t->file);
    else parquet_number(&t->file, (int64_t)count);
}

static void add_collectives(struct tables *t, struct scope *scope)
{
    struct comm_taken *taken = stragglers_reduction.take(scope);
    for (size_t i = 0; i < taken->parts.count; i++) {
        const struct comm_part *part = &taken->parts.part[i];
        if (!part->is_chosen) continue;
        begin_row(t, scope->process);
        parquet_name(&t->file, name_of(t, collective_kinds[part->op].name));
        parquet_name(&t->file, part->group);
        put_known(t, part->sequence);
        put_known(t, part->replay);
        parquet_name(&t->file, part->stage);
        put_known(t, part->step);
        put_known(t, part->size);
        put_count(t, part->bytes_in);
        put_count(t, part->bytes_out);
        parquet_name(&t->file, part->algorithm);
        parquet_name(&t->file, part->protocol);
        put_time(t, part->call_start);
        put_time(t, part->start);
        put_time(t, part->end);
        parquet_row_end(&t->file);
    }
    stragglers_reduction.free(taken);
}

/* ---- samples ---- */

struct sampling {
    struct tables *t;
    const struct scope *scope;
};

static void put_frame(struct tables *t, const struct looks *l, size_t look)
{
    struct names *names = &t->session->model.names;
    struct frame frame;
    uint32_t stack = l->stack[look], text = stack == NAME_NONE ? NAME_NONE : stack_frame(names, stack, 0);
    const struct name *name = names_get(names, text);
    if (text != NAME_NONE && frame_parse(&frame, name->text, name->length)) {
        parquet_name(&t->file, names_add(names, frame.function, frame.function_length));
        parquet_name(&t->file, names_add(names, frame.file, frame.file_length));
        put_known(t, (int64_t)strtoul(frame.line, NULL, 10));
    } else {
        parquet_name(&t->file, text);
        parquet_null(&t->file);
        parquet_null(&t->file);
    }
}

static void add_sample(void *context, const struct sampled *s)
{
    const struct sampling *sampling = context;
    struct tables *t = sampling->t;
    const struct process *p = sampling->scope->process;
    const struct looks *l = &p->looks;
    char room[24];
    begin_row(t, p);
    parquet_number(&t->file, l->tid[s->look]);
    put_frame(t, l, s->look);
    parquet_name(&t->file, s->stage == NO_PLACE ? NAME_OUTSIDE : p->ranges.name[s->stage]);
    parquet_name(&t->file, name_of(t, sampled_wait(l, s->look, room)));
    parquet_number(&t->file, MAX(l->start[s->look], sampling->scope->choice.window.from));
    parquet_number(&t->file, l->count[s->look]);
    parquet_number(&t->file, s->wall);
    parquet_number(&t->file, s->cpu);
    parquet_number(&t->file, s->waiting);
    put_known(t, s->device_idle);
    parquet_row_end(&t->file);
}

static void add_samples(struct tables *t, struct scope *scope)
{
    struct sampling sampling = {t, scope};
    sampled_each(scope, add_sample, &sampling);
}

/* ---- the files ---- */

#define NUMBER(name)                                                                                                   \
    {                                                                                                                  \
        name, COLUMN_NUMBER                                                                                            \
    }
#define NAME(name)                                                                                                     \
    {                                                                                                                  \
        name, COLUMN_NAME                                                                                              \
    }
static const struct table_kind table_kinds[] = {
    {"kernels",
     {NUMBER("rank"), NUMBER("pid"), NUMBER("device"), NUMBER("stream"), NAME("name"), NAME("category"), NAME("kind"),
      NAME("stage"), NAME("operator"), NUMBER("launch_ns"), NUMBER("start_ns"), NUMBER("duration_ns"), NUMBER("bytes")},
     add_kernels},
    {"operators",
     {NUMBER("rank"), NUMBER("pid"), NUMBER("thread"), NAME("name"), NAME("stage"), NUMBER("start_ns"),
      NUMBER("duration_ns")},
     add_operators},
    {"stages",
     {NUMBER("rank"), NUMBER("pid"), NUMBER("thread"), NAME("stage"), NUMBER("depth"), NUMBER("start_ns"),
      NUMBER("duration_ns"), NUMBER("cpu_ns")},
     add_stages},
    {"collectives",
     {NUMBER("rank"), NUMBER("pid"), NAME("name"), NAME("group"), NUMBER("seq"), NUMBER("replay"), NAME("stage"),
      NUMBER("step"), NUMBER("size"), NUMBER("bytes_in"), NUMBER("bytes_out"), NAME("algorithm"), NAME("protocol"),
      NUMBER("call_ns"), NUMBER("start_ns"), NUMBER("end_ns")},
     add_collectives},
    {"samples",
     {NUMBER("rank"), NUMBER("pid"), NUMBER("thread"), NAME("name"), NAME("file"), NUMBER("line"), NAME("stage"),
      NAME("waits_in"), NUMBER("start_ns"), NUMBER("samples"), NUMBER("wall_ns"), NUMBER("cpu_ns"),
      NUMBER("waiting_ns"), NUMBER("device_idle_ns")},
     add_samples},
};

static size_t columns_of(const struct table_kind *kind)
{
    size_t columns = 0;
    while (columns < COLUMNS_MOST && kind->column[columns].name) columns++;
    return columns;
}

/* Writes a table, also one without rows: queries name all five. The caller closes `out`. */
static bool write_table(struct tables *t, const struct table_kind *kind, struct out *out, int directory,
                        const char *path)
{
    struct selection *chosen = &t->session->chosen;
    if (!out_open_in(out, directory, path, FILE_SHARED)) return false;
    parquet_begin(&t->file, out, &t->session->model.names, kind->column, columns_of(kind));
    for (size_t i = 0; i < chosen->processes; i++) {
        struct scope *scope = scope_begin(chosen, i);
        kind->add(t, scope);
        scope_end(scope);
    }
    bool good = parquet_end(&t->file, t->left_out.data);
    t->rows += t->file.rows;
    if (!good) complain(path, "cannot be compressed: out of memory");
    return good;
}

/* Finds what the tables lack: the footers say it, and a message that sums over the tables are of a part. */
static void find_left_out(struct tables *t)
{
    const struct selection *chosen = &t->session->chosen;
    for (size_t i = 0; i < chosen->processes && !t->left_out.length; i++) {
        left_out_describe(&t->left_out, chosen->process[i]);
        t->lacks = chosen->process[i]->path;
    }
}

/* Writes all tables or none: they are of one run, and filters that leave no row leave no file. */
static void write_tables(struct tables *t, const struct beside *beside)
{
    struct out out[ARRAY_SIZE(table_kinds)];
    struct text list = {0};
    size_t tables = 0;
    bool good = true;
    while (good && tables < ARRAY_SIZE(table_kinds)) {
        const struct table_kind *kind = &table_kinds[tables];
        char *path = string_format("%s/%s.parquet", beside->directory, kind->name);
        good = write_table(t, kind, &out[tables++], beside->fd, path);
        text_visible(&list, path, strlen(path));
        text_puts(&list, "\n");
        free(path);
    }
    bool found = t->rows || !is_filtered(&t->session->options);
    for (size_t i = 0; i < tables; i++)
        if (good && found) good = out_close(&out[i]);
        else out_discard(&out[i]);
    if (good && out_open(&t->session->out, NULL)) {
        if (found) out_write(&t->session->out, list.data, list.length);
        if (found && t->left_out.length)
            complain(t->lacks, "has %s: sums over the tables are of a part", t->left_out.data);
        session_end(t->session, found);
    } else {
        t->session->status = STATUS_NOTHING;
    }
    text_free(&list);
}

struct needs export_parquet_needs(const struct options *options)
{
    struct needs needs = {.operators = true,
                          .operators_of_work = true,
                          .stages_of_spans = true,
                          .copied = true,
                          .captures = true,
                          .stream = STREAM_UNLINKED};
    needs = needs_union(needs, needs_union(work_needs(options), sampled_needs(options)));
    return needs_union(needs, stragglers_needs(options));
}

void cmd_export_parquet(struct session *session)
{
    static const char *const classes[] = {
        [CLASS_KERNEL] = "kernel", [CLASS_MEMCPY] = "gpu_memcpy", [CLASS_MEMSET] = "gpu_memset"};
    struct tables t = {.session = session};
    struct beside beside;
    if (!session_load(session)) return;
    work_kinds_init(&t.kinds, &exact_kinds, &session->model.names);
    for (size_t i = 0; i < ARRAY_SIZE(classes); i++) t.class_name[i] = name_of(&t, classes[i]);
    for (size_t i = 0; i < NR_WORK_KINDS; i++) t.kind_name[i] = name_of(&t, work_kind_names[i]);
    find_left_out(&t);
    if (beside_open(&beside, session, "parquet")) write_tables(&t, &beside);
    else session->status = STATUS_NOTHING;
    beside_close(&beside);
    text_free(&t.left_out);
    work_kinds_free(&t.kinds);
}
