/* merge.c - writes one timeline of many ranks and profilers.
 *
 * The inputs are read twice: first to learn their ranks, hosts and times, then one after the other to write them. A
 * Kineto trace is never in memory, unless a filter needs its operators; a trace of ours is while it is written. With
 * several clocks a third reading finds their collectives (ask/one_clock.h).
 */
#include "commands/merge.h"

#include <stdlib.h>
#include <string.h>

#include "write/export_kineto.h"
#include "write/export_tfr.h"
#include "write/merged.h"

enum { JOBS = 4 }; /* each reading thread has buffers of its own */

struct merge {
    struct session *session;
    const char *artefact;
    struct one_clock clock;
    struct merged file;
    size_t *order;
    int64_t start; /* from which --from and --to count */
    uint64_t events, invalid;
};

/* ---- the order of the rows ---- */

static int by_rank_and_host(const void *a, const void *b, void *context)
{
    const struct selection *chosen = context;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    const struct process *p = chosen->process[x], *q = chosen->process[y];
    int order = by_number(p->rank, q->rank);
    if (!order) order = strcmp(p->host ? p->host : "", q->host ? q->host : "");
    if (!order) order = by_number(p->pid, q->pid);
    return order ? order : by_number((int64_t)x, (int64_t)y);
}

static void find_order(struct merge *merge)
{
    struct selection *chosen = &merge->session->chosen;
    merge->order = mem_zero(chosen->processes, sizeof *merge->order);
    for (size_t i = 0; i < chosen->processes; i++) merge->order[i] = i;
    qsort_r(merge->order, chosen->processes, sizeof *merge->order, by_rank_and_host, chosen);
}

/* ---- messages ---- */

static void say_clocks(const struct merge *merge)
{
    const struct one_clock *clock = &merge->clock;
    const struct selection *chosen = &merge->session->chosen;
    size_t kept = clock->clocks - clock->aligned - MIN(clock->unknown, clock->clocks);
    if (clock->aligned) {
        struct text residual = {0};
        human_time(&residual, MAX(clock->residual, 0));
        complain(NULL,
                 "%zu clocks are aligned to that of another rank by the ends of collectives, which lie %s apart in the "
                 "median",
                 clock->aligned, residual.data);
        text_free(&residual);
    }
    if (clock->clocks > 1 && kept > 1)
        complain(NULL,
                 "%zu hosts share too few collectives: their times of day are taken as they are, and differ by what "
                 "their clocks differ",
                 kept);
    for (size_t i = 0; i < chosen->processes && clock->unknown; i++) {
        if (clock->process[i].source != CLOCK_UNKNOWN) continue;
        complain(chosen->process[i]->path,
                 "has no time of day (baseTimeNanoseconds) and shares too few collectives with the others%s: %s",
                 clock->unknown > 1 ? ", as others do" : "",
                 clock->process[i].shift.offset ? "it begins where the others begin"
                                                : "its times are taken as they are");
        break;
    }
}

/* Reports traces that hardly belong together. */
static void say_jobs(const struct merge *merge)
{
    const struct selection *chosen = &merge->session->chosen;
    const struct process *first = NULL;
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct process *p = chosen->process[i];
        if (p->world < 0) continue;
        first = first ? first : p;
        if (p->world == first->world) continue;
        complain(p->path,
                 "is of a world of %lld ranks, and %s of one of %lld: they are of several jobs, which stand side by "
                 "side in the merged trace",
                 (long long)p->world, first->path, (long long)first->world);
        break;
    }
}

static int by_first(const void *a, const void *b)
{
    const struct process *x = *(const struct process *const *)a, *y = *(const struct process *const *)b;
    return by_number(x->first, y->first);
}

static void say_gap(const struct merge *merge)
{
    const struct selection *chosen = &merge->session->chosen;
    const struct process **p = mem_zero(chosen->processes, sizeof *p);
    size_t count = 0;
    for (size_t i = 0; i < chosen->processes; i++)
        if (chosen->process[i]->has_time && chosen->process[i]->clock.has_axis) p[count++] = chosen->process[i];
    if (count) qsort(p, count, sizeof *p, by_first);
    int64_t last = count ? p[0]->last : 0;
    for (size_t i = 1; i < count; i++) {
        if (p[i]->first > last && p[i]->rank != p[i - 1]->rank) {
            struct text gap = {0};
            human_time(&gap, add_ns(p[i]->first, -last));
            complain(p[i]->path, "begins %s after the end of the traces before it: it may be of another run", gap.data);
            text_free(&gap);
            break;
        }
        last = MAX(last, p[i]->last);
    }
    free(p);
}

