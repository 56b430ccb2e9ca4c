/* report_memory.c - cache-dit's two files about memory, of a stage that was one of its contexts and was asked for them, or
 * had its allocations recorded with call stacks where nothing is said of what was asked: a snapshot that
 * torch.cuda._memory_viz reads, and torch.cuda.memory_summary()'s table.
 *
 * The snapshot has every block from the first entry of the stage to its last exit in `device_traces`: a list a device,
 * that of the host last, as torch has it where it makes one from a profile. `segments` has what was in use at the end.
 * The allocator reports blocks, not segments: blocks less than 2 MiB apart are shown as one segment, with what lies
 * between them inactive. The table has the rows that follow from blocks and totals.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pickle.h"
#include "report.h"
#include "stacks.h"
#include "stage_files.h"
#include "trace.h"

#define SEGMENT_GAP (2u << 20)
#define DEVICES_MOST 128 /* torch numbers them in eight bits with a sign */

/* What one process did in one stage. */
struct view {
    const struct report *report;
    const struct process *process;
    int64_t start, end;
    uint32_t *block;      /* places in the process's blocks, by time, up to the end */
    size_t blocks, first; /* the first one inside */
    int64_t devices;      /* highest number of a device + 1 */
    bool has_stacks, has_blocks, has_host;
    struct map stacks, frames; /* what the pickle remembers them as, by their numbers */
};

struct in_use {
    uint64_t address, bytes;
    uint32_t stack;
    bool gone;
};

/* ---- which blocks ---- */

static int by_time(const void *a, const void *b, void *context)
{
    const struct blocks *blocks = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (blocks->time[x] != blocks->time[y]) {
        return blocks->time[x] < blocks->time[y] ? -1 : 1;
    }
    return (x > y) - (x < y);
}

/* False if the stage was not open in this process, nothing was recorded in it, or nobody asked. */
static bool look(struct view *view, uint32_t stage)
{
    const struct ranges *r = &view->process->ranges;
    const struct blocks *b = &view->process->blocks;
    view->start = INT64_MAX;
    view->end = INT64_MIN;
    for (size_t i = 0; i < r->table.count; i++) {
        if (r->flags[i] & TFI_RANGE_CACHE_DIT && view->report->one[r->name[i]] == stage) {
            view->start = MIN(view->start, r->start[i]);
            view->end = MAX(view->end, r->end[i]);
        }
    }
    view->block = mem_zero(b->table.count + 1, sizeof *view->block);
    for (size_t i = 0; i < b->table.count; i++) {
        bool inside = b->time[i] >= view->start && b->time[i] <= view->end;
        if (b->time[i] <= view->end && b->device[i] >= DEVICE_HOST && b->device[i] < DEVICES_MOST) {
            view->block[view->blocks++] = (uint32_t)i;
            view->devices = MAX(view->devices, b->device[i] + 1);
            view->has_host |= b->device[i] == DEVICE_HOST;
            view->has_blocks |= inside;
            view->has_stacks |= inside && b->stack[i];
        }
    }
    if (view->blocks) {
        qsort_r(view->block, view->blocks, sizeof *view->block, by_time, (void *)b);
    }
    while (view->first < view->blocks && b->time[view->block[view->first]] < view->start) {
        view->first++;
    }
    const struct report_asked *asked = &view->report->asked[stage];
    return asked->known ? view->has_blocks && !(asked->without & WITHOUT_MEMORY) : view->has_stacks;
}

/* ---- the snapshot ---- */

static void put_frame(struct pickle *p, const struct name *name)
{
    struct frame frame;
    if (!frame_parse(&frame, name->text, name->length)) {
        frame = (struct frame){name->text, "", "0", name->length, 0};
    }
    pickle_open_dict(p);
    pickle_key(p, "filename");
    pickle_text(p, frame.file, frame.file_length);
    pickle_key(p, "line");
    pickle_int(p, strtol(frame.line, NULL, 10));
    pickle_key(p, "name");
    pickle_text(p, frame.function, frame.function_length);
    pickle_close_dict(p);
}

