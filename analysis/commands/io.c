/* io.c - answers what calls on files cost: by function, file, process or worker, over time, and beside the device. */
#include "commands/io.h"

#include <math.h>
#include <string.h>

#include "ask/io/io_table.h"

/* ---- values ---- */

static void emit_time(struct emit *e, const char *key, int64_t ns)
{
    if (ns < 0) emit_null(e, key);
    else emit_us(e, key, ns);
}

static void emit_size(struct emit *e, const char *key, int64_t bytes)
{
    if (bytes < 0) emit_null(e, key);
    else emit_bytes(e, key, (uint64_t)bytes);
}

/* Bytes per microsecond are millions of bytes per second. */
static void emit_bandwidth(struct emit *e, uint64_t bytes, int64_t moving)
{
    emit_double(e, "bandwidth_mbs", bytes && moving > 0 ? (double)bytes / ((double)moving / 1e3) : NAN);
}

static void emit_sizes(struct emit *e, const struct io_row *row)
{
    static const char *const keys[] = {"size_q1", "size_median", "size_q3"};
    bool known = row->sizes.count && !row->has_sums;
    int64_t least = row->sizes.count ? row->sizes.run[0].bytes : -1;
    int64_t most = row->sizes.count ? row->sizes.run[row->sizes.count - 1].bytes : -1;
    if (row->smallest >= 0) least = least < 0 ? row->smallest : MIN(least, row->smallest);
    emit_size(e, "size_min", least);
    for (int i = 0; i < 3; i++) emit_size(e, keys[i], known ? sizes_percentile(&row->sizes, 0.25 * (i + 1)) : -1);
    emit_size(e, "size_max", MAX(most, row->largest));
}

/* ---- rows ---- */

static void emit_line(struct session *session, const struct io_line *line)
{
    struct emit *e = &session->emit;
    const struct io_row *row = &line->row;
    emit_row(e);
    emit_name(e, &session->model.names, "function", row->function);
    emit_name(e, &session->model.names, "path", row->path);
    emit_known(e, "rank", line->rank);
    emit_known(e, "worker", line->worker);
    emit_known(e, "pid", line->pid);
    emit_count(e, "calls", row->calls);
    emit_count(e, "errors", row->errors);
    emit_bytes(e, "bytes", row->bytes);
    emit_sizes(e, row);
    emit_us(e, "total_us", row->total);
    emit_us(e, "unoverlapped_us", line->unoverlapped);
    emit_time(e, "idle_us", line->idle);
    emit_bandwidth(e, row->bytes, row->moving);
    emit_row_end(e);
}

static void emit_lines(struct session *session, struct io_table *table)
{
    struct emit *e = &session->emit;
    uint64_t top = session->options.top;
    io_table_sort(table, &session->model.names);
    for (size_t i = 0; i < table->lines && (!top || i < top); i++) emit_line(session, &table->line[i]);
    emit_totals(e);
    emit_count(e, "calls", table->all.calls);
    emit_bytes(e, "bytes", table->all.bytes);
    emit_us(e, "total_us", table->all.total);
    emit_us(e, "unoverlapped_us", table->all.alone_io);
    emit_time(e, "idle_us", table->all.idle);
    emit_end(e);
}

/* ---- the summary ---- */

static const char summary_keys[] =
    "rank,worker,pid,processes,span_us,app_io_us,unoverlapped_app_io_us,io_us,unoverlapped_io_us,compute_us,"
    "unoverlapped_compute_us,idle_us,files,calls,bytes,total_us,bandwidth_mbs";

static void emit_summary(struct session *session, const struct io_table *table)
{
    struct emit *e = &session->emit;
    uint64_t top = session->options.top;
    for (size_t i = 0; i < table->sum_count && (!top || i < top); i++) {
        const struct io_sums *s = &table->sums[i];
        emit_row(e);
        emit_known(e, "rank", s->rank);
        emit_known(e, "worker", s->worker);
        emit_known(e, "pid", s->pid);
        emit_count(e, "processes", s->processes);
        emit_time(e, "span_us", s->span);
        emit_us(e, "app_io_us", s->asked);
        emit_us(e, "unoverlapped_app_io_us", s->alone_asked);
        emit_us(e, "io_us", s->io);
        emit_us(e, "unoverlapped_io_us", s->alone_io);
        emit_us(e, "compute_us", s->compute);
        emit_us(e, "unoverlapped_compute_us", s->alone_compute);
        emit_time(e, "idle_us", s->idle);
        emit_count(e, "files", s->files);
        emit_count(e, "calls", s->calls);
        emit_bytes(e, "bytes", s->bytes);
        emit_us(e, "total_us", s->total);
        emit_bandwidth(e, s->bytes, s->moving);
        emit_row_end(e);
    }
    emit_totals(e);
    emit_count(e, "processes", table->all.processes);
    emit_count(e, "calls", table->all.calls);
    emit_bytes(e, "bytes", table->all.bytes);
    emit_end(e);
}

