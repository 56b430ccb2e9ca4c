/* memory_torch.c - writes torch's memory timeline: rows of changes, or the sizes of all categories at each moment.
 *
 * The files are those of export_memory_timeline (torch/profiler/_memory_profiler.py, 2.15), to the byte if the input is
 * torch's own file of rows: `[[time, action, bytes, category], ...]` with nanoseconds, and
 * `[[time, ...], [[0, sizes by category ...], ...]]` with whole microseconds. They are of one device of one process. What is
 * older than the recording has the time -1 in rows, and stands at the first moment in sums.
 */
#include "commands/memory/memory_torch.h"

#include <stdlib.h>
#include <string.h>

#include "ask/memory/assign.h"
#include "ask/memory/categories.h"
#include "commands/session.h"

enum { OLDER = -1 };

struct torch_file {
    struct session *session;
    const struct process *process;
    const struct choice *choice;
    int64_t device;
    bool is_raw;
    uint64_t rows;
    struct out sizes; /* of sums: the list of sizes, in memory */
    int64_t *time;    /* of sums: in microseconds */
    size_t times, time_capacity;
    int64_t first; /* of sums: the earliest moment, in microseconds; OLDER: none */
    int64_t bytes[MEMORY_CATEGORIES];
};

/* ---- the two forms ---- */

static void put_sizes(struct torch_file *file)
{
    if (!file->times) return;
    out_puts(&file->sizes, file->times > 1 ? ", [0" : "[0"); /* torch draws the first area above a column of zeros */
    for (int i = 0; i < MEMORY_CATEGORIES; i++) {
        out_puts(&file->sizes, ", ");
        out_int(&file->sizes, file->bytes[i]);
    }
    out_puts(&file->sizes, "]");
}

static void put_row(struct torch_file *file, const struct memory_row *row)
{
    struct out *out = &file->session->out;
    const int64_t value[] = {row->time, row->action, row->bytes, row->category};
    for (size_t i = 0; i < ARRAY_SIZE(value); i++) {
        out_puts(out, i ? ", " : file->rows ? ", [" : "[");
        out_int(out, value[i]);
    }
    out_puts(out, "]");
}

/* Returns whole microseconds as torch does: the quotient becomes a double before its fraction is cut. */
static int64_t torch_us(int64_t ns)
{
    return ns < 0 ? OLDER : (int64_t)(double)((long double)ns / 1000);
}

static void add_row(struct torch_file *file, const struct memory_row *row)
{
    int64_t us = torch_us(row->time);
    if (file->is_raw) {
        put_row(file, row);
    } else {
        if (file->first == OLDER || (us > 0 && us < file->first)) file->first = us;
        if (!file->times || us != file->time[file->times - 1]) {
            put_sizes(file);
            file->time = mem_grow(file->time, &file->time_capacity, file->times + 1, sizeof *file->time);
            file->time[file->times++] = us;
        }
        file->bytes[row->category] = add_ns(file->bytes[row->category], row->bytes); /* saturates */
    }
    file->rows++;
}

static void end_file(struct torch_file *file)
{
    struct out *out = &file->session->out;
    if (!file->is_raw) {
        put_sizes(file);
        out_puts(out, "[");
        for (size_t i = 0; i < file->times; i++) {
            out_puts(out, i ? ", " : "");
            out_int(out, file->time[i] < 0 ? file->first : file->time[i]);
        }
        out_puts(out, "], [");
        out_write(out, file->sizes.buffer, file->sizes.used);
        out_puts(out, "]");
    }
    out_puts(out, "]");
}

/* ---- torch's rows ---- */

static bool is_chosen(const struct torch_file *file, int64_t time)
{
    return choice_moment(file->choice, time, time);
}

static void add_rows(struct torch_file *file)
{
    for (size_t i = 0; i < file->process->memory_rows; i++) {
        const struct memory_row *row = &file->process->memory_row[i];
        if (is_chosen(file, row->time < 0 ? file->process->first : row->time)) add_row(file, row);
    }
}

/* ---- blocks ---- */

struct blocks_walk {
    struct torch_file *file;
    struct memory_reading reading;
    struct memory_walk changes;
    struct assigned assigned;
    bool is_assigned;
    bool *is_ours; /* by block: of the device; with `is_assigned` */
    size_t next;   /* move */
};

static uint8_t category_of(const struct blocks_walk *w, const struct memory_change *change, bool at_end)
{
    if (!w->is_assigned) return CATEGORY_UNKNOWN;
    return (at_end ? w->assigned.last : w->assigned.first)[change->block];
}

static bool is_of_device(const struct blocks_walk *w, const struct memory_change *change)
{
    const struct memory_pool *pool = &w->changes.pool[change->pool];
    return memory_pool_has_categories(pool) && pool->device == w->file->device;
}

/* Blocks that are older than the recording, and whose end it has, stand before all others. */
static void add_older(struct blocks_walk *w)
{
    const struct memory_change *change;
    memory_walk_init(&w->changes, &w->reading);
    while ((change = memory_walk_next(&w->changes)) != NULL) {
        if (!is_of_device(w, change)) continue;
        if (w->is_assigned) w->is_ours[change->block] = true;
        if (change->bytes < 0 && !change->has_gone)
            add_row(w->file,
                    &(struct memory_row){OLDER, -change->bytes, ACTION_PREEXISTING, category_of(w, change, false)});
    }
    memory_walk_free(&w->changes);
}

