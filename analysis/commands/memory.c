/* memory.c - reports memory: over time, its changes, the peaks of stages, leaks, and who held it when there was none.
 *
 * Each process answers for itself, as each has its own allocators. Rows over time are printed as they come, in lines: a
 * trace may have millions of them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/memory/assign.h"
#include "ask/memory/categories.h"
#include "ask/memory/peaks.h"
#include "ask/stages/stage_at.h"
#include "base/command.h"
#include "commands/memory/memory_answer.h"
#include "commands/memory/memory_pictures.h"
#include "commands/memory/memory_process.h"
#include "commands/memory/memory_torch.h"
#include "commands/memory/memory_values.h"
#include "commands/page/page_memory.h"
#include "commands/session.h"
#include "write/rows/kept_values.h"

static const char raw_keys[] = "rank,pid,time_us,device,allocator,kind,action,bytes,category,address,"
                               "allocated_bytes,reserved_bytes,stage,stack";
static const char peak_keys[] =
    "stage,rank,pid,device,allocator,kind,calls,peak_allocated_bytes,peak_reserved_bytes,allocated_bytes,freed_bytes";
static const char leak_keys[] = "stage,rank,pid,device,allocator,kind,blocks,bytes,outliving_blocks,outliving_bytes,"
                                "leaked_blocks,leaked_bytes,stack";
static const char oom_keys[] = "rank,pid,time_us,device,allocator,requested_bytes,allocated_bytes,reserved_bytes,"
                               "device_free_bytes,"
                               "requesting_stage,stage,blocks,bytes,pct,stack";

/* ---- rows ---- */

/* Text in lines has no head of its own. */
static void print_head(struct session *session, const char *keys)
{
    if (session->options.format != FORMAT_TEXT) return;
    for (const char *p = keys; *p; p++) out_write(&session->out, *p == ',' ? " " : p, 1);
    out_puts(&session->out, "\n");
}

/* ---- torch's rows ---- */

static bool in_window(const struct memory_answer *a, int64_t time)
{
    return memory_row_chosen(a->choice, time);
}

/* `bytes`: NULL if the categories are unknown. */
static void emit_categories(struct emit *e, const int64_t *bytes)
{
    if (!bytes) {
        emit_null(e, "categories");
        return;
    }
    emit_open(e, "categories", false);
    for (int i = 0; i < MEMORY_CATEGORIES; i++) emit_int(e, memory_categories[i], bytes[i]);
    emit_close(e);
}

static void category_moments(struct memory_answer *a)
{
    struct emit *e = &a->session->emit;
    struct category_walk walk;
    category_walk_init(&walk, a->process);
    while (category_walk_moment(&walk)) {
        if (!in_window(a, walk.time)) continue;
        a->sums[0] = MAX(a->sums[0], (uint64_t)MAX(walk.total, 0));
        if (!memory_row_begin(a)) continue;
        memory_emit_process(a);
        emit_us(e, "time_us", walk.time - a->process->first);
        emit_null(e, "device");
        emit_null(e, "allocator");
        emit_int(e, "allocated_bytes", walk.total);
        emit_null(e, "reserved_bytes");
        emit_categories(e, walk.bytes);
        emit_row_end(e);
    }
}

static void category_rows(struct memory_answer *a)
{
    struct emit *e = &a->session->emit;
    struct category_walk walk;
    category_walk_init(&walk, a->process);
    while (category_walk_row(&walk)) {
        const struct memory_row *row = &a->process->memory_row[walk.next - 1];
        if (!in_window(a, row->time < 0 ? a->process->first : row->time) || !memory_row_begin(a)) continue;
        memory_emit_process(a);
        if (row->time < 0) emit_null(e, "time_us");
        else emit_us(e, "time_us", row->time - a->process->first);
        emit_null(e, "device");
        emit_null(e, "allocator");
        emit_null(e, "kind");
        emit_text(e, "action", memory_actions[row->action]);
        emit_int(e, "bytes", row->bytes);
        emit_text(e, "category", memory_categories[row->category]);
        emit_null(e, "address");
        emit_int(e, "allocated_bytes", walk.total);
        emit_null(e, "reserved_bytes");
        emit_null(e, "stage");
        emit_null(e, "stack");
        emit_row_end(e);
    }
}

