/* op_rows.c - groups events as torch.profiler does. */
#include "ask/ops/op_rows.h"

#include <stdlib.h>
#include <string.h>

#include "ask/ops/addition.h"
#include "ask/ops/op_stacks.h"
#include "ask/stages/order.h"
#include "model/frames.h"

/* ---- keys of rows ---- */

/* Writes input shapes as torch shows them: [[2, 3], [], []]. A list of tensors becomes an empty list. */
static void flatten(const char *json, struct text *flat)
{
    bool is_list = false; /* the open item contains other lists */
    size_t item = 0;
    int depth = 0;
    for (const char *p = json; *p; p++) {
        if (*p == '[' && ++depth > 2) {
            is_list = true;
        } else if (*p == '[') {
            item = flat->length;
            text_puts(flat, "[");
        } else if (*p == ']' && depth-- <= 2) {
            if (is_list) {
                flat->length = item + 1;
                is_list = false;
            }
            text_puts(flat, "]");
        } else if (*p == ',' && depth <= 2) {
            text_puts(flat, ", ");
        } else if (depth <= 2 && *p > ' ') {
            text_add(flat, p, 1);
        }
    }
}

uint32_t op_flat_shapes(struct op_rows *rows, uint32_t shapes)
{
    struct names *names = &rows->chosen->model->names;
    uint32_t flat = map_get(&rows->flat_shapes, shapes);
    if (flat == MAP_NONE) {
        struct text text = {0};
        flatten(shapes == NAME_NONE ? "[]" : names_get(names, shapes)->text, &text);
        flat = names_add(names, text.data ? text.data : "", text.length);
        map_put(&rows->flat_shapes, shapes, flat);
        text_free(&text);
    }
    return flat;
}

/* Returns the first frames of a stack, one per line. */
uint32_t op_first_frames(struct op_rows *rows, uint32_t stack)
{
    struct names *names = &rows->chosen->model->names;
    uint32_t frames = stack == NAME_NONE ? NAME_NONE : map_get(&rows->frames, stack);
    if (frames == MAP_NONE) {
        struct text text = {0};
        size_t depth = stack_depth(names, stack), left = rows->chosen->options->group_ops.stack;
        for (size_t i = 0; i < depth && left; i++) {
            size_t before = text.length;
            text_puts(&text, before ? "\n" : "");
            frame_text(names_get(names, stack_frame(names, stack, i)), &text);
            bool hidden = text.data && op_frame_is_hidden(text.data + before);
            text.length = hidden ? before : text.length;
            left -= !hidden;
        }
        frames = names_add(names, text.data ? text.data : "", text.length);
        map_put(&rows->frames, stack, frames);
        text_free(&text);
    }
    return frames;
}

/* ---- rows ---- */

static bool is_earlier(const struct op_row *row, const struct addition *a)
{
    if (a->start != row->start) return a->start < row->start;
    return a->end != row->end ? a->end > row->end : a->order < row->order;
}

size_t op_row_of(struct op_rows *rows, const struct addition *a)
{
    enum { KEY = offsetof(struct op_row, is_async) };
    _Static_assert(offsetof(struct addition, is_annotation) + sizeof a->is_annotation == KEY, "the same key");
    const struct op_row *row = keyed_row(&rows->keyed, a, KEY, sizeof *row);
    return (size_t)(row - rows->row);
}

void op_row_add(struct op_rows *rows, size_t place, const struct addition *a, size_t process)
{
    struct op_row *row = &rows->row[place];
    if (!row->events || (row->process == process && is_earlier(row, a))) {
        row->process = process;
        row->start = a->start;
        row->end = a->end;
        row->order = a->order;
        row->is_async = a->is_async;
    }
    row->events++;
    row->calls += a->is_call;
    row->flops += a->flops;
    op_sums_add(&row->own, &a->own);
    op_sums_add(&row->all, &a->all);
    rows->events++;
}

/* ---- the whole ---- */

static int by_first_event(const void *a, const void *b)
{
    const struct op_row *x = a, *y = b;
    if (x->process != y->process) return x->process < y->process ? -1 : 1;
    int nesting = outer_first(x->start, x->end, y->start, y->end);
    if (nesting) return nesting;
    return (x->order > y->order) - (x->order < y->order);
}

void op_rows_end(struct op_rows *rows)
{
    size_t kept = 0;
    for (size_t i = 0; i < rows->count; i++)
        if (rows->row[i].events) rows->row[kept++] = rows->row[i];
    rows->count = kept;
    if (rows->count) qsort(rows->row, rows->count, sizeof *rows->row, by_first_event);
}

void op_rows_free(struct op_rows *rows)
{
    keyed_free(&rows->keyed);
    map_free(&rows->flat_shapes);
    map_free(&rows->frames);
    left_rows_free(&rows->left);
}
