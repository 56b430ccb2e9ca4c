/* health.c - sums up the samples of a rank's devices by step. */
#include "ask/comm/health.h"

#include <stdlib.h>
#include <string.h>

enum { NEAR_NS = 1000000000 };

/* ---- sums ---- */

static void add_sample(struct health_sum *sum, const struct device_sample *sample)
{
    sum->samples++;
    if (sample->known & TFI_SAMPLE_SM_CLOCK) {
        sum->clock_least = sum->clocks ? MIN(sum->clock_least, sample->sm_mhz) : sample->sm_mhz;
        sum->clock_sum += sample->sm_mhz;
        sum->clocks++;
    }
    if (sample->known & TFI_SAMPLE_POWER) {
        sum->power_sum += sample->power_mw;
        sum->powers++;
    }
    if (sample->known & TFI_SAMPLE_TEMPERATURE) {
        sum->temperature_most =
            sum->temperatures ? MAX(sum->temperature_most, sample->temperature) : sample->temperature;
        sum->temperatures++;
    }
    if (sample->known & TFI_SAMPLE_REASONS) {
        sum->reasons |= sample->reasons;
        sum->reasons_known++;
    }
}

static void add_sum(struct health_sum *to, const struct health_sum *from)
{
    if (from->clocks) to->clock_least = to->clocks ? MIN(to->clock_least, from->clock_least) : from->clock_least;
    if (from->temperatures)
        to->temperature_most =
            to->temperatures ? MAX(to->temperature_most, from->temperature_most) : from->temperature_most;
    to->samples += from->samples;
    to->clocks += from->clocks;
    to->clock_sum += from->clock_sum;
    to->powers += from->powers;
    to->power_sum += from->power_sum;
    to->temperatures += from->temperatures;
    to->reasons_known += from->reasons_known;
    to->reasons |= from->reasons;
}

static void append(struct healths *healths, const struct health *one)
{
    healths->health = mem_grow(healths->health, &healths->capacity, healths->count + 1, sizeof *healths->health);
    healths->health[healths->count++] = *one;
}

/* ---- one process ---- */

/* The samples of one process that count. */
struct taking {
    const struct process *process;
    const struct step_list *steps;
    int64_t first, last; /* of its collectives */
    struct map devices;  /* whose kernels are collectives */
};

static bool counts(const struct taking *taking, const struct device_sample *sample)
{
    return !taking->devices.count || map_get(&taking->devices, sample->device) != MAP_NONE;
}

static void look_at_collectives(struct taking *taking)
{
    const struct process *p = taking->process;
    taking->first = INT64_MAX;
    taking->last = INT64_MIN;
    for (size_t i = 0; i < p->collectives.count; i++) {
        const struct collective *c = &p->collectives.collective[i];
        int64_t begin = c->call_start != UNKNOWN_TIME ? c->call_start : c->start;
        uint32_t lane = c->work != NO_WORK ? p->works.lane[c->work] : NO_PLACE;
        if (begin != UNKNOWN_TIME) taking->first = MIN(taking->first, begin);
        if (c->end != UNKNOWN_TIME) taking->last = MAX(taking->last, c->end);
        if (lane != NO_PLACE) map_put(&taking->devices, (uint64_t)p->lane[lane].device, 1);
    }
}

/* Adds each sample to its step in `of_step`, or to `outside`. */
static void add_samples(const struct taking *taking, struct health_sum *of_step, struct health_sum *outside)
{
    const struct process *p = taking->process;
    for (size_t i = 0; i < p->samples; i++) {
        const struct device_sample *sample = &p->sample[i];
        if (!counts(taking, sample)) continue;
        size_t step = step_list_at(taking->steps, sample->time);
        if (step < taking->steps->count) add_sample(&of_step[step], sample);
        else if (sample->time >= taking->first && sample->time <= taking->last) add_sample(outside, sample);
    }
}

/* Gives each step without a sample its neighbours. Samples and steps are sorted by time. */
static void add_neighbours(const struct taking *taking, struct health_sum *of_step)
{
    const struct process *p = taking->process;
    const struct device_sample *before = NULL;
    size_t at = 0;
    for (size_t i = 0; i < taking->steps->count; i++) {
        size_t range = taking->steps->range[i];
        int64_t start = p->ranges.start[range], end = p->ranges.end[range];
        for (; at < p->samples && p->sample[at].time < start; at++)
            if (counts(taking, &p->sample[at])) before = &p->sample[at];
        if (of_step[i].samples) continue;
        size_t after = at;
        while (after < p->samples && !counts(taking, &p->sample[after])) after++;
        at = after;
        if (before && add_ns(before->time, NEAR_NS) >= start) add_sample(&of_step[i], before);
        if (after < p->samples && add_ns(end, NEAR_NS) >= p->sample[after].time)
            add_sample(&of_step[i], &p->sample[after]);
    }
}

void health_take(struct healths *healths, const struct step_list *steps)
{
    const struct process *process = steps->process;
    struct taking taking = {.process = process, .steps = steps};
    struct health_sum outside = {0}, *of_step;
    if (!process->samples) return;
    of_step = mem_zero(steps->count, sizeof *of_step);
    look_at_collectives(&taking);
    add_samples(&taking, of_step, &outside);
    add_neighbours(&taking, of_step);
    for (size_t i = 0; i < steps->count; i++)
        if (of_step[i].samples)
            append(healths,
                   &(struct health){process->rank, (int64_t)process->ranges.step[steps->range[i]], of_step[i]});
    if (outside.samples) append(healths, &(struct health){process->rank, UNKNOWN_NUMBER, outside});
    map_free(&taking.devices);
    free(of_step);
}

/* ---- all processes ---- */

void health_add(struct healths *all, const struct healths *one)
{
    for (size_t i = 0; i < one->count; i++) append(all, &one->health[i]);
}

static int by_rank_and_step(const void *a, const void *b)
{
    const struct health *x = a, *y = b;
    return x->rank != y->rank ? by_number(x->rank, y->rank) : by_number(x->step, y->step);
}

void health_join(struct healths *healths)
{
    size_t kept = 0;
    struct health *h = healths->health;
    if (healths->count) qsort(h, healths->count, sizeof *h, by_rank_and_step);
    for (size_t i = 0; i < healths->count; i++)
        if (kept && by_rank_and_step(&h[kept - 1], &h[i]) == 0) add_sum(&h[kept - 1].sum, &h[i].sum);
        else h[kept++] = h[i];
    healths->count = kept;
}

const struct health_sum *health_find(const struct healths *healths, int64_t rank, int64_t step)
{
    const struct health wanted = {.rank = rank, .step = step};
    const struct health *found =
        healths->count ? bsearch(&wanted, healths->health, healths->count, sizeof *healths->health, by_rank_and_step)
                       : NULL;
    return found ? &found->sum : NULL;
}

void health_free(struct healths *healths)
{
    free(healths->health);
    *healths = (struct healths){0};
}
