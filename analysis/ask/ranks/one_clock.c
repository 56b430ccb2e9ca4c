/* one_clock.c - finds out how many clocks the processes have, and aligns them if there are several. */
#include "ask/ranks/one_clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/comm/comm_clock.h"
#include "ask/comm/parts.h"
#include "ask/comm/comm_rows.h"

const char *const clock_source_names[NR_CLOCK_SOURCES] = {
    [CLOCK_OF_DAY] = "time of day", [CLOCK_COLLECTIVES] = "collectives", [CLOCK_UNKNOWN] = "unknown"};

static bool is_on_axis(const struct process *p)
{
    return p->clock.has_axis && p->has_time;
}

static int64_t first_moment(const struct process *p)
{
    return is_of_kineto(p) ? MIN(p->first, p->earliest) : p->first;
}

/* ---- the clocks there are ---- */

static bool is_same_host(const struct process *a, const struct process *b)
{
    return strcmp(a->host ? a->host : "", b->host ? b->host : "") == 0;
}

static int by_host(const void *a, const void *b)
{
    const struct process *x = *(const struct process *const *)a, *y = *(const struct process *const *)b;
    return strcmp(x->host ? x->host : "", y->host ? y->host : "");
}

/* Counts the hosts whose processes have times of day, and adds each process without them as a clock of its own. */
static size_t count_clocks(const struct selection *chosen)
{
    const struct process **known = mem_zero(chosen->processes, sizeof *known);
    size_t count = 0, clocks = 0;
    for (size_t i = 0; i < chosen->processes; i++)
        if (is_on_axis(chosen->process[i])) known[count++] = chosen->process[i];
        else clocks++;
    if (count) qsort(known, count, sizeof *known, by_host);
    for (size_t i = 0; i < count; i++) clocks += !i || !is_same_host(known[i - 1], known[i]);
    free(known);
    return clocks;
}

/* ---- reading the collectives ---- */

/* The inputs, read again for their collectives. */
struct meetings {
    const struct options *options; /* without filters */
    struct inputs inputs;
    struct model model;
    void **taken; /* by input: a struct comm_taken */
    size_t most;  /* collectives to keep of an input */
};

static int parts_by_time(const void *a, const void *b)
{
    const struct comm_part *x = a, *y = b;
    int64_t first = x->call_start != UNKNOWN_TIME ? x->call_start : x->start;
    int64_t second = y->call_start != UNKNOWN_TIME ? y->call_start : y->start;
    return by_number(first, second);
}

/* Takes the earliest collectives of a process. */
static void take_readings(void *argument, const struct process *process)
{
    struct meetings *m = argument;
    struct selection alone;
    selection_init(&alone, m->options, NULL, &m->model);
    selection_set(&alone, process);
    struct comm_taken *taken = comm_reduction.take(scope_begin(&alone, 0));
    struct comm_summary *parts = &taken->parts;
    if (parts->count > m->most) {
        qsort(parts->part, parts->count, sizeof *parts->part, parts_by_time);
        parts->count = m->most;
        comm_fit(parts);
    }
    if (m->taken[process->input])
        comm_reduction.free(m->taken[process->input]); /* of an attempt that ran out of memory */
    m->taken[process->input] = taken;
    selection_free(&alone);
}

static void read_again(struct meetings *m, const struct selection *chosen, const struct options *options)
{
    *m = (struct meetings){.options = options, .most = MAX(MOST_COLLECTIVES / chosen->processes, 64)};
    m->taken = mem_zero(chosen->processes, sizeof *m->taken);
    model_init(&m->model);
    for (size_t i = 0; i < chosen->processes; i++)
        inputs_add_again(&m->inputs, &chosen->inputs->input[chosen->process[i]->input]);
    inputs_read(&m->inputs, &m->model,
                &(struct reading){.needs = {.collectives = true}, .jobs = 1, .take = take_readings, .argument = m});
}

static void forget_again(struct meetings *m, size_t inputs)
{
    for (size_t i = 0; i < inputs; i++)
        if (m->taken[i]) comm_reduction.free(m->taken[i]);
    free(m->taken);
    inputs_free(&m->inputs);
    model_free(&m->model);
}

/* ---- from clocks to processes ---- */

/* Returns the fits of the clocks of processes, by rank; NULL: the process has no aligned clock. */
static const struct clock_fit **fits_of(const struct selection *chosen, const struct meetings *m,
                                        const struct comm_summary *parts, const struct clock_fits *fits)
{
    const struct clock_fit **fit = mem_zero(chosen->processes, sizeof *fit);
    struct map clock_of = {0}; /* by rank */
    for (size_t i = 0; i < parts->count; i++) map_put(&clock_of, (uint64_t)parts->part[i].rank, parts->part[i].clock);
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct comm_taken *taken = m->taken[i];
        uint32_t at =
            taken && taken->has_collectives ? map_get(&clock_of, (uint64_t)chosen->process[i]->rank) : MAP_NONE;
        if (at != MAP_NONE && at < fits->count && fits->clock[at].aligned) fit[i] = &fits->clock[at];
    }
    map_free(&clock_of);
    return fit;
}

