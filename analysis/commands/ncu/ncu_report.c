/* ncu_report.c - reports what bounds the kernels that Nsight Compute measured, and what share of a stage they have. */
#include <math.h>
#include <stdlib.h>

#include "ask/device/work_sums.h"
#include "ask/ncu/ncu_kernels.h"
#include "ask/ncu/ncu_names.h"
#include "commands/session.h"

struct ncu_answer {
    struct session *session;
    struct ncu_launches launches;
    struct ncu_kernels kernels;
    struct ncu_file {
        char *path;
        struct notes notes;
        bool usable;
        uint64_t launches;
    } * file;
    size_t files, file_capacity;
    bool has_trace;
    struct work_sums sums; /* of the traces */
    struct ncu_matcher matcher;
    struct map row; /* the row of the sums with the most time, by name of a kernel */
};

/* A kernel with its row of the traces. */
struct joined {
    const struct ncu_kernel *kernel;
    const struct work_sum *row; /* NULL: none was found */
    enum ncu_matched how;
};

/* ---- inputs ---- */

/* Takes the files of ncu out of the list of inputs; the others are traces. */
static void divide_inputs(struct ncu_answer *a)
{
    struct strings_list *words = &a->session->options.inputs;
    size_t kept = 0;
    for (size_t i = 0; i < words->count; i++) {
        char *word = words->text[i];
        if (!is_ncu_report(word) && !is_ncu_csv(word)) {
            words->text[kept++] = word;
            continue;
        }
        a->file = mem_grow(a->file, &a->file_capacity, a->files + 1, sizeof *a->file);
        a->file[a->files++] = (struct ncu_file){.path = word};
    }
    words->count = kept;
}

static bool read_files(struct ncu_answer *a)
{
    bool usable = false;
    for (size_t i = 0; i < a->files; i++) {
        struct ncu_file *file = &a->file[i];
        size_t before = a->launches.count;
        file->usable = ncu_read_file(file->path, &a->launches, &file->notes);
        file->launches = a->launches.count - before;
        usable |= file->usable;
        for (size_t k = 0; k < file->notes.count; k++) complain(file->path, "%s", file->notes.note[k].text);
        if (!file->usable || notes_have(&file->notes, LOSS)) session_spoil(a->session);
    }
    if (!a->files)
        complain(
            NULL,
            "ncu report needs a file of Nsight Compute: what `ncu --csv` printed, or a .ncu-rep; `tfanalyze ncu plan` "
            "has the command lines");
    if (!usable) a->session->status = STATUS_NOTHING;
    return usable;
}

/* ---- traces ---- */

static void find_rows(struct ncu_answer *a)
{
    static const struct breakdown_rules rules = {&exact_kinds, false};
    const struct session *session = a->session;
    work_sums_init(&a->sums, &rules, &a->session->model.names);
    for (size_t i = 0; i < session->chosen.processes; i++) {
        struct scope *scope = scope_begin(&session->chosen, i);
        work_sums_add(&a->sums, scope);
        scope_end(scope);
    }
    work_sums_sort(&a->sums);
    uint32_t *name = mem_zero(a->sums.count, sizeof *name);
    for (size_t i = 0; i < a->sums.count; i++) {
        uint32_t known = map_get(&a->row, name[i] = a->sums.row[i].head.name);
        if (known == MAP_NONE || a->sums.row[known].head.time < a->sums.row[i].head.time)
            map_put(&a->row, name[i], (uint32_t)i);
    }
    ncu_matcher_init(&a->matcher, &session->model.names, name, a->sums.count);
    free(name);
}

static struct joined join_kernel(const struct ncu_answer *a, const struct ncu_kernel *kernel)
{
    struct joined joined = {.kernel = kernel};
    uint32_t name;
    if (a->has_trace) joined.how = ncu_match(&a->matcher, kernel->first->kernel, &name);
    if (joined.how > MATCHED_SEVERAL) joined.row = &a->sums.row[map_get(&a->row, name)];
    return joined;
}

/* ---- rows ---- */

/* By the time in the traces, then by the time that ncu measured. */
static int joined_order(const void *a, const void *b)
{
    const struct joined *x = a, *y = b;
    int64_t time_x = x->row ? x->row->head.time : -1, time_y = y->row ? y->row->head.time : -1;
    double ncu_x = x->kernel->metric[NCU_DURATION], ncu_y = y->kernel->metric[NCU_DURATION];
    if (time_x != time_y) return time_x > time_y ? -1 : 1;
    if (!isnan(ncu_x) != !isnan(ncu_y)) return isnan(ncu_x) ? 1 : -1;
    if (!isnan(ncu_x) && ncu_x != ncu_y) return ncu_x > ncu_y ? -1 : 1;
    return (x->kernel > y->kernel) - (x->kernel < y->kernel);
}

