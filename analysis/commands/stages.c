/* stages.c - reports the time of each stage: one row per stage and rank, those with the most time first.
 *
 * A stage has two times: the time its thread spent in it, and the time of the device work launched in it, whenever that
 * ran.
 *
 * median, p95, min and max are over single calls, from entry to exit. They include calls nested in another call of
 * the same name; host_us counts nested calls once. With --exclusive the time of inner stages is subtracted.
 *
 * done_us is the time until the work that a stage launched was done (ask/stages/done_times.h). Rows are sorted by it, and it is
 * the share of the rank's span: on a device a stage that does not wait takes that long, not the time of its launches.
 *
 * If a stage's device times come only from CUDA events, they span its first launch in a stream to its last, gaps
 * included. Then only device_busy_us is known, and a stage inside another one counts for itself.
 *
 * While another profiler holds the device alone, the work launched is unknown. If that happened, each row has an
 * additional key device_elsewhere with the name of the holder while the stage was open.
 */
#include <math.h>
#include <stdlib.h>

#include "ask/stages/stage_table.h"
#include "ask/stages/start_times.h"
#include "ask/stages/whole_stages.h"
#include "commands/session.h"
#include "commands/stages_slowest.h"
#include "write/rows/whole_values.h"

#define START_UP "(start-up)"
#define KEYS_ELSEWHERE                                                                                                 \
    "stage,parent,rank,calls,median_us,p95_us,min_us,max_us,host_us,wall_us,self_us,done_us,cpu_us,device_us,"         \
    "device_busy_us,idle_us,peak_allocated_bytes,peak_reserved_bytes,pct,device_elsewhere"

/* Returns the time from the first to the last record of a rank's processes, within the window; 0 if there are none.
 * Several PyTorch traces of one rank count separately, without the gaps between them. */
static int64_t span_of(const struct session *session, int64_t rank, bool all, struct window window)
{
    struct intervals pieces = {0};
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (size_t i = 0; i < session->chosen.processes; i++) {
        const struct process *p = session->chosen.process[i];
        if (!p->has_time || !(all || p->rank == rank)) continue;
        if (is_of_kineto(p)) {
            intervals_add(&pieces, MAX(p->first, window.from), MIN(p->last, window.to));
        } else {
            first = MIN(first, p->first);
            last = MAX(last, p->last);
        }
    }
    if (first < last) intervals_add(&pieces, MAX(first, window.from), MIN(last, window.to));
    intervals_merge(&pieces);
    int64_t span = intervals_total(&pieces);
    intervals_free(&pieces);
    return span;
}

/* Returns the time by which a row is sorted and shares the rank's span: done_us, wall_us where that is unknown, self_us
 * with --exclusive. */
static int64_t time_of(const struct stage_row *row, bool exclusive)
{
    return exclusive ? row->self : row->done_unknown ? row->wall : row->done;
}

/* Rows of equal times keep the order in which the stages were opened. */
static int by_rank_and_time(const void *a, const void *b, void *context)
{
    const struct stage_row *x = a, *y = b;
    const bool *exclusive = context;
    int64_t time_x = time_of(x, *exclusive), time_y = time_of(y, *exclusive);
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (time_x != time_y) return time_x > time_y ? -1 : 1;
    if (x->work != y->work) return x->work > y->work ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* Prints device times; null if the traces of the rank have no device work. */
static void emit_device(struct emit *e, struct stage_row *row, bool has_device)
{
    int64_t busy, idle;
    if (!stage_work_known(row) || (!has_device && !row->by_events)) {
        emit_null(e, "device_us");
        emit_null(e, "device_busy_us");
        emit_null(e, "idle_us");
        return;
    }
    stage_busy(row, &busy, &idle);
    if (row->by_events) emit_null(e, "device_us");
    else emit_us(e, "device_us", row->work);
    if (row->by_sums) emit_null(e, "device_busy_us");
    else emit_us(e, "device_busy_us", busy);
    if (!row->by_sums && row->devices && !row->by_events) emit_us(e, "idle_us", idle);
    else emit_null(e, "idle_us");
}

/* Prints what is known of single calls of the whole run: nothing if some calls of the row are not in the one sum. */
static void emit_calls_of_run(struct emit *e, const struct stage_row *row)
{
    emit_whole_values(e, row->whole->count == row->calls ? row->whole : NULL);
}

/* Prints percentiles, interpolated between neighbours as in `breakdown`. A row with device work alone has no calls. */
static void emit_one_call(struct emit *e, struct values *each)
{
    if (!each->count) {
        emit_null(e, "median_us");
        emit_null(e, "p95_us");
        emit_null(e, "min_us");
        emit_null(e, "max_us");
        return;
    }
    values_sort(each);
    emit_us(e, "median_us", values_percentile(each, 0.5));
    emit_us(e, "p95_us", values_percentile(each, 0.95));
    emit_us(e, "min_us", each->value[0]);
    emit_us(e, "max_us", each->value[each->count - 1]);
}

/* Prints host times; null for the row of work outside all stages. */
static void emit_host(struct session *session, struct stage_row *row)
{
    struct emit *e = &session->emit;
    bool exclusive = session->options.exclusive;
    int64_t host = exclusive ? row->self : row->host;
    if (row->name == NAME_OUTSIDE && !row->calls) {
        static const char *const unknown[] = {"calls",   "median_us", "p95_us",  "min_us",  "max_us",
                                              "host_us", "wall_us",   "self_us", "done_us", "cpu_us"};
        for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) emit_null(e, unknown[i]);
        return;
    }
    emit_count(e, "calls", row->calls);
    if (row->of_whole_run) {
        emit_calls_of_run(e, row);
        emit_null(e, "host_us");
        emit_us(e, "wall_us", row->wall);
        emit_null(e, "self_us");
        emit_null(e, "done_us");
        emit_null(e, "cpu_us");
        return;
    }
    emit_one_call(e, &row->each);
    emit_us(e, "host_us", host);
    emit_us(e, "wall_us", exclusive ? row->self : row->wall);
    emit_us(e, "self_us", row->self);
    if (exclusive || row->done_unknown) emit_null(e, "done_us");
    else emit_us(e, "done_us", row->done);
    if (exclusive || row->cpu_unknown) emit_null(e, "cpu_us");
    else emit_us(e, "cpu_us", row->cpu);
}