/* ---- the timeline ---- */

static const char timeline_keys[] = "time_us,width_us,calls,read_bytes,write_bytes,size_mean,total_us,bandwidth_mbs";

static void emit_timeline(struct session *session, const struct io_table *table)
{
    struct emit *e = &session->emit;
    const struct io_buckets *b = &table->timeline;
    uint64_t top = session->options.top;
    for (size_t i = 0; i < b->count && (!top || i < top); i++) {
        const struct io_bucket *bucket = &b->bucket[i];
        uint64_t bytes = bucket->read_bytes + bucket->write_bytes;
        emit_row(e);
        emit_us(e, "time_us", (b->first + (int64_t)i) * b->width - session->model.start);
        emit_us(e, "width_us", b->width);
        emit_count(e, "calls", bucket->calls);
        emit_bytes(e, "read_bytes", bucket->read_bytes);
        emit_bytes(e, "write_bytes", bucket->write_bytes);
        emit_size(e, "size_mean", bucket->transfers ? (int64_t)(bytes / bucket->transfers) : -1);
        emit_us(e, "total_us", bucket->total);
        emit_bandwidth(e, bytes, bucket->moving);
        emit_row_end(e);
    }
    emit_totals(e);
    emit_count(e, "calls", table->all.calls);
    emit_bytes(e, "bytes", table->all.bytes);
    emit_end(e);
}

/* ---- files ---- */

static const char file_keys[] = "path,findings,opens,read_calls,write_calls,metadata_calls,read_bytes,write_bytes,"
                                "small_reads,small_writes,unaligned_reads,"
                                "repeated_bytes,total_us";

static void emit_findings(struct emit *e, const struct io_file *file)
{
    struct text text = {0};
    for (unsigned i = 0; i < NR_IO_FINDINGS; i++)
        if (io_file_has(file, i)) text_format(&text, "%s%s", text.length ? ", " : "", io_finding_names[i]);
    emit_text(e, "findings", text.data);
    text_free(&text);
}

static void emit_file(struct session *session, const struct io_line *line)
{
    struct emit *e = &session->emit;
    const struct io_file *file = line->row.file;
    emit_row(e);
    emit_name(e, &session->model.names, "path", line->row.path);
    emit_findings(e, file);
    emit_count(e, "opens", file->opens);
    emit_count(e, "read_calls", file->reads);
    emit_count(e, "write_calls", file->writes);
    emit_count(e, "metadata_calls", file->metadata);
    emit_bytes(e, "read_bytes", file->read_bytes);
    emit_bytes(e, "write_bytes", file->write_bytes);
    emit_count(e, "small_reads", file->small);
    emit_count(e, "small_writes", file->small_writes);
    if (file->has_unknown) emit_null(e, "unaligned_reads");
    else emit_count(e, "unaligned_reads", file->unaligned);
    emit_size(e, "repeated_bytes", io_file_repeated(file));
    emit_us(e, "total_us", line->row.total);
    emit_row_end(e);
}

static void emit_files(struct session *session, struct io_table *table)
{
    struct emit *e = &session->emit;
    uint64_t top = session->options.top, found = 0;
    io_table_sort(table, &session->model.names);
    for (size_t i = 0; i < table->lines; i++) {
        const struct io_file *file = table->line[i].row.file;
        bool any = false;
        for (unsigned k = 0; k < NR_IO_FINDINGS; k++) any |= io_file_has(file, k);
        found += any;
        if (!top || i < top) emit_file(session, &table->line[i]);
    }
    emit_totals(e);
    emit_count(e, "files", table->lines);
    emit_count(e, "files_with_findings", found);
    emit_end(e);
}

/* ---- late batches ---- */

static const char batch_keys[] = "rank,worker,pid,batch,requested_us,begun_us,arrived_us,asked_us,wait_us,idle_us,"
                                 "calls,bytes,total_us,files,reads";

static void emit_moment(struct session *session, const char *key, int64_t time, bool known)
{
    if (known) emit_us(&session->emit, key, time - session->model.start);
    else emit_null(&session->emit, key);
}