/* torch's rows have no stages: the whole profile is the only row. */
static void category_peak(struct memory_answer *a)
{
    struct emit *e = &a->session->emit;
    struct category_walk walk;
    uint64_t peak = 0, sums[2] = {0, 0};
    bool any = false;
    category_walk_init(&walk, a->process);
    while (category_walk_row(&walk)) {
        const struct memory_row *row = &a->process->memory_row[walk.next - 1];
        bool ends = walk.next == a->process->memory_rows || row[1].time != row->time;
        if (!in_window(a, row->time < 0 ? a->process->first : row->time)) continue;
        any = true;
        if (ends) peak = MAX(peak, (uint64_t)MAX(walk.total, 0));
        if (row->action == ACTION_CREATE) sums[0] += (uint64_t)row->bytes;
        if (row->action == ACTION_DESTROY) sums[1] -= (uint64_t)row->bytes;
    }
    a->sums[0] = MAX(a->sums[0], peak);
    if (!any || !memory_row_begin(a)) return;
    emit_text(e, "stage", model_name(&a->session->model, NAME_RUN));
    memory_emit_process(a);
    emit_null(e, "device");
    emit_null(e, "allocator");
    emit_null(e, "kind");
    emit_count(e, "calls", 1);
    emit_bytes(e, "peak_allocated_bytes", peak);
    emit_null(e, "peak_reserved_bytes");
    emit_bytes(e, "allocated_bytes", sums[0]);
    emit_bytes(e, "freed_bytes", sums[1]);
    emit_row_end(e);
}

/* ---- blocks over time ---- */

static bool is_chosen(const struct memory_answer *a, const struct memory_change *change)
{
    return memory_change_chosen(&a->changes, a->choice, change);
}

static void emit_same_process(struct memory_answer *a, struct emit_kept *same)
{
    if (emit_again(&a->session->emit, same, 0)) return;
    memory_emit_process(a);
    emit_keep_end(&a->session->emit, same);
}

static void emit_same_pool(struct memory_answer *a, struct emit_kept *same, uint32_t pool)
{
    if (emit_again(&a->session->emit, same, pool)) return;
    memory_emit_pool(a, pool);
    emit_keep_end(&a->session->emit, same);
}

/* The blocks that each device held before the first event stand together, and are one moment: the last of them. */
static bool is_moment(const struct memory_answer *a, const struct memory_change *change)
{
    const struct blocks *b = &a->process->blocks;
    size_t next = (size_t)change->block + 1;
    return !change->is_older || next == b->earlier || b->device[next] != b->device[change->block];
}

static void moments(struct memory_answer *a)
{
    struct emit *e = &a->session->emit;
    struct emit_kept process = {0}, pool = {0};
    const struct memory_change *change;
    memory_walk_init(&a->changes, &a->reading);
    while ((change = memory_walk_next(&a->changes)) != NULL) {
        const int64_t *bytes = a->walk ? assigned_walk_take(a->walk, &a->changes, change) : NULL;
        if (!is_chosen(a, change) || !is_moment(a, change)) continue;
        if (change->allocated != TOTAL_UNKNOWN) a->sums[0] = MAX(a->sums[0], change->allocated);
        if (!memory_row_begin(a)) continue;
        emit_same_process(a, &process);
        memory_emit_moment(a, change->time, change->is_older);
        emit_same_pool(a, &pool, change->pool);
        emit_total_bytes(e, "allocated_bytes", change->allocated);
        emit_total_bytes(e, "reserved_bytes", change->reserved);
        emit_categories(e, bytes);
        emit_row_end(e);
    }
    emit_kept_free(&process);
    emit_kept_free(&pool);
    memory_walk_free(&a->changes);
}

static void emit_category(struct memory_answer *a, const struct memory_change *change)
{
    bool is_known = a->walk && memory_pool_has_categories(&a->changes.pool[change->pool]);
    const uint8_t *category = change->bytes < 0 ? a->assigned.last : a->assigned.first;
    emit_text(&a->session->emit, "category", is_known ? memory_categories[category[change->block]] : NULL);
}

/* The parts of a row that the one before has too, as a rule. */
struct raw_same {
    struct emit_kept process, pool, action[NR_ACTIONS], stage;
};

static void emit_same_action(struct emit *e, struct emit_kept *same, const struct memory_change *change)
{
    int action = change->is_older ? ACTION_PREEXISTING : change->bytes > 0 ? ACTION_CREATE : ACTION_DESTROY;
    if (emit_again(e, &same[action], 0)) return;
    emit_text(e, "action", memory_actions[action]);
    emit_keep_end(e, &same[action]);
}

