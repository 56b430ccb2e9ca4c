/* copies.c - finds inputs that are traces of the same process or rank. */
#include "model/copies.h"

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

static struct order sorted(struct inputs *inputs, bool kineto, int (*compare)(const void *, const void *))
{
    struct order order = {.input = mem_zero(inputs->count, sizeof *order.input)};
    for (size_t i = 0; i < inputs->count; i++)
        if (inputs->input[i].usable && inputs->input[i].is_kineto == kineto)
            order.input[order.count++] = &inputs->input[i];
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
    struct order ours = sorted(inputs, false, by_process);
    for (size_t i = 0; i < inputs->count; i++) {
        struct input *other = &inputs->input[i];
        if (!other->usable || !other->is_kineto) continue;
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

/* Handles a second Kineto trace of a rank. It may cover another part of the process's life; an overlap is a mistake
 * and would count everything twice. */
static void compare_ranks(struct input *earlier, struct input *later)
{
    const struct process *a = &earlier->process, *b = &later->process;
    bool apart = !a->has_time || !b->has_time || a->last < b->first || b->last < a->first;
    if (apart) {
        notes_add(&later->notes, NOTE, "is a second trace of rank %lld, from another time than %s", (long long)b->rank,
                  earlier->path);
        return;
    }
    notes_add(&later->notes, UNUSABLE,
              "is left out: %s is a trace of the same rank %lld and the same time; if the ranks differ, give rank=N:%s",
              earlier->path, (long long)b->rank, later->path);
    leave_out(later);
}

static void find_same_ranks(struct inputs *inputs)
{
    struct order others = sorted(inputs, true, by_rank);
    for (size_t first = 0, end; first < others.count; first = end) {
        int64_t rank = others.input[first]->process.rank;
        for (end = first + 1; end < others.count && others.input[end]->process.rank == rank;) end++;
        for (size_t i = first + 1; i < end; i++)
            for (size_t k = first; k < i && others.input[i]->usable; k++)
                if (others.input[k]->usable) compare_ranks(others.input[k], others.input[i]);
    }
    free(others.input);
}

void inputs_leave_out_copies(struct inputs *inputs)
{
    find_same_processes(inputs);
    find_same_ranks(inputs);
}
