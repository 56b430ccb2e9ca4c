/* report_memory.c - writes cache-dit's two memory files: a snapshot for torch.cuda._memory_viz, and
 * torch.cuda.memory_summary()'s table.
 *
 * A stage gets them if it was one of cache-dit's contexts and requested them. If the context's arguments are unknown,
 * it gets them if its allocations were recorded with call stacks.
 * snapshot.c writes the snapshot. The table has the rows that can be computed from blocks and totals.
 */
#include "commands/report/report_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "read/trace.h"
#include "write/stage_files.h"

#define DEVICES_MOST 128 /* torch's device numbers have eight bits with a sign */

/* ---- selection of blocks ---- */

static int blocks_by_time(const void *a, const void *b, void *context)
{
    const struct blocks *blocks = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (blocks->time[x] != blocks->time[y]) return blocks->time[x] < blocks->time[y] ? -1 : 1;
    return (x > y) - (x < y);
}

static void look_for_ooms(struct view *view)
{
    const struct blocks *b = &view->process->ooms;
    view->oom = mem_zero(b->table.count + 1, sizeof *view->oom);
    for (size_t i = 0; i < b->table.count; i++) {
        if (b->time[i] >= view->start && b->time[i] <= view->end && b->device[i] >= 0 && b->device[i] < DEVICES_MOST) {
            view->oom[view->ooms++] = (uint32_t)i;
            view->devices = MAX(view->devices, b->device[i] + 1);
            view->has_blocks = true;
            view->has_stacks |= b->stack[i] != 0;
        }
    }
    if (view->ooms) qsort_r(view->oom, view->ooms, sizeof *view->oom, blocks_by_time, (void *)b);
}

/* Collects the device and host blocks up to the end of a stage. Returns false if there is nothing to write: the stage
 * was not open in this process, no memory was recorded in it, or the context asked for no memory files. If the
 * context's request is unknown, at least one block in the stage needs a stack. */
static bool collect_blocks(struct view *view, uint32_t stage)
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
    if (view->blocks) qsort_r(view->block, view->blocks, sizeof *view->block, blocks_by_time, (void *)b);
    grants_find(&view->grants, view->process, view->block, view->blocks, view->end);
    while (view->first < view->blocks && b->time[view->block[view->first]] < view->start) view->first++;
    look_for_ooms(view);
    const struct report_asked *asked = &view->report->asked[stage];
    return asked->known ? view->has_blocks && !(asked->without & WITHOUT_MEMORY) : view->has_stacks;
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

/* Prints a number with torch's rounding: down, in the largest unit that torch's limits allow. */
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
    if (bytes) out_format(out, "| %6llu %s ", (unsigned long long)value, sizes[unit]);
    else out_format(out, "| %7llu %s  ", (unsigned long long)value, counts[unit]);
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

/* Counts the totals of one device up to the stage's end, and the peaks inside the stage. */
static void count_device(const struct view *view, int64_t device, struct numbers *bytes, struct numbers *reserved,
                         struct numbers *blocks)
{
    const struct blocks *b = &view->process->blocks;
    struct map live = {0};
    bool inside = false;
    for (size_t k = 0; k < view->blocks; k++) {
        size_t i = view->block[k];
        if (b->device[i] != device) continue;
        bool alloc = b->bytes[i] > 0;
        uint64_t more = b->reserved[i] > reserved->now ? b->reserved[i] - reserved->now : 0;
        uint64_t less = b->reserved[i] < reserved->now ? reserved->now - b->reserved[i] : 0;
        if (k >= view->first && !inside) {
            bytes->peak = bytes->now;
            reserved->peak = reserved->now;
            blocks->peak = blocks->now;
            inside = true;
        }
        *(alloc ? &bytes->allocated : &bytes->freed) += (uint64_t)block_magnitude(b->bytes[i]);
        *(alloc ? &blocks->allocated : &blocks->freed) += 1;
        if (alloc || map_get(&live, b->address[i]) == 1)
            blocks->now += alloc ? 1 : (uint64_t)-1; /* else the block is older than the recording */
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
        if (device >= 0)
            snprintf(title, sizeof title, "%18sPyTorch CUDA memory summary, device ID %-17lld", "", (long long)device);
        else snprintf(title, sizeof title, "%18sPyTorch host memory summary", "");
        out_format(out, "|%-75s|\n", title);
        put_line(out, "-");
        out_format(out, "|  %-73s|\n", REPORT_WRITER);
        put_line(out, "=");
        out_puts(out, "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n");
        put_numbers(out, "Allocated memory", &bytes, true);
        if (device >= 0) put_numbers(out, "GPU reserved memory", &reserved, true);
        put_numbers(out, "Allocations", &blocks, false);
        put_line(out, "=");
    }
}

/* ---- files ---- */

static bool write_one(struct report *report, const char *directory, const char *name, const char *suffix,
                      struct view *view, bool snapshot)
{
    struct out out;
    char *path = report_path(report, directory, name, suffix);
    bool good = report_open(report, &out, path, FILE_PRIVATE);
    if (good) {
        if (snapshot) report_put_snapshot(&out, view);
        else put_summary(&out, view);
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
    if (collect_blocks(&view, stage->name)) {
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
    free(view.oom);
    grants_free(&view.grants);
    return good;
}

bool report_write_memory(struct report *report, const char *directory, const struct unit *unit)
{
    struct stage_files files = {0}; /* two processes of a rank may end a stage in the same second */
    bool good = true;
    for (size_t i = 0; i < unit->stages && good; i++) {
        const struct report_asked *asked = &report->asked[unit->stage[i].name];
        if (!asked->is) continue;
        const char *where = asked->directory ? asked->directory : directory;
        for (size_t k = 0; k < unit->processes && good; k++)
            good = write_stage(report, &files, where, unit, &unit->stage[i], unit->process[k]);
    }
    stage_files_free(&files);
    return good;
}
