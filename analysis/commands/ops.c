/* ops.c - prints torch's key_averages: one row per operator, over all given traces.
 *
 * The rows are those of ask/ops/op_rows.h. Text output is torch's own table with a default limit of 100 rows, as in torch.
 * Values missing from a trace are unknown, not 0: memory if no block was recorded, device times without device records,
 * and flops of operators that torch cannot count. A PyTorch trace has no flops at all.
 */
#include <stdlib.h>

#include "commands/session.h"
#include "write/op_table.h"
#include "write/short_names.h"

enum { ROWS_OF_TORCH = 100 };

/* ---- order of rows ---- */

static double value_of(const struct op_row *row, enum sort_key key)
{
    double calls = row->calls ? (double)row->calls : 1;
    switch (key) {
    case SORT_CPU_TIME: return row->us.all / calls;
    case SORT_DEVICE_TIME: return row->us.device / calls;
    case SORT_CPU_TIME_TOTAL: return row->us.all;
    case SORT_DEVICE_TIME_TOTAL: return row->us.device;
    case SORT_SELF_CPU_TIME_TOTAL: return row->us.own;
    case SORT_SELF_DEVICE_TIME_TOTAL: return row->us.own_device;
    case SORT_CPU_MEMORY: return (double)row->all.host_bytes;
    case SORT_DEVICE_MEMORY: return (double)row->all.device_bytes;
    case SORT_SELF_CPU_MEMORY: return (double)row->own.host_bytes;
    case SORT_SELF_DEVICE_MEMORY: return (double)row->own.device_bytes;
    case SORT_COUNT: return (double)row->calls;
    case SORT_FLOPS: return (double)row->flops;
    default: return 0;
    }
}

struct placed {
    struct op_row row;
    double value;
    size_t place;
};

