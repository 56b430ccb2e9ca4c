/* input.c - reads the inputs in parallel, and divides files that hold several processes. */
#include "model/input.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/jobs.h"
#include "base/mem_limit.h"
#include "base/progress.h"
#include "model/inputs/copies.h"
#include "model/inputs/rank_numbers.h"
#include "model/load/load_dftracer.h"
#include "model/load/load_kineto.h"
#include "model/load/load_summary.h"
#include "model/load/load_tfr.h"
#include "model/replays/replay_match.h"
#include "model/sweep/sweep.h"
#include "read/kineto_parts.h"
#include "read/summary/summary_file.h"
#include "read/torch/flight.h"
#include "read/torch/memory_rows.h"

struct work {
    struct inputs *inputs;
    struct model *model;
    const struct reading *reading;
    unsigned threads; /* for each input */
    atomic_size_t next, finished;
    atomic_ullong done; /* bytes */
};

/* Decides the rank of an input that was read. One that depends on other inputs waits for them. */
static void set_rank(const struct work *work, struct input *input)
{
    if (input->is_numbered) input->process.rank = input->number;
    else input->open_rank = !rank_of_alone(input);
    if (!input->open_rank || work->inputs->count > 1) return;
    inputs_number_ranks(work->inputs);
    input->open_rank = false;
}

static void begin_process(struct work *work, struct input *input, const char *kind)
{
    process_init(&input->process, input->path, kind);
    struct stream_way *way = &input->process.way;
    *way = (struct stream_way){.how = input->how, .threads = work->threads, .parts = input->parts, .part = input->part};
    if (!input->parts) return;
    way->has_limits = input->parts->has_limits;
    way->not_before = input->parts->not_before;
    way->not_after = input->parts->not_after;
}

/* A file that holds several processes is read as one first. read_parts() divides it. */
static bool read_kineto(struct work *work, struct input *input)
{
    const struct reading *reading = work->reading;
    struct process *process = &input->process;
    struct kineto_parts *parts = NULL;
    begin_process(work, input, "kineto");
    size_t notes = input->notes.count;
    input->usable = load_kineto(input->path, &process->way, &work->model->names, reading->needs, process, &input->notes,
                                &work->done, &parts);
    if (!parts) return input->usable;
    parts->has_limits = process->way.has_limits;
    parts->not_before = process->way.not_before;
    parts->not_after = process->way.not_after;
    process_free(process);
    notes_cut(&input->notes, notes);
    input->parts = parts;
    input->usable = false;
    return false;
}

/* Reads a trace of another program. */
static void read_json_file(struct work *work, struct input *input)
{
    static const struct {
        const char *kind;
        bool (*load)(const char *path, const struct stream_way *way, struct names *names, struct needs needs,
                     struct process *process, struct notes *notes, atomic_ullong *done);
    } loaders[] = {[INPUT_DFTRACER] = {"dftracer", load_dftracer},
                   [INPUT_FLIGHT] = {"flight", load_flight},
                   [INPUT_MEMORY] = {"memory", load_memory_rows},
                   [INPUT_SNAPSHOT] = {"snapshot", load_snapshot}};
    if (input->kind == INPUT_KINETO) {
        if (!read_kineto(work, input)) process_free(&input->process);
        else set_rank(work, input);
        return;
    }
    begin_process(work, input, loaders[input->kind].kind);
    input->usable = loaders[input->kind].load(input->path, &input->process.way, &work->model->names,
                                              work->reading->needs, &input->process, &input->notes, &work->done);
    if (input->usable) set_rank(work, input);
    else process_free(&input->process);
}

/* Returns what was loaded: `needs`, with STREAM_HELD if nothing can stay in the file. */
static struct needs load_tfr_file(struct work *work, struct input *input, struct needs needs)
{
    input->usable = trace_open(&input->trace, input->path, input->live, input->how, &input->notes);
    input->open = true;
    if (input->usable) {
        process_init(&input->process, input->path, input->trace.fd < 0 ? "live" : "tfr");
        input->process.way.how = input->how;
        input->process.is_of_reader = input->trace.is_of_reader;
        input->process.life = input->trace.life;
        input->process.is_life_known = input->trace.is_life_known;
        input->process.clock.shift = input->shift;
        if (!needs.operators && !needs.memory) needs.stream = STREAM_HELD;
        if (needs.stream != STREAM_HELD && work->threads > 1)
            trace_read_ahead(&input->trace); /* it will be read twice */
        load_tfr(&input->trace, &work->model->names, needs, &input->process, &input->notes, &work->done);
        trace_end_ahead(&input->trace);
        input->process.rank = input->rank >= 0 ? input->rank : input->process.rank;
    }
    return needs;
}