/* Prints peaks. Host allocators reserve nothing, so the reserved peak is then null. */
static void emit_peaks(struct emit *e, const struct stage_row *row)
{
    if (row->has_peaks) emit_bytes(e, "peak_allocated_bytes", row->peak_allocated);
    else emit_null(e, "peak_allocated_bytes");
    if (row->has_peaks && !row->peaks_of_host) emit_bytes(e, "peak_reserved_bytes", row->peak_reserved);
    else emit_null(e, "peak_reserved_bytes");
}

/* True if another client of CUPTI held the device for a while. Only then rows have the key device_elsewhere. */
static bool was_elsewhere(const struct session *session)
{
    for (size_t i = 0; i < session->chosen.processes; i++)
        if (session->chosen.process[i]->elsewheres) return true;
    return false;
}

static void emit_stage_row(struct session *session, struct stage_row *row, int64_t span, bool has_device)
{
    struct emit *e = &session->emit;
    const struct name *name = names_get(&session->model.names, row->name);
    bool exclusive = session->options.exclusive, shares = span > 0 && row->calls && (exclusive || !row->done_unknown);
    emit_row(e);
    emit_stage(e, name);
    emit_parent(e, &session->model.names, row->parent);
    emit_known(e, "rank", row->group);
    emit_host(session, row);
    emit_device(e, row, has_device);
    emit_peaks(e, row);
    emit_pct(e, "pct", shares ? 100.0 * (double)time_of(row, exclusive) / (double)span : NAN);
    if (was_elsewhere(session)) {
        emit_text(e, "device_elsewhere",
                  row->elsewhere == NAME_NONE ? NULL : model_name(&session->model, row->elsewhere));
    }
    emit_row_end(e);
}

/* Prints the row of the start of a rank; false if there is none. */
static bool emit_start(struct session *session, int64_t rank, const struct startup_share *share)
{
    struct emit *e = &session->emit;
    static const char *const times[] = {"host_us", "wall_us", "self_us", "done_us"};
    static const char *const before[] = {"calls", "median_us", "p95_us", "min_us", "max_us"};
    static const char *const after[] = {
        "cpu_us", "device_us", "device_busy_us", "idle_us", "peak_allocated_bytes", "peak_reserved_bytes"};
    if (!share->known || !wants_stage(&session->options, START_UP)) return false;
    emit_row(e);
    emit_text(e, "stage", START_UP);
    emit_null(e, "parent");
    emit_known(e, "rank", rank);
    for (size_t i = 0; i < ARRAY_SIZE(before); i++) emit_null(e, before[i]);
    for (size_t i = 0; i < ARRAY_SIZE(times); i++) emit_us(e, times[i], share->start_up);
    for (size_t i = 0; i < ARRAY_SIZE(after); i++) emit_null(e, after[i]);
    emit_pct(e, "pct", share->run ? 100.0 * (double)share->start_up / (double)share->run : NAN);
    if (was_elsewhere(session)) emit_null(e, "device_elsewhere");
    emit_row_end(e);
    return true;
}

static bool rank_has_device(const struct session *session, int64_t rank)
{
    for (size_t i = 0; i < session->chosen.processes; i++) {
        const struct process *p = session->chosen.process[i];
        if (p->rank == rank && stages_have_device(p)) return true;
    }
    return false;
}

static void add_share(struct startup_share *all, const struct startup_share *one)
{
    all->known |= one->known;
    all->run = add_ns(all->run, one->run);
    all->start_up = add_ns(all->start_up, one->start_up);
    all->work = add_ns(all->work, one->work);
    all->unexplained = add_ns(all->unexplained, one->unexplained);
}