/* A stack, and each of its frames, is written once and meant again by number after that. */
static void put_frames(struct pickle *p, struct view *view, uint32_t stack)
{
    const struct names *names = &view->report->session->model.names;
    uint32_t known = map_get(&view->stacks, stack);
    if (known != MAP_NONE) {
        pickle_again(p, known);
        return;
    }
    pickle_open_list(p);
    for (size_t i = 0; i < stack_depth(names, stack); i++) {
        uint32_t frame = stack_frame(names, stack, i);
        known = map_get(&view->frames, frame);
        if (known != MAP_NONE) {
            pickle_again(p, known);
        } else {
            put_frame(p, names_get(names, frame));
            map_put(&view->frames, frame, pickle_remember(p));
        }
    }
    pickle_close_list(p);
    map_put(&view->stacks, stack, pickle_remember(p));
}

static int64_t magnitude(int64_t bytes)
{
    return bytes >= 0 ? bytes : -MAX(bytes, -INT64_MAX);
}

static void put_int(struct pickle *p, const char *key, int64_t value)
{
    pickle_key(p, key);
    pickle_int(p, value);
}

static void put_event(struct pickle *p, struct view *view, size_t i, const char *action)
{
    const struct blocks *b = &view->process->blocks;
    pickle_open_dict(p);
    pickle_key(p, "action");
    pickle_key(p, action);
    put_int(p, "addr", (int64_t)b->address[i]);
    put_int(p, "size", magnitude(b->bytes[i]));
    put_int(p, "stream", 0);
    put_int(p, "time_us", b->time[i] / 1000);
    pickle_key(p, "frames");
    put_frames(p, view, b->stack[i]);
    pickle_close_dict(p);
}

static void put_events(struct pickle *p, struct view *view, int64_t device)
{
    const struct blocks *b = &view->process->blocks;
    pickle_open_list(p);
    for (size_t k = view->first; k < view->blocks; k++) {
        size_t i = view->block[k];
        if (b->device[i] != device) {
            continue;
        }
        if (b->bytes[i] > 0) {
            put_event(p, view, i, "alloc");
        } else {
            put_event(p, view, i, "free_requested");
            put_event(p, view, i, "free_completed");
        }
    }
    pickle_close_list(p);
}

static int by_address(const void *a, const void *b)
{
    const struct in_use *x = a, *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

/* What is in use at the end, by address; how many. */
static size_t find_live(const struct view *view, int64_t device, struct in_use *live)
{
    const struct blocks *b = &view->process->blocks;
    struct map at = {0};
    size_t count = 0, left = 0;
    for (size_t k = 0; k < view->blocks; k++) {
        size_t i = view->block[k];
        if (b->device[i] != device) {
            continue;
        }
        uint32_t known = map_get(&at, b->address[i]);
        if (known != MAP_NONE) {
            live[known].gone = true;
        }
        if (b->bytes[i] > 0) {
            map_put(&at, b->address[i], (uint32_t)count);
            live[count++] = (struct in_use){b->address[i], (uint64_t)b->bytes[i], b->stack[i], false};
        }
    }
    map_free(&at);
    for (size_t i = 0; i < count; i++) {
        if (!live[i].gone) {
            live[left++] = live[i];
        }
    }
    qsort(live, left, sizeof *live, by_address);
    return left;
}

static void put_block(struct pickle *p, struct view *view, const struct in_use *block, bool active)
{
    pickle_open_dict(p);
    put_int(p, "address", (int64_t)block->address);
    put_int(p, "size", (int64_t)block->bytes);
    put_int(p, "requested_size", (int64_t)block->bytes);
    pickle_key(p, "state");
    pickle_key(p, active ? "active_allocated" : "inactive");
    pickle_key(p, "frames");
    put_frames(p, view, active ? block->stack : 0);
    pickle_close_dict(p);
}

static void put_segment(struct pickle *p, struct view *view, int64_t device, const struct in_use *live, size_t count)
{
    uint64_t used = 0, next = live[0].address, end = live[count - 1].address + live[count - 1].bytes;
    for (size_t i = 0; i < count; i++) {
        used += live[i].bytes;
    }
    pickle_open_dict(p);
    put_int(p, "device", device);
    put_int(p, "address", (int64_t)live[0].address);
    put_int(p, "total_size", (int64_t)(end - live[0].address));
    put_int(p, "allocated_size", (int64_t)used);
    put_int(p, "active_size", (int64_t)used);
    put_int(p, "requested_size", (int64_t)used);
    put_int(p, "stream", 0);
    pickle_key(p, "segment_type");
    pickle_key(p, end - live[0].address > SEGMENT_GAP ? "large" : "small");
    pickle_key(p, "frames");
    put_frames(p, view, 0);
    pickle_key(p, "blocks");
    pickle_open_list(p);
    for (size_t i = 0; i < count; i++) {
        struct in_use gap = {.address = next, .bytes = live[i].address - next};
        if (live[i].address > next) {
            put_block(p, view, &gap, false);
        }
        put_block(p, view, &live[i], true);
        next = live[i].address + live[i].bytes;
    }
    pickle_close_list(p);
    pickle_close_dict(p);
}

static void put_segments(struct pickle *p, struct view *view, int64_t device, int64_t shown_as)
{
    struct in_use *live = mem_zero(view->blocks + 1, sizeof *live);
    size_t count = find_live(view, device, live);
    for (size_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count; next++) {
            uint64_t end = live[next - 1].address + live[next - 1].bytes;
            if (live[next].address < end || live[next].address - end > SEGMENT_GAP) {
                break;
            }
        }
        put_segment(p, view, shown_as, live + i, next - i);
    }
    free(live);
}