/* ncu empties the caches and holds the clock down, so times differ; but not by a factor of two. */
static void say_match(const struct joined *j, struct text *e)
{
    double ncu = j->kernel->metric[NCU_DURATION] * 1e9;
    if (j->how == MATCHED_SEVERAL)
        text_puts(e, "several kernels of the trace have this function: its share is not known\n");
    if (j->how == MATCHED_FUNCTION) text_puts(e, "found in the trace by its function alone\n");
    if (!j->row || isnan(ncu)) return;
    struct values sorted = j->row->values;
    values_sort(&sorted);
    double trace = (double)values_percentile(&sorted, 0.5);
    if (ncu > 2 * trace || trace > 2 * ncu)
        text_format(e,
                    "ncu measured %.1f us, and the median in the trace is %.1f us: it may be another launch, or "
                    "another input\n",
                    ncu / 1e3, trace / 1e3);
}

static void emit_metrics(struct emit *e, const struct ncu_kernel *kernel)
{
    emit_open(e, "metrics", false);
    for (int i = 0; i < NR_NCU_METRICS; i++) {
        double value = kernel->metric[i];
        bool is_pct = strstr(ncu_keys[i], "_pct") != NULL;
        if (isnan(value)) continue;
        if (i == NCU_DURATION) emit_us(e, ncu_keys[i], (int64_t)fmin(value * 1e9, 9e18));
        else if (is_pct) emit_pct(e, ncu_keys[i], value);
        else emit_double(e, ncu_keys[i], i == NCU_DRAM_SPEED ? value / 1e9 : value);
    }
    emit_close(e);
}

static void emit_evidence(struct emit *e, const char *lines)
{
    emit_open(e, "evidence", true);
    while (*lines) {
        size_t length = strcspn(lines, "\n");
        emit_bytes_text(e, NULL, lines, length);
        lines += length + (lines[length] == '\n');
    }
    emit_close(e);
}

static void emit_share(struct ncu_answer *a, const struct work_sum *row)
{
    static const char *const unknown[] = {"stage", "rank", "calls", "total_us", "pct"};
    struct emit *e = &a->session->emit;
    for (size_t i = 0; !row && i < ARRAY_SIZE(unknown); i++) emit_null(e, unknown[i]);
    if (!row) return;
    emit_stage(e, names_get(&a->session->model.names, row->head.stage));
    emit_known(e, "rank", row->head.rank);
    emit_hide(e, left_rows_stage(&a->sums.left, row->head.rank, row->head.stage));
    emit_count(e, "calls", row->values.count);
    emit_us(e, "total_us", row->head.time);
    emit_pct(e, "pct", row->head.of_stage ? 100.0 * (double)row->head.time / (double)row->head.of_stage : NAN);
    emit_hide(e, false);
}

/* Writes a kernel for people: its class and name, and its facts below. */
static void say_kernel(struct ncu_answer *a, const struct joined *j, enum ncu_bound bound, const char *facts)
{
    const struct ncu_launch *first = j->kernel->first;
    const struct work_sum *row = j->row;
    struct out *out = &a->session->out;
    struct text said = {0};
    text_format(&said, "%s%s  ", ncu_bounds[bound] ? ncu_bounds[bound] : "not judged",
                ncu_bounds[bound] ? "-bound" : "");
    text_visible(&said, first->kernel, strlen(first->kernel));
    text_format(&said, "\n    %llu launch%s, grid ", (unsigned long long)j->kernel->launches,
                j->kernel->launches == 1 ? "" : "es");
    text_visible(&said, first->grid ? first->grid : "-", first->grid ? strlen(first->grid) : 1);
    text_puts(&said, ", block ");
    text_visible(&said, first->block ? first->block : "-", first->block ? strlen(first->block) : 1);
    if (row) {
        const struct name *stage = names_get(&a->session->model.names, row->head.stage);
        bool known = !left_rows_stage(&a->sums.left, row->head.rank, row->head.stage);
        text_puts(&said, "\n    ");
        if (known)
            text_format(&said, "%.1f %% of the kernels of ",
                        100.0 * (double)row->head.time / (double)MAX(row->head.of_stage, 1));
        text_visible(&said, stage->text, stage->length);
        text_format(&said, ": %zu launches, ", row->values.count);
        human_time(&said, row->head.time);
    }
    out_format(out, "%s\n", said.data);
    for (const char *fact = facts; *fact; fact += strcspn(fact, "\n") + 1) {
        said.length = 0;
        text_visible(&said, fact, strcspn(fact, "\n"));
        out_format(out, "    - %s\n", said.data);
    }
    out_puts(out, "\n");
    text_free(&said);
}