/* Gives the process its open file. Inputs move while the processes of other files are added to them. */
static void lend_trace(struct input *input, struct needs needs)
{
    struct process *process = &input->process;
    process->trace = input->open && needs.traces ? &input->trace : NULL;
    process->in_file.trace = input->open && process->in_file.count ? &input->trace : NULL;
}

static void read_tfr_file(struct work *work, struct input *input)
{
    size_t notes = input->notes.count;
    struct needs needs = load_tfr_file(work, input, work->reading->needs);
    if (input->usable && needs.stream != STREAM_HELD && !can_sweep(&input->process, &input->trace, needs)) {
        process_free(&input->process);
        trace_close(&input->trace);
        notes_cut(&input->notes, notes);
        needs.stream = STREAM_HELD;
        load_tfr_file(work, input, needs);
    }
    if (!input->usable || !(needs.traces || input->process.in_file.count)) {
        trace_close(&input->trace);
        input->open = false;
    }
    lend_trace(input, needs);
}

static void match_replays(const struct work *work, struct input *input)
{
    if (input->usable && input->kind == INPUT_KINETO && work->reading->needs.captures)
        replays_match(&input->process, &work->model->names, work->reading->captures);
}

/* Reads the next process of a file of summaries. Returns false if there is none. */
static bool next_summary(struct summary_file *file, struct process *process, struct notes *notes, bool *usable)
{
    size_t length;
    uint8_t *block = summary_next(file, &length, notes);
    *usable = block && load_summary(block, length, process, notes);
    if (block && !*usable) {
        free(block);
        notes_add(notes, UNUSABLE, "is a summary of another version; make it again");
    }
    return *usable;
}

static void read_summary(struct input *input)
{
    if (input->file) summary_close(input->file); /* of an attempt that ran out of memory */
    else input->file = mem_zero(1, sizeof *input->file);
    if (summary_open(input->file, input->path, input->how, &input->notes))
        next_summary(input->file, &input->process, &input->notes, &input->usable);
}

static void read_one(struct work *work, struct input *input)
{
    if (input->left_out || notes_have(&input->notes, UNUSABLE)) /* already known to be unreadable */
        return;
    if (input->kind == INPUT_OURS) read_tfr_file(work, input);
    else if (input->kind == INPUT_SUMMARY) read_summary(input);
    else read_json_file(work, input);
    input->process.input = (size_t)(input - work->inputs->input);
    match_replays(work, input);
    if (!input->usable || !work->reading->take) return;
    if (!input->open_rank) work->reading->take(work->reading->argument, &input->process);
    process_forget(&input->process);
}

/* Reads one input. If memory runs out, gives the file up and frees what was read of it. */
static void read_guarded(struct work *work, struct input *input)
{
    struct mem_guard guard;
    volatile size_t notes = input->notes.count;
    input->starved = false;
    mem_guard(&guard);
    if (setjmp(guard.place) == 0) {
        read_one(work, input);
        mem_unguard(&guard);
        return;
    }
    process_free(&input->process);
    trace_close(&input->trace);
    input->process = (struct process){0};
    input->open = input->usable = false;
    input->starved = true;
    notes_cut(&input->notes, notes);
}

/* ---- files of several processes ---- */

/* Makes an input of each process of a file; the first one stays where it is. */
static void add_parts(struct inputs *inputs, size_t at)
{
    struct kineto_parts *parts = inputs->input[at].parts;
    for (uint32_t i = 1; i < parts->count; i++) {
        struct input *first = &inputs->input[at];
        size_t before = i == 1 ? at : inputs->count - 1;
        struct input *input = inputs_append(inputs, first->path, first->how, -1);
        input->kind = INPUT_KINETO;
        input->parts = parts;
        input->part = i;
        inputs->input[before].next_part = inputs->count - 1;
    }
    struct input *first = &inputs->input[at];
    if (first->rank >= 0)
        notes_add(&first->notes, NOTE, "holds %zu processes, so that rank=%lld: does not count", parts->count,
                  (long long)first->rank);
    first->rank = -1;
}