static void put_snapshot(struct out *out, struct view *view)
{
    struct pickle p;
    pickle_begin(&p, out);
    pickle_open_dict(&p);
    pickle_key(&p, "about");
    pickle_key(&p, REPORT_WRITER); /* by which it is known as ours */
    pickle_key(&p, "device_traces");
    pickle_open_list(&p);
    for (int64_t device = 0; device < view->devices; device++) {
        put_events(&p, view, device);
    }
    if (view->has_host) {
        put_events(&p, view, DEVICE_HOST);
    }
    pickle_close_list(&p);
    pickle_key(&p, "segments");
    pickle_open_list(&p);
    for (int64_t device = 0; device < view->devices; device++) {
        put_segments(&p, view, device, device);
    }
    put_segments(&p, view, DEVICE_HOST, view->devices);
    pickle_close_list(&p);
    pickle_key(&p, "allocator_settings");
    pickle_open_dict(&p);
    pickle_close_dict(&p);
    pickle_close_dict(&p);
    pickle_end(&p);
    map_free(&view->stacks);
    map_free(&view->frames);
}

/* ---- the table ---- */

struct numbers {
    uint64_t now, peak, allocated, freed;
};

static void put_line(struct out *out, const char *filler)
{
    char line[76];
    memset(line, *filler, 75);
    line[75] = 0;
    out_format(out, "|%s|\n", line);
}

/* Torch's own rounding: down, in the unit of the row's first number of that column. */
static void put_cell(struct out *out, uint64_t value, bool bytes)
{
    static const char *const sizes[] = {"B  ", "KiB", "MiB", "GiB", "TiB", "PiB"};
    static const char *const counts[] = {" ", "K", "M"};
    unsigned unit = 0, units = bytes ? ARRAY_SIZE(sizes) : ARRAY_SIZE(counts), step = bytes ? 1024 : 1000;
    double shown = (double)value, limit = bytes ? 768 * 1024.0 : 750 * 1000.0;
    for (; unit + 1 < units && shown >= limit; unit++) {
        value /= step;
        shown /= step;
    }
    if (bytes) {
        out_format(out, "| %6llu %s ", (unsigned long long)value, sizes[unit]);
    } else {
        out_format(out, "| %7llu %s  ", (unsigned long long)value, counts[unit]);
    }
}

static void put_numbers(struct out *out, const char *title, const struct numbers *n, bool bytes)
{
    put_line(out, "-");
    out_format(out, "| %-21s ", title);
    put_cell(out, n->now, bytes);
    put_cell(out, n->peak, bytes);
    put_cell(out, n->allocated, bytes);
    put_cell(out, n->freed, bytes);
    out_puts(out, "|\n");
}