/* Gives processes without collectives the fit of their host. */
static void share_fits(const struct selection *chosen, const struct clock_fit **fit)
{
    struct names hosts;
    struct map known = {0}; /* by host: a process with a fit */
    names_init(&hosts);
    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < chosen->processes; i++) {
            const struct process *p = chosen->process[i];
            const char *host = p->host ? p->host : "";
            if (!is_on_axis(p)) continue;
            uint32_t name = names_add(&hosts, host, strlen(host)), other = map_get(&known, name);
            if (pass == 0 && fit[i]) map_put(&known, name, (uint32_t)i);
            if (pass == 1 && !fit[i] && other != MAP_NONE) fit[i] = fit[other];
        }
    }
    map_free(&known);
    names_free(&hosts);
}

static void take_fits(struct one_clock *clock, const struct selection *chosen, const struct clock_fit **fit)
{
    for (size_t i = 0; i < chosen->processes; i++) {
        if (!fit[i]) continue;
        clock->process[i].shift = fit[i]->shift;
        bool is_reference = !fit[i]->collectives;
        if (!is_reference || !is_on_axis(chosen->process[i])) clock->process[i].source = CLOCK_COLLECTIVES;
    }
}

static void align(struct one_clock *clock, const struct selection *chosen)
{
    const struct options plain = {.jobs = chosen->options->jobs, .from = NAN, .to = NAN};
    struct meetings m;
    struct selection all;
    struct comm_job job;
    struct clock_fits fits = {0};
    struct comm_rows rows = {0};
    read_again(&m, chosen, &plain);
    selection_init(&all, &plain, &m.inputs, &m.model);
    void **taken = mem_zero(all.processes, sizeof *taken);
    for (size_t i = 0; i < all.processes; i++) taken[i] = m.taken[all.process[i]->input];
    comm_collect(&job, &all, taken);
    comm_align(&fits, &job.summary, job.clocks);
    if (fits.aligned) {
        comm_rows_make(&rows, &job.summary, NULL);
        clock->residual = rows.residual;
        const struct clock_fit **fit = fits_of(chosen, &m, &job.summary, &fits);
        share_fits(chosen, fit);
        take_fits(clock, chosen, fit);
        free(fit);
    }
    clock->aligned = fits.aligned;
    comm_rows_free(&rows);
    clock_fits_free(&fits);
    comm_job_free(&job);
    free(taken);
    selection_free(&all);
    forget_again(&m, chosen->processes);
}

/* Lets each process whose place is unknown begin where the others begin. Traces that all count from boot and overlap
 * are of one boot, and keep their times. */
static void place_unknown(struct one_clock *clock, const struct selection *chosen)
{
    const struct process *first = NULL;
    bool any = false, overlap = true;
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct process *p = chosen->process[i];
        bool placed = clock->process[i].source != CLOCK_OF_DAY || is_on_axis(p);
        if (placed && p->has_time) {
            int64_t moment = clock_shifted(&clock->process[i].shift, first_moment(p));
            clock->start = any ? MIN(clock->start, moment) : moment;
            any = true;
        } else if (p->has_time) {
            clock->process[i].source = CLOCK_UNKNOWN;
            first = first ? first : p;
            overlap &= p->first <= first->last && p->last >= first->first;
        }
    }
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct process *p = chosen->process[i];
        if (clock->process[i].source != CLOCK_UNKNOWN) continue;
        clock->unknown++;
        if (any) clock->process[i].shift.offset = clock->start - first_moment(p);
        else if (!overlap) clock->process[i].shift.offset = first->first - first_moment(p);
    }
    for (size_t i = 0; i < chosen->processes && !any; i++) {
        int64_t moment = clock_shifted(&clock->process[i].shift, first_moment(chosen->process[i]));
        if (chosen->process[i]->has_time)
            clock->start = clock->start == UNKNOWN_TIME ? moment : MIN(clock->start, moment);
    }
    clock->start = clock->start == UNKNOWN_TIME ? 0 : clock->start;
}

void one_clock_find(struct one_clock *clock, const struct selection *chosen)
{
    *clock = (struct one_clock){.residual = UNKNOWN_TIME, .start = UNKNOWN_TIME};
    clock->process = mem_zero(chosen->processes, sizeof *clock->process);
    clock->clocks = count_clocks(chosen);
    if (clock->clocks > 1) align(clock, chosen);
    place_unknown(clock, chosen);
}

void one_clock_free(struct one_clock *clock)
{
    free(clock->process);
    *clock = (struct one_clock){0};
}