/* Reads all processes of a file in one reading. */
static void read_parts(struct work *work, size_t at)
{
    struct inputs *inputs = work->inputs;
    const struct kineto_parts *parts = inputs->input[at].parts;
    const struct reading *reading = work->reading;
    struct process *process = mem_zero(parts->count, sizeof *process);
    for (uint32_t i = 0, k = (uint32_t)at; i < parts->count; i++, k = (uint32_t)inputs->input[k].next_part) {
        begin_process(work, &inputs->input[k], "kineto");
        process[i] = inputs->input[k].process;
    }
    load_kineto_parts(inputs->input[at].path, parts, &work->model->names, reading->needs, process,
                      &inputs->input[at].notes, &work->done);
    for (uint32_t i = 0, k = (uint32_t)at; i < parts->count; i++, k = (uint32_t)inputs->input[k].next_part) {
        struct input *input = &inputs->input[k];
        input->process = process[i];
        input->process.input = k;
        input->process.rank = parts->part[i].rank;
        input->usable = true;
        match_replays(work, input);
        if (!reading->take) continue;
        reading->take(reading->argument, &input->process);
        process_forget(&input->process);
    }
    free(process);
}

static void read_parts_guarded(struct work *work, size_t at)
{
    struct mem_guard guard;
    mem_guard(&guard);
    if (setjmp(guard.place) == 0) {
        read_parts(work, at);
        mem_unguard(&guard);
        return;
    }
    notes_add(&work->inputs->input[at].notes, UNUSABLE,
              "is left out: reading its processes needs more memory than is available");
}

/* Each process takes memory of its own, however little of the file is about it. */
static void read_all_parts(struct work *work)
{
    enum { MOST_PARTS = 16384 };
    for (size_t i = 0, count = work->inputs->count; i < count; i++) {
        struct input *input = &work->inputs->input[i];
        if (!input->parts || input->is_again) continue;
        if (input->parts->count > MOST_PARTS) {
            notes_add(&input->notes, UNUSABLE, "is left out: it holds %zu processes, and a file of at most %d is read",
                      input->parts->count, MOST_PARTS);
            continue;
        }
        add_parts(work->inputs, i);
        read_parts_guarded(work, i);
    }
}

/* Makes an input of each further process of a file of summaries. */
static void read_summaries(struct work *work, size_t at)
{
    struct inputs *inputs = work->inputs;
    struct process process;
    struct notes notes = {0};
    size_t before = at;
    bool usable;
    for (uint32_t part = 1; next_summary(inputs->input[at].file, &process, &notes, &usable); part++) {
        struct input *input = inputs_append(inputs, inputs->input[at].path, inputs->input[at].how, -1);
        input->kind = INPUT_SUMMARY;
        input->part = part;
        input->notes = notes;
        input->usable = true;
        input->process = process;
        input->process.input = inputs->count - 1;
        inputs->input[before].next_part = inputs->count - 1;
        before = inputs->count - 1;
        notes = (struct notes){0};
        work->reading->take(work->reading->argument, &input->process);
        process_forget(&inputs->input[before].process);
    }
    for (size_t i = 0; i < notes.count; i++) /* of the end of the file */
        notes_add(&inputs->input[at].notes, MIN(notes.note[i].level, LOSS), "%s", notes.note[i].text);
    notes_free(&notes);
}

static void read_summaries_guarded(struct work *work, size_t at)
{
    struct mem_guard guard;
    mem_guard(&guard);
    if (setjmp(guard.place) == 0) {
        read_summaries(work, at);
        mem_unguard(&guard);
        return;
    }
    notes_add(&work->inputs->input[at].notes, LOSS, "is read in part: the rest needs more memory than is available");
}

static void read_all_summaries(struct work *work)
{
    for (size_t i = 0, count = work->inputs->count; i < count; i++)
        if (work->inputs->input[i].file && work->inputs->input[i].usable) read_summaries_guarded(work, i);
}

/* Retries, alone, the files for which memory ran out while others were read beside them. */
static void read_starved(struct work *work)
{
    for (size_t i = 0; i < work->inputs->count; i++) {
        struct input *input = &work->inputs->input[i];
        if (input->starved) read_guarded(work, input);
        if (input->starved)
            notes_add(&input->notes, UNUSABLE, "is left out: reading it needs more memory than is available");
    }
}