static void say_left_out(struct merge *merge)
{
    if (merge->invalid) {
        complain(NULL, "%llu events are not valid JSON and were left out", (unsigned long long)merge->invalid);
        session_spoil(merge->session);
    }
    if (merge->file.lost_members) {
        complain(NULL,
                 "%llu members beside the events were left out: they are not valid JSON, or more than 16 MB in all",
                 (unsigned long long)merge->file.lost_members);
        session_spoil(merge->session);
    }
}

/* ---- one process ---- */

static void write_tfr(struct merge *merge, size_t place, const struct selection *chosen)
{
    struct tfr_export asked = {.process = chosen->process,
                               .processes = 1,
                               .out = &merge->session->out,
                               .artefact = merge->artefact,
                               .of_name = chosen->stages};
    merge->file.one[place].events = export_tfr_merged(&asked, chosen, &merge->file, place);
}

static bool write_kineto(struct merge *merge, size_t place, const struct selection *chosen, const struct process *p)
{
    struct event_taker taker = rewriting_taker(&merge->file, place);
    uint64_t events = 0;
    return export_kineto_events(chosen, p, &taker, &events);
}

/* Loads a process, and writes it. The times of a trace of ours are shifted while it is loaded. */
static bool load_and_write(struct merge *merge, size_t place, const struct process *p)
{
    const struct input *input = &merge->session->inputs.input[p->input];
    const struct clock_shift *shift = &merge->file.one[place].clock.shift;
    struct inputs one = {0};
    struct model model;
    struct selection chosen = {0};
    model_init(&model);
    inputs_add_again(&one, input)->shift = *shift;
    const struct reading reading = {
        .want = is_of_kineto(p) ? WANT_FOR_EXPORT : WANT_FOR_EXPORT_TFR, .jobs = 1, .keep = true};
    inputs_read(&one, &model, &reading);
    selection_init(&chosen, &merge->session->options, &one, &model);
    model.start = merge->start;
    if (is_of_kineto(p)) model.start = add_ns(merge->start, -add_ns(clock_shifted(shift, merge->start), -merge->start));
    bool good = chosen.processes == 1;
    if (good && is_of_kineto(chosen.process[0])) good = write_kineto(merge, place, &chosen, chosen.process[0]);
    else if (good) write_tfr(merge, place, &chosen);
    selection_free(&chosen);
    inputs_free(&one);
    model_free(&model);
    return good;
}

static void write_one(struct merge *merge, size_t place)
{
    const struct selection *chosen = &merge->session->chosen;
    const struct process *p = merge->file.one[place].process;
    bool filtered = chosen->options->stage.count || chosen->options->step.count || chosen->options->cycle.count ||
                    chosen->options->device.count || chosen->options->stream.count;
    bool good = is_of_kineto(p) && !filtered ? write_kineto(merge, place, chosen, p) : load_and_write(merge, place, p);
    if (!good) {
        complain(p->path, "cannot be read a second time");
        session_spoil(merge->session);
    }
    merge->events += merge->file.one[place].events;
    merge->invalid += merge->file.one[place].invalid;
}

/* ---- the answer ---- */

static void write_all(struct merge *merge)
{
    const struct selection *chosen = &merge->session->chosen;
    merged_begin(&merge->file, &merge->session->out, merge->artefact, chosen, &merge->clock, merge->order);
    for (size_t i = 0; i < merge->file.count && !merge->session->out.failed; i++) write_one(merge, i);
    merged_end(&merge->file, chosen, &merge->clock);
    say_left_out(merge);
    merged_free(&merge->file);
}

bool merge_load(struct session *session)
{
    session->options.jobs = session->options.jobs ? session->options.jobs : JOBS;
    return session_load(session, 0, false);
}

void merge_write(struct session *session, const char *artefact)
{
    struct merge merge = {.session = session, .artefact = artefact};
    const struct options *options = &session->options;
    one_clock_find(&merge.clock, &session->chosen);
    merge.start = merge.clock.aligned || merge.clock.unknown ? merge.clock.start : session->model.start;
    find_order(&merge);
    say_jobs(&merge);
    say_gap(&merge);
    say_clocks(&merge);
    if (out_open(&session->out, options->output)) {
        write_all(&merge);
        session_end(session, merge.events || !is_filtered(options));
    } else {
        session->status = 1;
    }
    one_clock_free(&merge.clock);
    free(merge.order);
}

void cmd_merge(struct session *session)
{
    if (merge_load(session)) merge_write(session, "merge");
}