static void emit_same_stage(struct memory_answer *a, struct emit_kept *same, uint32_t stage)
{
    uint32_t name = stage == NO_PLACE ? a->choice->outside : a->process->ranges.name[stage];
    if (emit_again(&a->session->emit, same, name)) return;
    emit_name(&a->session->emit, &a->session->model.names, "stage", name);
    emit_keep_end(&a->session->emit, same);
}

static void raw_row(struct memory_answer *a, const struct memory_change *change, struct raw_same *same)
{
    struct emit *e = &a->session->emit;
    emit_same_process(a, &same->process);
    memory_emit_moment(a, change->time, change->is_older);
    emit_same_pool(a, &same->pool, change->pool);
    emit_memory_kind(e, change->kind);
    emit_same_action(e, same->action, change);
    emit_int(e, "bytes", change->bytes);
    emit_category(a, change);
    emit_hex(e, "address", change->address);
    emit_total_bytes(e, "allocated_bytes", change->allocated);
    emit_total_bytes(e, "reserved_bytes", change->reserved);
    emit_same_stage(a, &same->stage, memory_change_at(&a->reading, a->choice, change).stage);
    emit_frames(e, &a->session->model.names, change->stack);
    emit_row_end(e);
}

static void raw_rows(struct memory_answer *a)
{
    struct raw_same same = {0};
    const struct memory_change *change;
    memory_walk_init(&a->changes, &a->reading);
    while ((change = memory_walk_next(&a->changes)) != NULL)
        if (change->bytes && is_chosen(a, change) && memory_row_begin(a)) raw_row(a, change, &same);
    struct emit_kept *all[] = {&same.process, &same.pool, &same.stage};
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) emit_kept_free(all[i]);
    for (size_t i = 0; i < ARRAY_SIZE(same.action); i++) emit_kept_free(&same.action[i]);
    memory_walk_free(&a->changes);
}

/* ---- peaks ---- */

static void peaks(struct memory_answer *a)
{
    struct session *session = a->session;
    struct emit *e = &session->emit;
    struct peak_rows rows;
    uint32_t torch = names_add(&session->model.names, "c10", 3); /* as the library names torch's allocators */
    memory_peaks(&rows, a->choice, &session->chosen, &a->reading, torch);
    a->reading.by_kind = true;
    if (!a->process->in_file.trace) /* blocks of CUDA's calls do not stay in a file */
        memory_peaks_of_kinds(&rows, a->choice, &session->chosen, &a->reading,
                              names_add(&session->model.names, ALLOCATOR_CUDA, strlen(ALLOCATOR_CUDA)));
    for (size_t i = 0; i < rows.count; i++) {
        const struct peak_row *row = &rows.row[i];
        if (row->allocated_peak != TOTAL_UNKNOWN) a->sums[0] = MAX(a->sums[0], row->allocated_peak);
        if (!memory_row_begin(a)) continue;
        emit_stage(e, names_get(&session->model.names, row->stage));
        memory_emit_process(a);
        emit_memory_device(e, row->device);
        emit_name(e, &session->model.names, "allocator", row->allocator);
        emit_memory_kind(e, row->kind);
        emit_count(e, "calls", row->calls);
        emit_total_bytes(e, "peak_allocated_bytes", row->allocated_peak);
        emit_total_bytes(e, "peak_reserved_bytes", row->reserved_peak);
        emit_bytes(e, "allocated_bytes", row->allocated);
        emit_bytes(e, "freed_bytes", row->freed);
        emit_row_end(e);
    }
    if (rows.is_partial) {
        complain(a->process->path, "has more than 256 allocators and devices; the others were left out");
        session_spoil(session);
    }
    memory_peaks_free(&rows);
}

/* ---- refused requests ---- */

/* Counts the refused requests, whatever the filters choose. */
static size_t requests(const struct selection *chosen)
{
    size_t count = 0;
    for (size_t i = 0; i < chosen->processes; i++) count += chosen->process[i]->ooms.table.count;
    return count;
}

/* ---- the page ---- */

static void draw_rows(struct memory_answer *a)
{
    pictures_add_rows(&a->pictures, a->choice);
}

static void draw_changes(struct memory_answer *a)
{
    pictures_add_changes(&a->pictures, a->choice, &a->reading, a->walk);
}

static const char fragment_keys[] = "rank,pid,device,segment_type,pool,stream,segments,reserved_bytes,allocated_bytes,"
                                    "active_bytes,requested_bytes,free_bytes,largest_free_bytes,inactive_split_bytes,"
                                    "releasable_bytes";