static void *work_on(void *argument)
{
    struct work *work = argument;
    size_t i;
    while ((i = atomic_fetch_add(&work->next, 1)) < work->inputs->count) {
        read_guarded(work, &work->inputs->input[i]);
        atomic_fetch_add(&work->finished, 1);
    }
    return NULL;
}

/* A summary has the rank of its process, so the files whose ranks were open are read again, now with a rank. */
static void *read_ranked(void *argument)
{
    struct work *work = argument;
    size_t i;
    while ((i = atomic_fetch_add(&work->next, 1)) < work->inputs->count) {
        struct input *input = &work->inputs->input[i];
        if (!input->open_rank || !input->usable) continue;
        struct notes notes = input->notes; /* of the first reading, and about the rank */
        input->notes = (struct notes){0};
        input->number = input->process.rank;
        input->is_numbered = true;
        input->open_rank = false;
        process_free(&input->process);
        read_guarded(work, input);
        notes_free(input->usable ? &input->notes : &notes);
        if (input->usable) input->notes = notes;
    }
    return NULL;
}

static void collect_process(struct model *model, const struct process *process, bool *has_start)
{
    if (process->has_time && (!*has_start || process->first < model->start)) {
        model->start = process->first;
        *has_start = true;
    }
    model->process = mem_grow(model->process, &model->capacity, model->processes + 1, sizeof *model->process);
    model->process[model->processes++] = *process;
}

/* Moves the processes of all usable inputs into the model, and finds their earliest record. --from and --to count from
 * that record, even if other options leave its process out. */
static void collect(struct inputs *inputs, struct model *model, struct needs needs)
{
    bool has_start = false;
    for (size_t i = 0, next; i < inputs->count; i++) {
        if (inputs->input[i].part) continue; /* the processes of a file are neighbours */
        for (size_t k = i; k != SIZE_MAX; k = next) {
            struct input *input = &inputs->input[k];
            next = input->next_part ? input->next_part : SIZE_MAX;
            lend_trace(input, needs);
            if (input->usable) collect_process(model, &input->process, &has_start);
        }
    }
}

/* Returns how much memory an answer may take. Our traces need at most a few tens of bytes for each of theirs, a crafted one any
 * number; what other inputs unpack to is not known before. */
static uint64_t most_memory(const struct inputs *inputs)
{
    enum { TIMES = 64 };
    uint64_t bytes = 0;
    struct stat status;
    for (size_t i = 0; i < inputs->count; i++) {
        if (inputs->input[i].kind != INPUT_OURS) return UINT64_MAX;
        const char *const files[] = {inputs->input[i].path, inputs->input[i].live};
        for (size_t k = 0; k < ARRAY_SIZE(files); k++)
            if (files[k] && tfi_stat(files[k], &status) == 0) bytes += (uint64_t)status.st_size;
    }
    return MAX(TIMES * bytes, (uint64_t)4 << 30);
}

void inputs_read(struct inputs *inputs, struct model *model, const struct reading *reading)
{
    uint64_t most = most_memory(inputs);
    mem_limit(0.75, most); /* the answer needs memory too */
    struct work work = {.inputs = inputs, .model = model, .reading = reading};
    work.threads = (unsigned)(jobs_count(reading->jobs) / MAX(inputs->count, 1));
    progress_reads(inputs->count, &work.finished, &work.done);
    jobs_run(reading->jobs, inputs->count, work_on, &work);
    read_starved(&work);
    read_all_parts(&work);
    read_all_summaries(&work);
    inputs_number_ranks(inputs);
    if (reading->take) {
        work.next = 0;
        jobs_run(reading->jobs, inputs->count, read_ranked, &work);
        read_starved(&work);
    }
    progress_read();
    mem_limit(1, most);
    inputs_leave_out_copies(inputs);
    collect(inputs, model, reading->needs);
}

void inputs_free(struct inputs *inputs)
{
    for (size_t i = 0; i < inputs->count; i++) {
        struct input *input = &inputs->input[i];
        if (input->open) trace_close(&input->trace);
        notes_free(&input->notes);
        free(input->path);
        free(input->live);
        if (!input->part && !input->is_again) parts_free(input->parts);
        if (input->file) summary_close(input->file);
        free(input->file);
    }
    for (size_t i = 0; i < inputs->captures; i++) free(inputs->capture[i]);
    free(inputs->capture);
    free(inputs->input);
    map_free(&inputs->of_file);
    *inputs = (struct inputs){0};
}
