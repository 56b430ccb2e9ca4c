/* export_python.c - writes Python functions and modules of .tfr traces as Kineto's python_function events.
 *
 * Modules (TFI_MODULE_DEPTH) and functions that are stages (TFI_STAGES) have exact times; TensorBoard's module view is made
 * of them. Other functions come from the call stacks of operators (TFI_WITH_STACK): neighbouring outermost operators of a
 * thread were in the same call of a function as far as their stacks agree from the outside. Its box reaches from the first of
 * these operators to the last one, so that it is at most as long as the call, and says `operators`, their number. Two calls
 * with no operator between them are one box. Edges of ranges divide boxes, since a stack does not tell on which side of them
 * a function stands.
 */
#include "write/export/export_write.h"

#include <stdlib.h>
#include <string.h>

#include "ask/stages/stage_at.h"
#include "base/hash.h"
#include "model/frames.h"

enum { OF_PYTHON = TFI_RANGE_MODULE | TFI_RANGE_FUNCTION | TFI_RANGE_AUTO };

/* ---- ranges ---- */

static bool is_python(const struct export *x, size_t range)
{
    return x->process->ranges.flags[range] & OF_PYTHON && !x->shared->crosses[range];
}

/* Returns the id of the innermost range of Python at a stage or around it; 0: none. */
static uint64_t python_around(const struct export *x, uint32_t stage)
{
    while (stage != NO_PLACE && !is_python(x, stage)) stage = x->scope->attribution.paths.outer[stage];
    return stage == NO_PLACE ? 0 : x->pythons + 1 + stage;
}

static void begin_python(struct export *x, const char *text, size_t length, uint32_t thread, struct interval when)
{
    begin_event(x, "X");
    emit_text(&x->e, "cat", "python_function");
    emit_bytes_text(&x->e, "name", text, length);
    put_place(x, x->pid, tid_of(x, thread), when.start);
    emit_us(&x->e, "dur", when.end - when.start);
    emit_open(&x->e, "args", false);
}

static void put_ids(struct export *x, uint64_t id, uint64_t parent)
{
    emit_count(&x->e, "Python id", id);
    if (parent) emit_count(&x->e, "Python parent id", parent);
}

static void end_python(struct export *x)
{
    emit_close(&x->e);
    end_event(x);
}

static void put_python_ranges(struct export *x)
{
    const struct ranges *r = &x->process->ranges;
    struct map modules = {0}; /* numbers of modules by name */
    for (size_t i = 0; i < r->table.count; i++) {
        if (!is_python(x, i) || !wants_range(x, i)) continue;
        bool is_module = r->flags[i] & TFI_RANGE_MODULE;
        const struct name *name = names_get(&x->chosen->model->names, r->name[i]);
        char *text = string_format("%s%.*s", is_module ? "nn.Module: " : "", (int)name->length, name->text);
        begin_python(x, text, strlen(text), r->thread[i], (struct interval){r->start[i], r->end[i]});
        put_ids(x, x->pythons + 1 + i, python_around(x, x->scope->attribution.paths.outer[i]));
        if (is_module) emit_count(&x->e, "Python module id", map_number(&modules, r->name[i]));
        end_python(x);
        free(text);
    }
    map_free(&modules);
}

/* ---- call stacks of operators ---- */

struct python_box {
    uint64_t id;
    uint64_t function; /* hash of file and function */
    uint32_t frame;    /* name of the frame, with the line of its first operator */
    int64_t start;
    uint64_t operators;
};

struct python_boxes {
    struct export *x;
    uint32_t thread;
    int64_t *edge; /* of the thread's ranges, sorted */
    size_t edges, edge_capacity;
    struct map known;   /* index in `function`, by name of a frame */
    uint64_t *function; /* hash of a frame's file and function; 0: it is not one of Python */
    size_t functions, function_capacity;
    struct python_box *open; /* the outermost first */
    size_t depth, capacity;
    size_t segment;        /* number of edges before the last operator */
    int64_t end;           /* of the last operator */
    uint64_t around, next; /* id around the boxes; next id */
    uint64_t *hash;        /* functions of the operator's frames, the outermost first */
    uint32_t *frame;
    size_t frames, frame_capacity, hash_capacity;
};

/* Writes the boxes from a depth on, the outer ones first: viewers nest equal boxes as they come. */
static void close_boxes(struct python_boxes *b, size_t depth)
{
    struct export *x = b->x;
    for (size_t i = depth; i < b->depth; i++) {
        const struct python_box *box = &b->open[i];
        struct text text = {0};
        frame_text(names_get(&x->chosen->model->names, box->frame), &text);
        begin_python(x, text.data ? text.data : "", text.length, b->thread, (struct interval){box->start, b->end});
        put_ids(x, box->id, i ? b->open[i - 1].id : b->around);
        emit_count(&x->e, "operators", box->operators);
        end_python(x);
        text_free(&text);
    }
    b->depth = MIN(b->depth, depth);
}

static uint64_t hash_of_frame(const struct name *name)
{
    struct slice file, line, function;
    struct text text = {0};
    frame_text(name, &text);
    bool is_python = text.length && frame_take_apart((struct slice){text.data, text.length}, &file, &line, &function);
    uint64_t hash = 0;
    if (is_python) {
        hash = hash_numbers(hash_text(file.at, file.length), hash_text(function.at, function.length));
        hash += !hash;
    }
    text_free(&text);
    return hash;
}