static const struct layout_of {
    const char *keys; /* NULL: those of commands.def */
    enum emit_style style;
    bool by_stage;    /* it needs the stages of blocks */
    bool by_category; /* it shows their categories */
    void (*of_rows)(
        struct memory_answer *); /* the answer for torch's rows; NULL: neither these rows nor Kineto traces have it */
    void (*of_blocks)(struct memory_answer *);
    const char *totals[4];
} layouts[] = {
    [MEMORY_TIMELINE] = {NULL, STYLE_LINES, false, true, category_moments, moments, {"peak_allocated_bytes"}},
    [MEMORY_RAW] = {raw_keys, STYLE_LINES, true, true, category_rows, raw_rows, {NULL}},
    [MEMORY_PEAKS] = {peak_keys, STYLE_TABLE, false, false, category_peak, peaks, {"peak_allocated_bytes"}},
    [MEMORY_LEAKS] = {leak_keys,
                      STYLE_TABLE,
                      true,
                      false,
                      NULL,
                      memory_answer_leaks,
                      {"outliving_blocks", "outliving_bytes", "leaked_blocks", "leaked_bytes"}},
    [MEMORY_OOM] = {oom_keys, STYLE_TABLE, true, false, NULL, memory_answer_refused, {"refused", "shown"}},
    [MEMORY_FRAGMENTATION] = {fragment_keys,
                              STYLE_TABLE,
                              false,
                              false,
                              NULL,
                              memory_answer_segments,
                              {"reserved_bytes", "allocated_bytes", "free_bytes", "inactive_split_bytes"}},
    [MEMORY_HTML] = {NULL, STYLE_LINES, false, true, draw_rows, draw_changes, {NULL}},
    [MEMORY_PROCESS] = {NULL, STYLE_TABLE, false, false, NULL, NULL, {NULL}},
    [MEMORY_TORCH] = {NULL, STYLE_LINES, false, true, draw_rows, draw_changes, {NULL}}, /* its .html is the page */
};

/* Kineto traces have totals without threads, torch's rows have neither stages nor addresses. */
static bool can_answer(const struct layout_of *layout, const struct process *p)
{
    if (layout->of_blocks == memory_answer_segments) return is_of_snapshot(p);
    return layout->of_rows || strcmp(p->kind, "tfr") == 0 || strcmp(p->kind, "live") == 0 ||
           (is_of_snapshot(p) && layout->of_blocks);
}

/* Reports the processes that the layout has no answer for. Returns false if there are no others. */
static bool check_processes(struct session *session, const struct layout_of *layout)
{
    size_t unfit = 0;
    for (size_t i = 0; i < session->chosen.processes; i++) {
        const struct process *p = session->chosen.process[i];
        if (can_answer(layout, p)) continue;
        complain(p->path, "%s",
                 layout->of_blocks == memory_answer_segments
                     ? "has no segments; --layout fragmentation needs torch's memory snapshots (_dump_snapshot)"
                 : layout->of_blocks
                     ? "does not tell who allocated a block; --layout leaks and oom need traces of "
                       "libtfinject.so or torch's memory snapshots"
                     : "has no samples of the process; --layout process needs traces of libtfinject.so");
        unfit++;
    }
    if (unfit) session->status = unfit == session->chosen.processes ? STATUS_NOTHING : STATUS_PARTIAL;
    return unfit < session->chosen.processes;
}

static void answer_blocks(struct memory_answer *a, const struct layout_of *layout)
{
    struct session *session = a->session;
    const struct process *p = a->process;
    bool finds = a->attributed && p->in_file.trace;
    a->reading = (struct memory_reading){.process = p,
                                         .names = &session->model.names,
                                         .stacks = layout->by_stage,
                                         .ahead = session->options.jobs != 1,
                                         .finder = finds ? &a->scope->attribution.finder : NULL};
    bool is_assigned = layout->by_category && assign_categories(&a->assigned, p, &session->model.names);
    a->walk = is_assigned ? &a->walks : NULL;
    if (a->walk) assigned_walk_init(a->walk, &a->assigned, &a->reading);
    layout->of_blocks(a);
    if (a->walk) assigned_walk_free(a->walk);
    if (a->walk) assigned_free(&a->assigned);
}

static void answer_process(struct memory_answer *a, const struct layout_of *layout)
{
    const struct process *p = a->process;
    a->attributed = layout->by_stage || choice_needs_launches(&a->session->options, p);
    a->choice = &a->scope->choice;
    a->lacks_blocks |= selects_stages(p) && !a->session->options.stage.count;
    a->lacks_totals |= p->blocks.untold.count > 0;
    if (a->attributed) scope_attribute(a->scope);
    if (p->memory_rows) layout->of_rows(a);
    else answer_blocks(a, layout);
    scope_end(a->scope);
}

