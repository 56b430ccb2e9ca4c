/* io_reduction.c - takes the calls on files of one process, by the rows of an answer. */
#include "ask/io/io_reduction.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/io/io_choice.h"
#include "ask/ops/walk.h"

static const char next_batch[] = "enumerate(DataLoader)#"; /* torch's name of a wait for a batch begins so */
static const char worker_batch[] = "DataLoader worker ";   /* the preloaded library's name of making one, */
static const char handed_batch[] = "DataLoader batch of "; /* of handing one over, */
static const char own_batch[] = "DataLoader batch";        /* and of making one without workers */

/* ---- rows ---- */

/* Returns the row of a key, made if it is new. */
static struct io_row *row_of_key(struct io_taken *taken, uint32_t function, uint32_t path)
{
    uint64_t key = (uint64_t)function << 32 | path;
    uint32_t at = map_get(&taken->place, key);
    if (at == MAP_NONE) {
        map_put(&taken->place, key, at = (uint32_t)taken->rows);
        taken->row = mem_grow(taken->row, &taken->capacity, taken->rows + 1, sizeof *taken->row);
        taken->row[taken->rows++] = (struct io_row){function, path, .smallest = -1, .largest = -1};
    }
    return &taken->row[at];
}

/* Returns what the row knows of its file, made if it is new. */
static struct io_file *io_row_file(struct io_row *row)
{
    if (!row->file) row->file = mem_zero(1, sizeof *row->file);
    return row->file;
}

static void add_sum(struct io_row *row, int64_t smallest, int64_t largest)
{
    row->has_sums = true;
    if (smallest >= 0) row->smallest = row->smallest < 0 ? smallest : MIN(row->smallest, smallest);
    row->largest = MAX(row->largest, largest);
}

void io_row_add(struct io_row *row, const struct io_row *from)
{
    row->calls += from->calls;
    row->errors += from->errors;
    row->bytes += from->bytes;
    row->total = add_ns(row->total, from->total);
    row->moving = add_ns(row->moving, from->moving);
    sizes_add_all(&row->sizes, &from->sizes);
    if (from->has_sums) add_sum(row, from->smallest, from->largest);
    for (size_t i = 0; i < from->when.count; i++)
        intervals_add(&row->when, from->when.interval[i].start, from->when.interval[i].end);
    if (from->file) io_file_add(io_row_file(row), from->file);
}

void io_row_free(struct io_row *row)
{
    sizes_free(&row->sizes);
    intervals_free(&row->when);
    intervals_free(&row->waited);
    if (row->file) intervals_free(&row->file->positions);
    free(row->file);
    *row = (struct io_row){0};
}

/* ---- calls ---- */

static struct io_row *row_of(struct io_taken *taken, const struct options *options, const struct ios *ios, size_t call)
{
    if (options->layout == LAYOUT_FILES) return row_of_key(taken, NAME_NONE, ios->path[call]);
    if (options->layout != LAYOUT_ROWS) return row_of_key(taken, NAME_NONE, NAME_NONE);
    switch (options->group_files) {
    case GROUP_FUNCTION: return row_of_key(taken, ios->of_name[ios->function[call]].name, NAME_NONE);
    case GROUP_FILE: return row_of_key(taken, NAME_NONE, ios->path[call]);
    default: return row_of_key(taken, NAME_NONE, NAME_NONE);
    }
}

static bool moves(const struct ios *ios, size_t call)
{
    enum io_kind kind = ios->of_name[ios->function[call]].kind;
    return kind == IO_READ || kind == IO_WRITE || kind == IO_COPY;
}

static void add_size(struct io_row *row, const struct ios *ios, size_t call)
{
    uint64_t bytes = ios_bytes(ios, call);
    if (ios->sum[call] != IO_ONE_CALL) {
        const struct io_sum *sum = &ios->sums[ios->sum[call]];
        add_sum(row, sum->smallest, sum->largest);
    } else if (bytes) {
        sizes_add(&row->sizes, (int64_t)MIN(bytes, (uint64_t)INT64_MAX), 1);
    }
    row->bytes += bytes;
    row->moving = add_ns(row->moving, ios_time(ios, call));
}