static uint64_t function_of(struct python_boxes *b, uint32_t frame)
{
    size_t at = map_number(&b->known, frame);
    if (at == b->functions) {
        b->function = mem_grow(b->function, &b->function_capacity, at + 1, sizeof *b->function);
        b->function[b->functions++] = hash_of_frame(names_get(&b->x->chosen->model->names, frame));
    }
    return b->function[at];
}

static void take_frames(struct python_boxes *b, uint32_t stack)
{
    const struct names *names = &b->x->chosen->model->names;
    size_t depth = stack_depth(names, stack);
    b->hash = mem_grow(b->hash, &b->hash_capacity, depth, sizeof *b->hash);
    b->frame = mem_grow(b->frame, &b->frame_capacity, depth, sizeof *b->frame);
    b->frames = 0;
    for (size_t i = depth; i-- > 0;) {
        uint32_t frame = stack_frame(names, stack, i);
        uint64_t hash = function_of(b, frame);
        if (!hash) continue;
        b->hash[b->frames] = hash;
        b->frame[b->frames++] = frame;
    }
}

static size_t edges_before(const struct python_boxes *b, int64_t time)
{
    size_t low = 0, high = b->edges;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (b->edge[middle] <= time) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void take_operator(struct python_boxes *b, size_t i)
{
    const struct spans *s = &b->x->process->spans;
    size_t segment = edges_before(b, s->start[i]), same = 0;
    take_frames(b, op_details_of(&s->details, i)->stack);
    if (segment != b->segment) close_boxes(b, 0);
    while (same < b->depth && same < b->frames && b->open[same].function == b->hash[same]) same++;
    close_boxes(b, same);
    b->segment = segment;
    if (!b->depth) b->around = python_around(b->x, stage_at(&b->x->scope->attribution.finder, b->thread, s->start[i]));
    for (size_t k = b->depth; k < b->frames; k++) {
        b->open = mem_grow(b->open, &b->capacity, k + 1, sizeof *b->open);
        b->open[k] = (struct python_box){++b->next, b->hash[k], b->frame[k], s->start[i], 0};
    }
    b->depth = b->frames;
    for (size_t k = 0; k < b->depth; k++) b->open[k].operators++;
    b->end = s->end[i];
}

static int by_edge_time(const void *a, const void *b)
{
    return by_number(*(const int64_t *)a, *(const int64_t *)b);
}

static void find_edges(struct python_boxes *b)
{
    const struct ranges *r = &b->x->process->ranges;
    b->edges = 0;
    for (size_t i = 0; i < r->table.count; i++) {
        if (r->thread[i] != b->thread || b->x->shared->crosses[i]) continue;
        b->edge = mem_grow(b->edge, &b->edge_capacity, b->edges + 2, sizeof *b->edge);
        b->edge[b->edges++] = r->start[i];
        b->edge[b->edges++] = r->end[i];
    }
    if (b->edges) qsort(b->edge, b->edges, sizeof *b->edge, by_edge_time);
}

struct stacked {
    int64_t start, end;
    uint32_t thread, span;
};

static int by_thread_and_start(const void *a, const void *b)
{
    const struct stacked *x = a, *y = b;
    return x->thread != y->thread ? by_number(x->thread, y->thread) : outer_first(x->start, x->end, y->start, y->end);
}

/* Returns the operators that have stacks, by thread and time. */
static struct stacked *stacked_operators(const struct export *x, size_t *count)
{
    const struct spans *s = &x->process->spans;
    struct stacked *found = NULL;
    size_t capacity = 0;
    *count = 0;
    for (size_t i = 0; i < s->table.count; i++) {
        if (s->event_class[i] != CLASS_OPERATOR || !wants_operator(x, i)) continue;
        if (op_details_of(&s->details, i)->stack == NAME_NONE) continue;
        found = mem_grow(found, &capacity, *count + 1, sizeof *found);
        found[(*count)++] = (struct stacked){s->start[i], s->end[i], s->thread[i], (uint32_t)i};
    }
    if (*count) qsort(found, *count, sizeof *found, by_thread_and_start);
    return found;
}

static void put_stacks(struct export *x)
{
    size_t count;
    struct stacked *op = stacked_operators(x, &count);
    struct python_boxes b = {.x = x, .next = x->pythons + x->process->ranges.table.count};
    for (size_t i = 0; i < count; i++) {
        bool is_new = !i || op[i].thread != b.thread;
        if (is_new) {
            close_boxes(&b, 0);
            b.thread = op[i].thread;
            find_edges(&b);
        }
        if (is_new || op[i].start >= b.end) take_operator(&b, op[i].span);
    }
    close_boxes(&b, 0);
    x->pythons = b.next;
    map_free(&b.known);
    free(b.function);
    free(b.edge);
    free(b.open);
    free(b.hash);
    free(b.frame);
    free(op);
}

void put_python(struct export *x)
{
    if (x->asked->without & WITHOUT_STACKS) return;
    if (!x->asked->taker) put_python_ranges(x); /* other sinks have them as stages, and no module view */
    if (x->asked->without & WITHOUT_CPU) x->pythons += x->process->ranges.table.count;
    else put_stacks(x);
}