static void emit_row_of(struct ncu_answer *a, const struct joined *j, enum ncu_bound bound, const char *nearer,
                        const char *facts)
{
    struct emit *e = &a->session->emit;
    const struct ncu_launch *first = j->kernel->first;
    emit_row(e);
    emit_text(e, "kernel", first->kernel);
    emit_text(e, "grid", first->grid);
    emit_text(e, "block", first->block);
    emit_count(e, "launches", j->kernel->launches);
    emit_text(e, "bound", ncu_bounds[bound]);
    emit_text(e, "nearer", nearer);
    emit_share(a, j->row);
    emit_evidence(e, facts);
    emit_metrics(e, j->kernel);
    emit_row_end(e);
}

static enum ncu_bound answer_kernel(struct ncu_answer *a, const struct joined *j)
{
    struct text facts = {0};
    const char *nearer;
    enum ncu_bound bound = ncu_judge(j->kernel, &facts, &nearer);
    say_match(j, &facts);
    if (a->session->options.format == FORMAT_TEXT) say_kernel(a, j, bound, facts.data);
    else emit_row_of(a, j, bound, nearer, facts.data);
    text_free(&facts);
    return bound;
}

static void emit_bounds(struct ncu_answer *a, const uint64_t bounds[NR_BOUNDS], uint64_t found)
{
    struct emit *e = &a->session->emit;
    emit_totals(e);
    emit_count(e, "kernels", a->kernels.count);
    emit_count(e, "memory_bound", bounds[BOUND_MEMORY]);
    emit_count(e, "compute_bound", bounds[BOUND_COMPUTE]);
    emit_count(e, "bound_by_both", bounds[BOUND_BOTH]);
    emit_count(e, "latency_bound", bounds[BOUND_LATENCY]);
    emit_count(e, "not_judged", bounds[BOUND_UNKNOWN]);
    if (a->has_trace) emit_count(e, "found_in_trace", found);
    else emit_null(e, "found_in_trace");
    emit_end(e);
}

static void emit_kernels(struct ncu_answer *a)
{
    uint64_t top = a->session->options.top, bounds[NR_BOUNDS] = {0}, found = 0;
    struct joined *joined = mem_zero(a->kernels.count, sizeof *joined);
    for (size_t i = 0; i < a->kernels.count; i++) joined[i] = join_kernel(a, &a->kernels.kernel[i]);
    if (a->kernels.count) qsort(joined, a->kernels.count, sizeof *joined, joined_order);
    for (size_t i = 0; i < a->kernels.count && (!top || i < top); i++) {
        bounds[answer_kernel(a, &joined[i])]++;
        found += joined[i].row != NULL;
    }
    if (a->session->options.format != FORMAT_TEXT) emit_bounds(a, bounds, found);
    if (a->has_trace && !found) complain(NULL, "no kernel of ncu is among the chosen kernels of the traces");
    free(joined);
}
static void name_files(struct ncu_answer *a)
{
    for (size_t i = 0; i < a->files; i++) {
        const struct ncu_file *file = &a->file[i];
        bool whole = file->usable && !notes_have(&file->notes, LOSS);
        emit_input(&a->session->emit, file->path, "ncu", -1, whole, (int64_t)file->launches, -1, false);
    }
}

static void ncu_answer_free(struct ncu_answer *a)
{
    for (size_t i = 0; i < a->files; i++) {
        notes_free(&a->file[i].notes);
        free(a->file[i].path);
    }
    free(a->file);
    if (a->has_trace) {
        work_sums_free(&a->sums);
        ncu_matcher_free(&a->matcher);
    }
    map_free(&a->row);
    ncu_kernels_free(&a->kernels);
    ncu_launches_free(&a->launches);
}

void cmd_ncu_report(struct session *session)
{
    struct ncu_answer a = {.session = session};
    divide_inputs(&a);
    a.has_trace = session->options.inputs.count != 0;
    if (a.has_trace && !session_load(session)) a.has_trace = false;
    else if (!read_files(&a)) session->status = STATUS_NOTHING;
    else if (!a.has_trace && is_filtered(&session->options)) {
        complain(NULL, "filters choose among the kernels of a trace: name one too");
        session->status = STATUS_NOTHING;
    } else if (session_begin(session, STYLE_LINES)) {
        name_files(&a);
        if (a.has_trace) find_rows(&a);
        ncu_kernels_of(&a.kernels, &a.launches);
        emit_kernels(&a);
        session_end_said(session, true);
        ncu_answer_free(&a);
        return;
    }
    a.has_trace = false; /* no sums were made */
    ncu_answer_free(&a);
}