static void add_call(struct io_scope *scope, struct io_taken *taken, size_t call)
{
    const struct options *options = scope->chosen->options;
    const struct ios *ios = &scope->process->ios;
    struct io_row *row = row_of(taken, options, ios, call);
    row->calls += ios_calls(ios, call);
    row->errors += ios_errors(ios, call);
    row->total = add_ns(row->total, ios_time(ios, call));
    if (moves(ios, call)) add_size(row, ios, call);
    intervals_add_merging(&row->when, ios->start[call], ios->end[call]);
    if (map_get(&scope->waiting, ios->thread[call]) != MAP_NONE)
        intervals_add_merging(&row->waited, ios->start[call], ios->end[call]);
    if (options->layout == LAYOUT_FILES) io_file_call(io_row_file(row), ios, call);
    if (options->layout == LAYOUT_TIMELINE) io_buckets_call(&taken->timeline, ios, call);
    taken->calls += ios_calls(ios, call);
    if (ios->path[call] != NAME_NONE) map_number(&taken->paths, ios->path[call]);
}

static void add_calls(struct io_scope *scope, struct io_taken *taken)
{
    const struct ios *ios = &scope->process->ios;
    for (size_t i = 0; i < ios->table.count; i++)
        if (io_scope_has(scope, ios->thread[i], ios->start[i])) add_call(scope, taken, i);
    for (size_t i = 0; i < taken->rows; i++) {
        intervals_merge(&taken->row[i].when);
        intervals_fit(&taken->row[i].when);
        intervals_merge(&taken->row[i].waited);
        intervals_fit(&taken->row[i].waited);
        sizes_settle(&taken->row[i].sizes);
        if (taken->row[i].file) io_file_settle(taken->row[i].file);
    }
}

/* ---- what the calls are compared with ---- */

static bool starts(const struct name *name, const char *word)
{
    return name->length >= strlen(word) && memcmp(name->text, word, strlen(word)) == 0;
}

static bool contains(const struct name *name, const char *word)
{
    return memmem(name->text, name->length, word, strlen(word)) != NULL;
}

/* dftracer's events of data loaders, by the names that PyTorch and DLIO give their classes. */
static bool is_reader(const struct name *name)
{
    return contains(name, "DataLoader.") || contains(name, "Dataset.") || contains(name, "Reader.");
}

/* ---- ranges ---- */

/* Returns the number that the preloaded library gave a batch; -1: none. */
static int64_t number_of(const struct ranges *r, size_t range)
{
    const struct range_detail *detail = r->detail ? &r->detail[range] : NULL;
    return detail && detail->payload_type && detail->payload <= INT64_MAX ? (int64_t)detail->payload : -1;
}

/* Takes a range that the preloaded library made of a batch. Returns false for any other range. */
static bool add_batch(struct io_taken *taken, const struct ranges *r, size_t range, const struct name *name)
{
    struct io_batches *b = &taken->batches;
    struct io_batch batch = {r->start[range], r->end[range], number_of(r, range)};
    const char *pid = starts(name, handed_batch) ? strstr(name->text, " pid ") : NULL;
    if (pid) {
        io_batches_hand(b, (struct io_hand){batch.start, batch.end, batch.number, strtoll(pid + 5, NULL, 10)});
    } else if (starts(name, worker_batch)) {
        if (!b->by_worker) b->mades = 0; /* a worker may have a loader of its own, for which nothing else waits */
        b->by_worker = true;
        taken->worker = (int64_t)strtoul(name->text + strlen(worker_batch), NULL, 10);
        io_batches_made(b, batch);
    } else if (strcmp(name->text, own_batch) == 0) {
        if (!b->by_worker) io_batches_made(b, batch);
    } else {
        return false;
    }
    return true;
}