/* Rows of equal values keep their order. */
static int largest_first(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    if (x->value > y->value || x->value < y->value) return x->value > y->value ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

static void sort_rows(struct op_rows *rows, enum sort_key key)
{
    struct placed *placed = mem_zero(rows->count, sizeof *placed);
    for (size_t i = 0; i < rows->count; i++) placed[i] = (struct placed){rows->row[i], value_of(&rows->row[i], key), i};
    qsort(placed, rows->count, sizeof *placed, largest_first);
    for (size_t i = 0; i < rows->count; i++) rows->row[i] = placed[i].row;
    free(placed);
}

/* ---- as JSON and csv ---- */

static void emit_known_us(struct emit *e, const char *key, int64_t ns, bool known)
{
    if (known) emit_us(e, key, ns);
    else emit_null(e, key);
}

static void emit_known_count(struct emit *e, const char *key, uint64_t count, bool known)
{
    if (known) emit_count(e, key, count);
    else emit_null(e, key);
}

/* Prints bytes, which are negative if more were freed than allocated. */
static void emit_known_bytes(struct emit *e, const char *key, int64_t bytes, bool known)
{
    if (known) emit_int(e, key, bytes);
    else emit_null(e, key);
}

static void emit_frames(struct emit *e, const char *at)
{
    emit_open(e, "stack", true);
    while (*at) {
        const char *end = at;
        for (; *end && *end != '\n'; end++) {
        }
        emit_bytes_text(e, NULL, at, (size_t)(end - at));
        at = end + (*end == '\n');
    }
    emit_close(e);
}

static void emit_op(struct session *session, const struct op_rows *rows, const struct op_row *row)
{
    struct emit *e = &session->emit;
    const struct name *name = names_get(&session->model.names, row->name);
    const struct name *modules = names_get(&session->model.names, row->modules);
    emit_row(e);
    emit_bytes_text(e, "name", name->text, name->length);
    if (session->options.group_ops.shapes) emit_text(e, "shapes", model_name(&session->model, row->shapes));
    else emit_null(e, "shapes");
    if (session->options.group_ops.stack) emit_frames(e, model_name(&session->model, row->stack));
    else emit_null(e, "stack");
    emit_hide(e, rows->left.any && !row->is_annotation);
    emit_us(e, "self_cpu_us", row->own.time);
    emit_us(e, "cpu_total_us", row->all.time);
    emit_hide(e, rows->left.any);
    emit_known_us(e, "self_device_us", row->own.device, rows->has_device);
    emit_known_us(e, "device_total_us", row->all.device, rows->has_device);
    emit_known_bytes(e, "cpu_mem_bytes", row->all.host_bytes, rows->has_memory);
    emit_known_bytes(e, "self_cpu_mem_bytes", row->own.host_bytes, rows->has_memory);
    emit_known_bytes(e, "device_mem_bytes", row->all.device_bytes, rows->has_memory);
    emit_known_bytes(e, "self_device_mem_bytes", row->own.device_bytes, rows->has_memory);
    emit_hide(e, rows->left.any && !row->is_annotation);
    emit_count(e, "calls", row->calls);
    if (row->flops) emit_count(e, "flops", row->flops);
    else emit_null(e, "flops");
    if (row->modules != NAME_NONE) emit_bytes_text(e, "modules", modules->text, modules->length);
    else emit_null(e, "modules");
    emit_row_end(e);
}

static void emit_sums(struct emit *e, const struct op_rows *rows)
{
    int64_t time = 0, device = 0;
    for (size_t i = 0; i < rows->count; i++) {
        const struct op_row *row = &rows->row[i];
        time = add_ns(time, row->own.time);
        device = add_ns(device, row->on_device && !row->is_annotation ? row->own.device : 0);
    }
    emit_totals(e);
    emit_hide(e, rows->left.any);
    emit_count(e, "events", rows->events);
    emit_count(e, "rows", rows->count);
    emit_us(e, "self_cpu_us", time);
    emit_known_us(e, "self_device_us", device, rows->has_device);
    emit_known_count(e, "replayed", rows->replayed.works, rows->replayed.known);
    emit_known_count(e, "replayed_unknown", rows->replayed.unknown, rows->replayed.known);
    emit_known_count(e, "replayed_by_order", rows->replayed.by_order, rows->replayed.known);
}

/* torch's table has no place for these counts. */
static void say_replays(const struct op_rows *rows)
{
    unsigned long long works = rows->replayed.works, unknown = rows->replayed.unknown;
    unsigned long long by_order = rows->replayed.by_order;
    if (unknown) complain(NULL, "%llu of %llu works that graphs replayed agree with no capture", unknown, works);
    if (by_order)
        complain(NULL,
                 "%llu of %llu works that graphs replayed have their operator by capture order, "
                 "which is not sure",
                 by_order, works);
}

/* ---- the answer ---- */

/* Gives rows of kernels distinct short names. Names of operators are already short. */
static void shorten_kernels(struct op_rows *rows)
{
    struct short_names shorts;
    uint32_t *name = mem_zero(rows->count, sizeof *name);
    size_t count = 0;
    for (size_t i = 0; i < rows->count; i++)
        if (rows->row[i].on_device && !rows->row[i].is_annotation) name[count++] = rows->row[i].name;
    short_names_init(&shorts, &rows->chosen->model->names, name, count);
    for (size_t i = 0; i < rows->count; i++) {
        bool is_kernel = rows->row[i].on_device && !rows->row[i].is_annotation;
        rows->row[i].name = is_kernel ? short_names_get(&shorts, rows->row[i].name) : rows->row[i].name;
    }
    short_names_free(&shorts);
    free(name);
}

static size_t row_limit(const struct options *options)
{
    uint64_t top = MAX(options->top, options->sort.top);
    if (options->row_limit || top) {
        top = top ? top : UINT64_MAX;
        return options->row_limit > 0 ? MIN((uint64_t)options->row_limit, top) : top;
    }
    return options->format == FORMAT_TEXT ? ROWS_OF_TORCH : SIZE_MAX;
}

static bool print(struct session *session, const struct op_rows *rows)
{
    size_t limit = row_limit(&session->options);
    if (session->options.format == FORMAT_TEXT) { /* prints only the table */
        if (!session_begin_text(session)) return false;
        op_table_print(rows, limit, &session->out);
        return true;
    }
    if (!session_begin(session, STYLE_TABLE)) return false;
    for (size_t i = 0; i < MIN(limit, rows->count); i++) emit_op(session, rows, &rows->row[i]);
    emit_sums(&session->emit, rows);
    emit_end(&session->emit);
    return true;
}

/* --device and --stream choose device work: operators alone do not match them. */
static bool is_anything_found(const struct options *options, const struct op_rows *rows)
{
    bool by_lane = options->device.count || options->stream.count;
    return !is_filtered(options) || (rows->count && (rows->has_device || !by_lane));
}

struct needs ops_needs(const struct options *options)
{
    struct needs needs = {.calls = true,
                          .operators = true,
                          .operator_details = true,
                          .memory = true,
                          .all_spans = true,
                          .captures = true};
    needs.operators_of_work = needs.stages_of_spans = true;
    /* In a backward operator the stage and the stack are those of the forward one, which only loaded operators tell. */
    if (is_filtered(options) || options->group_ops.stack) needs.stream = STREAM_UNLINKED;
    return needs_union(work_needs(options), needs);
}

void cmd_ops(struct session *session)
{
    struct op_rows rows = {.chosen = &session->chosen};
    if (!session_load(session)) return;
    for (size_t i = 0; i < session->chosen.processes; i++) {
        struct scope *scope = scope_begin(&session->chosen, i);
        op_rows_add(&rows, scope);
        scope_end(scope);
    }
    op_rows_end(&rows);
    if (session->options.names == NAMES_SHORT) shorten_kernels(&rows);
    if (session->options.sort.torchs != SORT_NONE) sort_rows(&rows, session->options.sort.torchs);
    if (print(session, &rows)) {
        if (!rows.count && !is_filtered(&session->options))
            complain(NULL, "no operators were recorded; `tfanalyze info` shows the recorded events");
        if (session->captures.patterns) say_replays(&rows);
        session_end(session, is_anything_found(&session->options, &rows));
    }
    op_rows_free(&rows);
}