/* Totals of one device up to the end; peaks inside the stage. */
static void count_device(const struct view *view, int64_t device, struct numbers *bytes, struct numbers *reserved,
                         struct numbers *blocks)
{
    const struct blocks *b = &view->process->blocks;
    struct map live = {0};
    bool inside = false;
    for (size_t k = 0; k < view->blocks; k++) {
        size_t i = view->block[k];
        if (b->device[i] != device) {
            continue;
        }
        bool alloc = b->bytes[i] > 0;
        uint64_t more = b->reserved[i] > reserved->now ? b->reserved[i] - reserved->now : 0;
        uint64_t less = b->reserved[i] < reserved->now ? reserved->now - b->reserved[i] : 0;
        if (k >= view->first && !inside) {
            bytes->peak = bytes->now;
            reserved->peak = reserved->now;
            blocks->peak = blocks->now;
            inside = true;
        }
        *(alloc ? &bytes->allocated : &bytes->freed) += (uint64_t)magnitude(b->bytes[i]);
        *(alloc ? &blocks->allocated : &blocks->freed) += 1;
        if (alloc || map_get(&live, b->address[i]) == 1) {
            blocks->now += alloc ? 1 : (uint64_t)-1; /* else it is older than the recording */
        }
        map_put(&live, b->address[i], alloc);
        bytes->now = b->allocated[i];
        reserved->now = b->reserved[i];
        reserved->allocated += more;
        reserved->freed += less;
        if (k >= view->first) {
            bytes->peak = MAX(bytes->peak, bytes->now);
            reserved->peak = MAX(reserved->peak, reserved->now);
            blocks->peak = MAX(blocks->peak, blocks->now);
        }
    }
    map_free(&live);
}

static void put_summary(struct out *out, const struct view *view)
{
    for (int64_t device = view->devices; device-- > (view->has_host ? -1 : 0);) {
        struct numbers bytes = {0}, reserved = {0}, blocks = {0};
        char title[96];
        count_device(view, device, &bytes, &reserved, &blocks);
        put_line(out, "=");
        if (device >= 0) {
            snprintf(title, sizeof title, "%18sPyTorch CUDA memory summary, device ID %-17lld", "", (long long)device);
        } else {
            snprintf(title, sizeof title, "%18sPyTorch host memory summary", "");
        }
        out_format(out, "|%-75s|\n", title);
        put_line(out, "-");
        out_format(out, "|  %-73s|\n", REPORT_WRITER);
        put_line(out, "=");
        out_puts(out, "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n");
        put_numbers(out, "Allocated memory", &bytes, true);
        if (device >= 0) {
            put_numbers(out, "GPU reserved memory", &reserved, true);
        }
        put_numbers(out, "Allocations", &blocks, false);
        put_line(out, "=");
    }
}

/* ---- files ---- */

static bool write_one(struct report *report, const char *directory, const char *name, const char *suffix,
                      struct view *view, bool snapshot)
{
    struct out out;
    char *path = report_path(directory, name, suffix);
    bool good = out_open(&out, path);
    if (good) {
        if (snapshot) {
            put_snapshot(&out, view);
        } else {
            put_summary(&out, view);
        }
        good = report_finish(report, &out, path);
    }
    free(path);
    return good;
}

static bool write_stage(struct report *report, struct stage_files *files, const char *directory,
                        const struct unit *unit, const struct report_stage *stage, const struct process *process)
{
    struct view view = {.report = report, .process = process};
    bool good = true;
    if (look(&view, stage->name)) {
        const struct name *name = names_get(&report->session->model.names, stage->name);
        char *suffix =
            string_format("-rank%lld-memory-%lld", (long long)MAX(unit->rank, 0), (long long)(view.end / 1000000000));
        char *path = stage_file_named(files, directory, "", name->text, name->length, suffix);
        const char *base = path + strlen(directory) + 1;
        good = write_one(report, directory, base, ".pickle", &view, true) &&
               write_one(report, directory, base, ".txt", &view, false);
        free(path);
        free(suffix);
    }
    free(view.block);
    return good;
}

bool report_write_memory(struct report *report, const char *directory, const struct unit *unit)
{
    struct stage_files files = {0}; /* two processes of a rank may end a stage in the same second */
    bool good = true;
    for (size_t i = 0; i < unit->stages && good; i++) {
        const struct report_asked *asked = &report->asked[unit->stage[i].name];
        if (!asked->is) {
            continue;
        }
        const char *where = asked->directory ? asked->directory : directory;
        for (size_t k = 0; k < unit->processes && good; k++) {
            good = write_stage(report, &files, where, unit, &unit->stage[i], unit->process[k]);
        }
    }
    stage_files_free(&files);
    return good;
}