/* Prints what the time of all ranks went into, and what the shares are shares of. */
static void emit_share(struct emit *e, const struct startup_share *all)
{
    if (!all->known) {
        emit_text(e, "pct_of", "span_us of the rank");
        return;
    }
    emit_us(e, "run_us", all->run);
    emit_us(e, "start_up_us", all->start_up);
    emit_us(e, "work_us", all->work);
    emit_us(e, "unexplained_us", all->unexplained);
    emit_text(e, "pct_of", "run_us of the rank, its start included");
}

/* Prints the chosen rows and adds up the times of the ranks; returns the number of stages. */
static size_t emit_stages(struct session *session, struct stage_table *table, struct window window,
                          struct startup_share *all)
{
    size_t rows = 0, of_rank = 0;
    int64_t span = 0;
    bool has_device = false, exclusive = session->options.exclusive;
    struct startup_share share = {0};
    if (table->count)
        qsort_r(table->row, table->count, sizeof *table->row, by_rank_and_time, &session->options.exclusive);
    for (size_t i = 0; i < table->count; i++) {
        struct stage_row *row = &table->row[i];
        if (i == 0 || row->group != row[-1].group) {
            of_rank = 0;
            share = startup_share_of(&session->chosen, row->group, (struct interval){window.from, window.to});
            span = share.known ? share.run : span_of(session, row->group, false, window);
            has_device = rank_has_device(session, row->group);
            add_share(all, &share);
        }
        bool has_room = !session->options.top || of_rank < session->options.top;
        if (has_room && share.known && share.start_up >= time_of(row, exclusive)) {
            of_rank += emit_start(session, row->group, &share);
            share.known = false;
        }
        if (session->options.top && of_rank >= session->options.top) continue;
        emit_stage_row(session, row, span, has_device);
        of_rank++;
        rows++;
        bool is_last = i + 1 == table->count || row[1].group != row->group;
        if (is_last && share.known) emit_start(session, row->group, &share);
    }
    return rows;
}

/* Returns the ranks with a process that has stages. */
static struct map ranks_with_stages(const struct session *session)
{
    struct map ranks = {0};
    for (size_t i = 0; i < session->chosen.processes; i++)
        if (has_stages(session->chosen.process[i])) map_put(&ranks, (uint64_t)session->chosen.process[i]->rank, 1);
    return ranks;
}

struct needs stages_needs(const struct options *options)
{
    struct needs needs = work_needs(options);
    needs.startup = true;
    needs.captures = options->graph_capture.count != 0;
    needs.signatures = needs.io = options->slowest != 0;
    return needs;
}

void cmd_stages(struct session *session)
{
    struct stage_table table = {.exclusive = session->options.exclusive, .since = INT64_MIN};
    struct window window;
    size_t rows = 0;
    struct startup_share all = {0};
    uint64_t replayed = 0, unknown = 0, by_order = 0;
    bool of_whole_run = false;
    if (session->options.slowest) {
        stages_slowest(session);
        return;
    }
    if (!session_ask(session, STYLE_TABLE)) return;
    if (was_elsewhere(session)) emit_keys(&session->emit, KEYS_ELSEWHERE);
    selection_window(&session->chosen, &window.from, &window.to);
    struct map with_stages = ranks_with_stages(session);
    for (size_t i = 0; i < session->chosen.processes; i++) {
        struct scope *scope = scope_begin(&session->chosen, i);
        int64_t rank = scope->process->rank;
        bool whole = stages_add_whole(&table, scope, rank);
        of_whole_run |= whole;
        if (!whole) stages_add(&table, scope, rank, map_get(&with_stages, (uint64_t)rank) == MAP_NONE);
        replayed += scope->attribution.replayed;
        unknown += scope->attribution.uncaptured;
        by_order += scope->attribution.by_order;
        scope_end(scope);
    }
    map_free(&with_stages);
    rows = emit_stages(session, &table, window, &all);
    emit_totals(&session->emit);
    emit_count(&session->emit, "stages", rows);
    emit_count(&session->emit, "unfinished", table.unfinished);
    emit_us(&session->emit, "span_us", span_of(session, 0, true, window));
    emit_share(&session->emit, &all);
    if (session->options.graph_capture.count) {
        emit_count(&session->emit, "replayed", replayed);
        emit_count(&session->emit, "replayed_unknown", unknown);
        emit_count(&session->emit, "replayed_by_order", by_order);
    }
    if (of_whole_run) emit_count(&session->emit, "calls_of_others", table.calls_of_others);
    emit_end(&session->emit);
    if (of_whole_run)
        complain(NULL,
                 "the rows of TFI_MODE=flight are sums of the whole run: only calls, wall_us and single calls are "
                 "known; --from 0 asks for the last seconds");
    if (!rows && !is_filtered(&session->options))
        complain(NULL, "no stages were recorded; mark them with NVTX ranges or tfi_range_push of tfinject.h");
    stages_tell_deep(&table);
    session_end(session, rows || !is_filtered(&session->options));
    stages_free(&table);
}