/* Emits the calls on files of a batch; nulls if they were not kept. A text has the longest read only, to fit a line. */
static void emit_reads(struct session *session, const struct io_late *late)
{
    static const char *const unknown[] = {"calls", "bytes", "total_us", "files", "reads"};
    struct emit *e = &session->emit;
    const struct io_kept *kept = late->kept;
    for (size_t i = 0; !kept && i < ARRAY_SIZE(unknown); i++) emit_null(e, unknown[i]);
    if (!kept) return;
    emit_count(e, "calls", kept->calls);
    emit_bytes(e, "bytes", kept->bytes);
    emit_us(e, "total_us", kept->total);
    emit_count(e, "files", kept->files);
    emit_open(e, "reads", true);
    for (size_t i = 0; i < kept->reads && (!i || session->options.format != FORMAT_TEXT); i++) {
        const struct io_read *read = &late->batches->read[kept->read + i];
        emit_open(e, NULL, false);
        emit_name(e, &session->model.names, "path", read->path);
        emit_count(e, "calls", read->calls);
        emit_bytes(e, "bytes", read->bytes);
        emit_us(e, "total_us", read->total);
        emit_close(e);
    }
    emit_close(e);
}

static void emit_batches(struct session *session, const struct io_lates *lates)
{
    struct emit *e = &session->emit;
    for (size_t i = 0; i < lates->count; i++) {
        const struct io_late *late = &lates->late[i];
        emit_row(e);
        emit_known(e, "rank", late->rank);
        emit_known(e, "worker", late->worker);
        emit_known(e, "pid", late->pid);
        emit_known(e, "batch", late->number);
        emit_moment(session, "requested_us", late->requested, late->requested >= 0);
        emit_moment(session, "begun_us", late->begun, true);
        emit_moment(session, "arrived_us", late->arrived, true);
        emit_moment(session, "asked_us", late->asked, true);
        emit_us(e, "wait_us", late->wait);
        emit_time(e, "idle_us", late->idle);
        emit_reads(session, late);
        emit_row_end(e);
    }
    emit_totals(e);
    emit_count(e, "waits", lates->waits);
    emit_count(e, "late_batches", lates->found);
    emit_us(e, "wait_us", lates->waited);
    emit_time(e, "idle_us", lates->idle);
    emit_end(e);
}

/* ---- the command ---- */

static bool refused(struct session *session)
{
    const struct options *o = &session->options;
    bool summary = o->layout == LAYOUT_ROWS || o->layout == LAYOUT_SUMMARY;
    bool by_row = o->group_files != GROUP_FUNCTION;
    const char *why = NULL;
    if (by_row && !summary)
        why = "--layout timeline, files and batches have rows of their own; --group-by has no meaning for them";
    else if (o->layout == LAYOUT_SUMMARY && o->group_files == GROUP_FILE)
        why = "--layout summary has a row per rank, or with --group-by process or worker per process";
    if (why) {
        complain(NULL, "%s", why);
        session->status = STATUS_USAGE;
    }
    return why != NULL;
}

static const char *keys_of(const struct options *options)
{
    static const char *const of_layout[] = {[LAYOUT_SUMMARY] = summary_keys,
                                            [LAYOUT_TIMELINE] = timeline_keys,
                                            [LAYOUT_FILES] = file_keys,
                                            [LAYOUT_BATCHES] = batch_keys};
    return options->layout == LAYOUT_ROWS ? NULL : of_layout[options->layout];
}

static void emit_answer(struct session *session, struct io_table *table)
{
    switch (session->options.layout) {
    case LAYOUT_ROWS: emit_lines(session, table); break;
    case LAYOUT_SUMMARY: emit_summary(session, table); break;
    case LAYOUT_TIMELINE: emit_timeline(session, table); break;
    case LAYOUT_FILES: emit_files(session, table); break;
    case LAYOUT_BATCHES: emit_batches(session, &table->lates); break;
    }
}

void io_end(struct session *session, bool has_calls)
{
    bool found = has_calls || !is_filtered(&session->options);
    if (!has_calls && found)
        complain(NULL, "no calls on files were recorded; TFI_ACTIVITIES=cpu,gpu,mem,nccl,ops,io records them");
    session_end(session, found);
}

void cmd_io(struct session *session)
{
    struct io_table table;
    const char *keys = keys_of(&session->options);
    if (refused(session) || !session_ask(session, STYLE_TABLE)) return;
    if (keys) emit_keys(&session->emit, keys);
    io_table_collect(&table, &session->chosen, session_summaries(session));
    if (table.lacks_calls) emit_hide_all(&session->emit);
    emit_answer(session, &table);
    io_end(session, table.all.calls != 0);
    io_table_free(&table);
}
