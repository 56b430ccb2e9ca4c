/* copies.c - finds inputs that are traces of the same process or rank. A trace of dftracer is a copy of none: it has
 * what the others lack, and a rank has many of them. */
#include "model/inputs/copies.h"

#include <stdlib.h>
#include <string.h>

static void leave_out(struct input *input)
{
    input->usable = false;
    process_free(&input->process);
}

/* ---- order ---- */

/* The usable inputs of one kind, neighbours if they are of the same rank, and of our traces also of the same pid. */
struct order {
    struct input **input;
    size_t count;
};

static int by_place(const struct input *a, const struct input *b)
{
    return (a > b) - (a < b);
}

static int by_rank(const void *a, const void *b)
{
    const struct input *x = *(struct input *const *)a, *y = *(struct input *const *)b;
    int order = by_number(x->process.rank, y->process.rank);
    return order ? order : by_place(x, y);
}

static int process_order(const struct process *a, const struct process *b)
{
    int order = by_number(a->rank, b->rank);
    return order ? order : by_number(a->pid, b->pid);
}

static int by_process(const void *a, const void *b)
{
    const struct input *x = *(struct input *const *)a, *y = *(struct input *const *)b;
    int order = process_order(&x->process, &y->process);
    return order ? order : by_place(x, y);
}

static int by_process_and_start(const void *a, const void *b)
{
    const struct input *x = *(struct input *const *)a, *y = *(struct input *const *)b;
    int order = process_order(&x->process, &y->process);
    if (!order) order = by_number(x->process.first, y->process.first);
    return order ? order : by_place(x, y);
}

static struct order sorted(struct inputs *inputs, enum input_kind kind, int (*compare)(const void *, const void *))
{
    struct order order = {.input = mem_zero(inputs->count, sizeof *order.input)};
    for (size_t i = 0; i < inputs->count; i++)
        if (inputs->input[i].usable && inputs->input[i].kind == kind) order.input[order.count++] = &inputs->input[i];
    if (order.count) qsort(order.input, order.count, sizeof *order.input, compare);
    return order;
}

/* Returns the index of the first trace of ours that is not before the process. */
static size_t first_not_before(const struct order *order, const struct process *process)
{
    size_t low = 0, high = order->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (process_order(&order->input[middle]->process, process) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* ---- copies ---- */

/* Tells whether a PyTorch trace and a trace of ours are of the same process. Times are compared if both are on the
 * axis, because pids are reused. */
static bool is_same_process(const struct process *own, const struct process *other)
{
    bool timed = own->has_time && other->has_time && own->clock.has_axis && other->clock.has_axis;
    bool apart = timed && (own->last < other->first || other->last < own->first);
    bool elsewhere = own->host && other->host && strcmp(own->host, other->host) != 0;
    return own->pid >= 0 && own->pid == other->pid && own->rank == other->rank && !apart && !elsewhere;
}

/* Our trace of a process has more than a PyTorch trace of it. */
static void find_same_processes(struct inputs *inputs)
{
    struct order ours = sorted(inputs, INPUT_OURS, by_process);
    for (size_t i = 0; i < inputs->count; i++) {
        struct input *other = &inputs->input[i];
        if (!other->usable || other->kind != INPUT_KINETO) continue;
        for (size_t k = first_not_before(&ours, &other->process);
             other->usable && k < ours.count && process_order(&ours.input[k]->process, &other->process) == 0; k++) {
            const struct input *own = ours.input[k];
            if (!is_same_process(&own->process, &other->process)) continue;
            notes_add(&other->notes, UNUSABLE,
                      "is left out: %s is a trace of the same process %lld; give this file alone to read it", own->path,
                      (long long)own->process.pid);
            leave_out(other);
        }
    }
    free(ours.input);
}

/* The traces of one rank that stay, by time. They do not overlap. */
struct kept {
    struct input **input;
    size_t count;
};

/* Returns the index of the first trace that does not end before `time`. */
static size_t first_not_over(const struct kept *kept, int64_t time)
{
    size_t low = 0, high = kept->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (kept->input[middle]->process.last < time) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Handles a second Kineto trace of a rank. It may cover another part of the process's life; an overlap is a mistake
 * and would count everything twice. */
static void keep_or_leave_out(struct kept *kept, struct input *input, const struct input *first)
{
    const struct process *p = &input->process;
    size_t at = first_not_over(kept, p->first);
    if (p->has_time && at < kept->count && kept->input[at]->process.first <= p->last) {
        notes_add(&input->notes, UNUSABLE,
                  "is left out: %s is a trace of the same rank %lld and the same time; if the ranks differ, give "
                  "rank=N:%s",
                  kept->input[at]->path, (long long)p->rank, input->path);
        leave_out(input);
        return;
    }
    if (input != first)
        notes_add(&input->notes, NOTE, "is a second trace of rank %lld, from another time than %s", (long long)p->rank,
                  first->path);
    if (!p->has_time) return;
    memmove(&kept->input[at + 1], &kept->input[at], (kept->count++ - at) * sizeof(struct input *));
    kept->input[at] = input;
}

static void find_same_ranks(struct inputs *inputs)
{
    struct order others = sorted(inputs, INPUT_KINETO, by_rank);
    struct kept kept = {.input = mem_zero(others.count, sizeof *kept.input)};
    const struct input *first = NULL;
    for (size_t i = 0; i < others.count; i++) {
        if (others.input[i]->process.rank < 0) continue; /* processes without a rank are no copies of each other */
        if (!first || first->process.rank != others.input[i]->process.rank) {
            first = others.input[i];
            kept.count = 0;
        }
        keep_or_leave_out(&kept, others.input[i], first);
    }
    free(kept.input);
    free(others.input);
}

static bool is_same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* A process may be in several files of summaries. */
static void find_same_summaries(struct inputs *inputs)
{
    struct order all = sorted(inputs, INPUT_SUMMARY, by_process_and_start);
    const struct input *kept = NULL;
    for (size_t i = 0; i < all.count; i++) {
        const struct process *p = &all.input[i]->process, *before = kept ? &kept->process : NULL;
        bool same = before && process_order(p, before) == 0 && p->first == before->first && p->last == before->last &&
                    p->events == before->events && is_same_text(p->path, before->path) &&
                    is_same_text(p->host, before->host);
        if (!same) {
            kept = all.input[i];
            continue;
        }
        notes_add(&all.input[i]->notes, NOTE, "has a process that another summary has too: it counts once");
        leave_out(all.input[i]);
        all.input[i]->left_out = true; /* it is no loss */
    }
    free(all.input);
}

void inputs_leave_out_copies(struct inputs *inputs)
{
    find_same_summaries(inputs);
    find_same_processes(inputs);
    find_same_ranks(inputs);
}