/* Takes the ranges that say what the process waits for, makes or computes. */
static void add_ranges(struct io_scope *scope, struct io_taken *taken)
{
    const struct process *p = scope->process;
    const struct ranges *r = &p->ranges;
    bool is_pfw = strcmp(p->kind, "dftracer") == 0;
    for (size_t i = 0; i < r->table.count; i++) {
        const struct name *name = names_get(&scope->chosen->model->names, r->name[i]);
        if (starts(name, next_batch)) {
            map_put(&scope->waiting, r->thread[i], 1);
            intervals_add(&taken->asked, r->start[i], r->end[i]);
            if (io_scope_has(scope, r->thread[i], r->start[i]))
                io_batches_wait(&taken->batches, r->start[i], r->end[i]);
        } else if (add_batch(taken, r, i, name)) {
            continue;
        } else if (is_pfw && (contains(name, "compute") || contains(name, "Compute"))) {
            intervals_add(&taken->compute, r->start[i], r->end[i]);
        } else if (is_pfw && is_reader(name)) {
            intervals_add(&taken->asked, r->start[i], r->end[i]);
        }
    }
    intervals_merge(&taken->asked);
}

static void add_operators(const struct io_scope *scope, struct io_taken *taken)
{
    struct op_walk walk;
    struct walked_op op;
    op_walk_begin(&walk, scope->process, NULL, scope->chosen->options, &scope->chosen->model->names);
    while (op_walk_next(&walk, &op)) intervals_add_merging(&taken->compute, op.start, op.end);
    op_walk_end(&walk);
}

/* Operators compute in a rank without device work. Those of a worker do not: they are part of making a batch. */
static void add_spans(struct io_scope *scope, struct io_taken *taken)
{
    const struct spans *s = &scope->process->spans;
    bool computes = !scope->process->works.table.count && !taken->batches.by_worker;
    for (size_t i = 0; i < s->table.count; i++)
        if (s->event_class[i] == CLASS_API) map_put(&scope->waiting, s->thread[i], 1);
    if (computes) add_operators(scope, taken);
    intervals_merge(&taken->compute);
    intervals_fit(&taken->compute);
}

static void add_works(struct io_scope *scope, struct io_taken *taken)
{
    const struct works *w = &scope->process->works;
    struct interval when;
    for (size_t i = 0; i < w->table.count; i++)
        if (choice_work(scope->choice, i, &when) &&
            (!scope->attribution || choice_in_stage(scope->choice, &scope->attribution->work[i])))
            intervals_add_merging(&taken->device, when.start, when.end);
    intervals_merge(&taken->device);
    intervals_fit(&taken->device);
}

/* ---- the reduction ---- */

static void *reduce_io(struct scope *of)
{
    const struct process *process = of->process;
    struct io_taken *taken = mem_zero(1, sizeof *taken);
    struct io_scope scope;
    *taken = (struct io_taken){
        .rank = process->rank, .pid = process->pid, .worker = -1, .lacks_calls = selects_stages(process)};
    taken->first = process->has_time ? process->first : INT64_MAX;
    taken->last = process->has_time ? process->last : INT64_MIN;
    io_scope_init(&scope, of);
    add_ranges(&scope, taken);
    add_spans(&scope, taken);
    add_works(&scope, taken);
    add_calls(&scope, taken);
    io_batches_settle(&taken->batches, &scope);
    io_scope_free(&scope);
    return taken;
}

static void free_taken(void *summary)
{
    struct io_taken *taken = summary;
    for (size_t i = 0; i < taken->rows; i++) io_row_free(&taken->row[i]);
    free(taken->row);
    map_free(&taken->place);
    map_free(&taken->paths);
    intervals_free(&taken->device);
    intervals_free(&taken->compute);
    intervals_free(&taken->asked);
    io_batches_free(&taken->batches);
    io_buckets_free(&taken->timeline);
    free(taken);
}

struct needs io_needs(const struct options *options)
{
    (void)options;
    return (struct needs){
        .io = true, .ranges = true, .payloads = true, .device = true, .launches = true, .operators = true};
}

/* --from and --to count from the first record of all inputs; stages and steps of one process choose the calls of its
 * workers. */
static bool stands_alone(const struct options *options)
{
    return !is_filtered(options);
}

const struct reduction io_reduction = {stands_alone, reduce_io, free_taken, NULL};
