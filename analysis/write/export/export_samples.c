/* export_samples.c - writes sampled Python stacks of .tfr traces: a row beside each thread's, with a box for each frame.
 *
 * Samples that follow one another are in the same box as far as their frames agree from the outside, in function and line.
 * The innermost box ends too where the thread begins or ends to wait. A box reaches from the look before its first sample to
 * its last one.
 */
#include "write/export/export_write.h"

#include <stdlib.h>

#include "ask/samples/periods.h"
#include "model/frames.h"

/* Above every kernel's thread ids, and above the pids that free_pid() makes. */
#define ROW_OF_SAMPLES ((uint64_t)1 << 24)

struct sample_box {
    uint32_t frame;
    int64_t start;
    uint64_t samples;
};

struct sample_boxes {
    struct export *x;
    uint32_t tid;
    struct sample_box *open; /* the outermost first */
    size_t depth, capacity;
    int64_t end; /* of the last sample */
    size_t last; /* index of it */
    bool any;    /* of this thread */
};

static void name_row(const struct sample_boxes *b)
{
    char *name = string_format("samples of thread %u", b->tid);
    put_metadata(b->x, "thread_name", b->x->pid, ROW_OF_SAMPLES + b->tid, "name", name, 0);
    free(name);
}

/* Writes the boxes from a depth on, the outer ones first: viewers nest equal boxes as they come. */
static void close_sampled(struct sample_boxes *b, size_t depth)
{
    struct export *x = b->x;
    char room[24];
    for (size_t i = depth; i < b->depth; i++) {
        const struct sample_box *box = &b->open[i];
        const char *wait = i == b->depth - 1 ? sampled_wait(&x->process->looks, b->last, room) : NULL;
        struct text text = {0};
        frame_text(names_get(&x->chosen->model->names, box->frame), &text);
        begin_event(x, "X");
        emit_text(&x->e, "cat", "python_sample");
        emit_bytes_text(&x->e, "name", text.data ? text.data : "", text.length);
        put_place(x, x->pid, ROW_OF_SAMPLES + b->tid, box->start);
        emit_us(&x->e, "dur", b->end - box->start);
        emit_open(&x->e, "args", false);
        emit_count(&x->e, "samples", box->samples);
        if (wait) emit_text(&x->e, "waits in", wait);
        emit_close(&x->e);
        end_event(x);
        text_free(&text);
    }
    b->depth = MIN(b->depth, depth);
}

static bool is_same_wait(const struct looks *l, size_t a, size_t b)
{
    uint32_t kinds = TFI_SAMPLED_WANTS | TFI_SAMPLED_RUNNABLE;
    return l->call[a] == l->call[b] && (l->flags[a] & kinds) == (l->flags[b] & kinds);
}

static void take_sample(struct sample_boxes *b, size_t look)
{
    const struct looks *l = &b->x->process->looks;
    const struct names *names = &b->x->chosen->model->names;
    size_t frames = stack_depth(names, l->stack[look]), same = 0;
    if (l->start[look] > b->end) close_sampled(b, 0);
    while (same < b->depth && same < frames &&
           b->open[same].frame == stack_frame(names, l->stack[look], frames - 1 - same))
        same++;
    if (same == frames && same == b->depth && same && !is_same_wait(l, b->last, look)) same--;
    close_sampled(b, same);
    for (size_t k = b->depth; k < frames; k++) {
        b->open = mem_grow(b->open, &b->capacity, k + 1, sizeof *b->open);
        b->open[k] = (struct sample_box){stack_frame(names, l->stack[look], frames - 1 - k), l->start[look], 0};
    }
    b->depth = frames;
    for (size_t k = 0; k < frames; k++) b->open[k].samples += l->count[look];
    b->end = l->end[look];
    b->last = look;
}

struct placed_look {
    int64_t start;
    uint32_t tid, look;
};

static int by_tid_and_start(const void *a, const void *b)
{
    const struct placed_look *x = a, *y = b;
    return x->tid != y->tid ? by_number(x->tid, y->tid) : by_number(x->start, y->start);
}

static uint32_t serial_of(const struct process *p, uint32_t tid)
{
    for (size_t i = 0; i < p->threads; i++)
        if (p->thread[i].tid == tid) return p->thread[i].serial;
    return NO_THREAD;
}

void put_stack_samples(struct export *x)
{
    const struct looks *l = &x->process->looks;
    size_t count = 0;
    if (x->asked->without & (WITHOUT_STACKS | WITHOUT_CPU) || !l->table.count) return;
    struct placed_look *order = mem_zero(l->table.count, sizeof *order);
    for (size_t i = 0; i < l->table.count; i++)
        if (l->stack[i] != NAME_NONE) order[count++] = (struct placed_look){l->start[i], l->tid[i], (uint32_t)i};
    qsort(order, count, sizeof *order, by_tid_and_start);
    struct sample_boxes b = {.x = x};
    uint32_t serial = NO_THREAD;
    for (size_t i = 0; i < count; i++) {
        if (!i || order[i].tid != b.tid) {
            close_sampled(&b, 0);
            b.tid = order[i].tid;
            b.any = false;
            serial = serial_of(x->process, b.tid);
        }
        if (!is_wanted(x, serial, order[i].start, l->end[order[i].look])) continue;
        if (!b.any) name_row(&b);
        b.any = true;
        take_sample(&b, order[i].look);
    }
    close_sampled(&b, 0);
    free(b.open);
    free(order);
}