static void emit_sums(struct memory_answer *a, const struct layout_of *layout)
{
    struct emit *e = &a->session->emit;
    emit_totals(e);
    if (a->session->options.memory_layout != MEMORY_OOM) emit_count(e, "rows", a->rows);
    emit_hide(e, a->lacks_blocks || a->lacks_totals);
    for (size_t i = 0; i < ARRAY_SIZE(layout->totals) && layout->totals[i]; i++)
        (strstr(layout->totals[i], "_bytes") ? emit_bytes : emit_count)(e, layout->totals[i], a->sums[i]);
    emit_end(e);
}

static void answer_all(struct memory_answer *a, const struct layout_of *layout)
{
    for (size_t i = 0; i < a->session->chosen.processes; i++) {
        a->process = a->session->chosen.process[i];
        if (!can_answer(layout, a->process)) continue;
        a->scope = scope_begin(&a->session->chosen, i);
        answer_process(a, layout);
    }
}

static void say_nothing_recorded(const struct selection *chosen)
{
    size_t kineto = 0, snapshots = 0;
    for (size_t i = 0; i < chosen->processes; i++) {
        kineto += is_of_kineto(chosen->process[i]);
        snapshots += is_of_snapshot(chosen->process[i]);
    }
    complain(NULL, "no memory was recorded; %s",
             kineto == chosen->processes ? "torch.profiler records it with profile_memory=True"
             : snapshots == chosen->processes
                 ? "torch.cuda.memory._record_memory_history() starts it"
                 : "`mem` in TFI_ACTIVITIES records torch's allocators, `cpu` CUDA's calls");
}

void memory_pictures(struct session *session, struct pictures *pictures, size_t most)
{
    struct memory_answer answer = {.session = session, .pictures = {.most = most}};
    answer_all(&answer, &layouts[MEMORY_HTML]);
    *pictures = answer.pictures;
}

static void write_page(struct session *session)
{
    const struct options *o = &session->options;
    struct pictures pictures;
    if (!out_open(&session->out, o->output)) {
        session->status = STATUS_NOTHING;
        return;
    }
    memory_pictures(session, &pictures, o->top ? MIN(o->top, MOST_PICTURES) : MOST_PICTURES);
    page_of_memory(session, &pictures);
    if (!pictures.count && !is_filtered(o)) say_nothing_recorded(&session->chosen);
    session_end(session, pictures.count || !is_filtered(o));
    pictures_free(&pictures);
}

struct needs memory_needs(const struct options *options)
{
    const struct layout_of *layout = &layouts[options->memory_layout];
    if (options->memory_layout == MEMORY_PROCESS) return (struct needs){.ranges = true, .machine = true};
    /* A block in a backward operator may belong to the stage of the forward one, which only loaded operators tell. */
    bool by_stage = layout->by_stage || options->stage.count || options->step.count || options->cycle.count;
    return (struct needs){.memory = true,
                          .all_blocks = true,
                          .ranges = true,
                          .tensors = layout->by_category,
                          .stages_of_spans = true,
                          .operators = by_stage,
                          .stream = by_stage ? STREAM_UNLINKED : STREAM_BY_TIME};
}

void cmd_memory(struct session *session)
{
    const struct options *o = &session->options;
    const struct layout_of *layout = &layouts[o->memory_layout];
    struct memory_answer answer = {.session = session};
    bool is_page = o->memory_layout == MEMORY_HTML || memory_torch_has(o, ".html");
    if (!memory_file_fits(session) || !session_load(session) || !check_processes(session, layout)) return;
    if (o->memory_layout == MEMORY_PROCESS) return memory_process(session);
    if (is_page) return write_page(session);
    if (o->memory_layout == MEMORY_TORCH) return memory_torch(session);
    if (!session_begin(session, layout->style)) return;
    if (layout->keys) emit_keys(&session->emit, layout->keys);
    if (layout->style == STYLE_LINES) print_head(session, layout->keys ? layout->keys : o->command->keys);
    answer_all(&answer, layout);
    emit_sums(&answer, layout);
    bool none_refused = o->memory_layout == MEMORY_OOM && !requests(&session->chosen);
    bool found = answer.rows || none_refused || !is_filtered(o);
    if (none_refused) complain(NULL, "no request for memory was refused");
    else if (!answer.rows && found && o->memory_layout != MEMORY_LEAKS) say_nothing_recorded(&session->chosen);
    session_end(session, found);
}
