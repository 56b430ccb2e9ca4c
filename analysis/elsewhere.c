/* elsewhere.c - when another profiler had the device to itself: records of its coming and going, made into stretches.
 *
 * A stretch without an end lasts to the end of the process. Records may come from anywhere: one that says what is known
 * already changes nothing.
 */
#include "elsewhere.h"

#include <stdlib.h>

#include "load.h"

static int by_time(const void *a, const void *b)
{
    const struct elsewhere *x = a, *y = b;
    uint64_t time_x = (uint64_t)x->from, time_y = (uint64_t)y->from;
    return time_x != time_y ? (time_x > time_y) - (time_x < time_y) : x->begins - y->begins;
}

void load_elsewheres(struct load *load)
{
    struct process *p = load->process;
    const uint64_t *state = load_column(load, COL_elsewhere_state), *time = load_column(load, COL_elsewhere_time);
    const uint64_t *who = load_column(load, COL_elsewhere_who);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        p->elsewhere = mem_grow(p->elsewhere, &p->elsewhere_capacity, p->elsewheres + 1, sizeof *p->elsewhere);
        p->elsewhere[p->elsewheres++] =
            (struct elsewhere){.from = (int64_t)time[i], .who = load_name(load, who[i]), .begins = state[i] != 0};
    }
}

void load_elsewheres_end(struct load *load)
{
    if (load->process->elsewheres) {
        qsort(load->process->elsewhere, load->process->elsewheres, sizeof *load->process->elsewhere, by_time);
    }
}

void elsewheres_pair(struct process *process)
{
    size_t count = 0;
    bool open = false;
    for (size_t i = 0; i < process->elsewheres; i++) {
        struct elsewhere record = process->elsewhere[i];
        if (record.begins == open) {
            continue;
        }
        open = record.begins;
        if (open) {
            record.to = INT64_MAX;
            process->elsewhere[count++] = record;
        } else {
            process->elsewhere[count - 1].to = record.from;
        }
    }
    process->elsewheres = count;
}

uint32_t elsewhere_between(const struct process *process, int64_t start, int64_t end)
{
    size_t low = 0, high = process->elsewheres;
    while (low < high) { /* the first one that ends behind the start */
        size_t middle = (low + high) / 2;
        if (process->elsewhere[middle].to > start) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low < process->elsewheres && process->elsewhere[low].from < end ? process->elsewhere[low].who : NAME_NONE;
}