/* Adds the writes up to a moment by which bytes came to another category: a row for what goes, and one for what comes. */
static void add_moves(struct blocks_walk *w, int64_t until)
{
    for (; w->is_assigned && w->next < w->assigned.moves && w->assigned.move[w->next].time <= until; w->next++) {
        const struct category_move *move = &w->assigned.move[w->next];
        int64_t bytes = w->file->process->blocks.bytes[move->block];
        if (!w->is_ours[move->block] || !is_chosen(w->file, move->time)) continue;
        bytes = bytes < 0 ? -MAX(bytes, -INT64_MAX) : bytes;
        add_row(w->file, &(struct memory_row){move->time, -bytes, ACTION_INCREMENT_VERSION, move->from});
        add_row(w->file, &(struct memory_row){move->time, bytes, ACTION_INCREMENT_VERSION, move->to});
    }
}

static void add_changes(struct blocks_walk *w)
{
    const struct memory_change *change;
    memory_walk_init(&w->changes, &w->reading);
    while ((change = memory_walk_next(&w->changes)) != NULL) {
        bool frees = change->bytes < 0;
        add_moves(w, change->time);
        if (!is_of_device(w, change) || !is_chosen(w->file, change->time)) continue;
        if (!frees && change->has_gone) /* the record of its end is missing */
            add_row(w->file,
                    &(struct memory_row){change->time, -change->gone.bytes, ACTION_DESTROY,
                                         w->is_assigned ? w->assigned.last[change->gone.block] : CATEGORY_UNKNOWN});
        add_row(w->file, &(struct memory_row){change->time, change->bytes, frees ? ACTION_DESTROY : ACTION_CREATE,
                                              category_of(w, change, frees)});
    }
    add_moves(w, INT64_MAX);
    memory_walk_free(&w->changes);
}

/* Chooses the device as torch does: the first one, or else the host. */
static void choose_device(struct blocks_walk *w)
{
    const struct memory_change *change;
    int64_t device = DEVICE_HOST;
    memory_walk_init(&w->changes, &w->reading);
    while ((change = memory_walk_next(&w->changes)) != NULL) continue;
    for (size_t i = 0; i < w->changes.pools; i++) {
        const struct memory_pool *pool = &w->changes.pool[i];
        bool fits = memory_pool_has_categories(pool) && pool->device >= 0 &&
                    list_has(&w->file->session->options.device, pool->device);
        if (fits && (device < 0 || pool->device < device)) device = pool->device;
    }
    memory_walk_free(&w->changes);
    w->file->device = device;
}

static void add_blocks(struct torch_file *file)
{
    const struct process *p = file->process;
    struct names *names = &file->session->model.names;
    struct blocks_walk w = {.file = file, .reading = {.process = p, .names = names}};
    choose_device(&w);
    w.is_assigned = assign_categories(&w.assigned, p, names);
    if (w.is_assigned) w.is_ours = mem_zero(p->blocks.table.count, sizeof *w.is_ours);
    add_older(&w);
    add_changes(&w);
    if (!w.is_assigned && file->rows)
        complain(p->path,
                 "does not tell categories of memory, so that all is Unknown; TFI_TENSOR_ADDRESSES=1 with `ops` "
                 "and `mem` in TFI_ACTIVITIES records what they follow from");
    if (w.is_assigned) assigned_free(&w.assigned);
    free(w.is_ours);
}

/* ---- the command ---- */

bool memory_file_fits(struct session *session)
{
    const struct options *o = &session->options;
    const char *why = NULL;
    if (o->memory_layout != MEMORY_HTML && o->memory_layout != MEMORY_TORCH) return true;
    if (o->questions > 1) why = "writes a page or a file of torch's, and cannot be combined with other commands";
    else if (o->format != FORMAT_TEXT) why = "writes a page or a file of torch's, which has no --format";
    else if (o->memory_layout == MEMORY_HTML || memory_torch_has(o, ".html")) return true;
    else if (o->stage.count || o->step.count || o->cycle.count) why = "has no stages; --from and --to choose a time";
    else if (!o->output) why = "needs --output FILE, and goes by its suffix: .json, .json.gz, raw.json.gz or .html";
    if (why) complain(NULL, "--layout %s %s", o->memory_layout == MEMORY_HTML ? "html" : "torch", why);
    if (why) session_refuse(session);
    return !why;
}

bool memory_torch_has(const struct options *options, const char *suffix)
{
    size_t length = options->output ? strlen(options->output) : 0;
    return options->memory_layout == MEMORY_TORCH && length >= strlen(suffix) &&
           strcmp(options->output + length - strlen(suffix), suffix) == 0;
}

void memory_torch(struct session *session)
{
    const struct options *o = &session->options;
    if (session->chosen.processes > 1) {
        complain(NULL, "--layout torch writes one process: choose one with --rank or --pid");
        session->status = STATUS_USAGE;
        return;
    }
    struct torch_file file = {.session = session, .process = session->chosen.process[0], .first = OLDER};
    file.is_raw = memory_torch_has(o, "raw.json.gz");
    if (!out_open(&session->out, o->output)) {
        session->status = STATUS_NOTHING;
        return;
    }
    struct scope *scope = scope_begin(&session->chosen, 0);
    file.choice = &scope->choice;
    out_memory(&file.sizes);
    out_puts(&session->out, "[");
    if (file.process->memory_rows) add_rows(&file);
    else add_blocks(&file);
    end_file(&file);
    scope_end(scope);
    if (!file.rows && !is_filtered(o)) complain(file.process->path, "has no memory of torch's allocators");
    session_end(session, file.rows || !is_filtered(o));
    out_discard(&file.sizes);
    free(file.time);
}
