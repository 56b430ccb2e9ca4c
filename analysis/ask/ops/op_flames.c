/* op_flames.c - adds up the rows of torch's table by stack alone: what torch's export_stacks writes, event by event. */
#include "ask/ops/op_flames.h"

#include <stdlib.h>
#include <string.h>

#include "ask/ops/op_rows.h"
#include "model/frames.h"

/* Returns the Python frames of a stack of ours, or all of them if there are none. The native ones lie between them at
 * places that are no longer known. */
static uint32_t python_frames(struct names *names, struct map *known, uint32_t stack)
{
    uint32_t found = map_get(known, stack);
    if (found != MAP_NONE) return found;
    const struct name *all = names_get(names, stack);
    struct text kept = {0};
    for (const char *at = all->text, *end = at + all->length, *stop; at < end; at = stop + 1) {
        struct slice frame, file, line, function;
        stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        frame = (struct slice){at, (size_t)(stop - at)};
        if (!frame_take_apart(frame, &file, &line, &function)) continue;
        text_puts(&kept, kept.length ? "\n" : "");
        text_add(&kept, frame.at, frame.length);
    }
    found = kept.length ? names_add(names, kept.data, kept.length) : stack;
    map_put(known, stack, found);
    text_free(&kept);
    return found;
}

static void add_process(struct flames *flames, const struct selection *chosen, size_t process, bool on_device)
{
    struct op_rows rows = {.chosen = chosen, .with_python = true};
    struct names *names = &chosen->model->names;
    bool is_ours = !is_of_kineto(chosen->process[process]);
    struct map known = {0}; /* Python frames by stack */
    struct map place = {0}; /* index of a flame, less those of the processes before, by stack */
    size_t first = flames->count, kept = first;
    struct scope *scope = scope_begin(chosen, process);
    op_rows_add(&rows, scope);
    scope_end(scope);
    op_rows_end(&rows);
    for (size_t i = 0; i < rows.count; i++) {
        const struct op_row *row = &rows.row[i];
        if (row->on_device || row->stack == NAME_NONE) continue;
        uint32_t stack = is_ours ? python_frames(names, &known, row->stack) : row->stack;
        size_t at = first + map_number(&place, stack);
        if (at == flames->count) {
            flames->flame = mem_grow(flames->flame, &flames->capacity, at + 1, sizeof *flames->flame);
            flames->flame[flames->count++] = (struct flame){.process = process, .stack = stack};
        }
        int64_t *time = &flames->flame[at].time;
        *time = add_ns(*time, on_device ? row->own.device : row->own.time);
    }
    flames->with_stack += flames->count - first;
    for (size_t i = first; i < flames->count; i++)
        if (flames->flame[i].time > 0) flames->flame[kept++] = flames->flame[i];
    flames->count = kept;
    map_free(&known);
    map_free(&place);
    op_rows_free(&rows);
}

void flames_of(struct flames *flames, const struct selection *chosen, bool on_device)
{
    *flames = (struct flames){0};
    for (size_t i = 0; i < chosen->processes; i++) add_process(flames, chosen, i, on_device);
}

void flames_free(struct flames *flames)
{
    free(flames->flame);
    *flames = (struct flames){0};
}
