/* each.c - hands over the processes of a session one after the other, on one clock. */
#include "commands/export/each.h"

#include <stdlib.h>
#include <string.h>

#include "write/export/export.h"
#include "write/export/export_kineto.h"
#include "write/export/export_tfr.h"

enum { JOBS = 4 }; /* each reading thread has buffers of its own */

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

static void find_order(struct each *each)
{
    struct selection *chosen = &each->session->chosen;
    each->order = mem_zero(chosen->processes, sizeof *each->order);
    for (size_t i = 0; i < chosen->processes; i++) each->order[i] = i;
    qsort_r(each->order, chosen->processes, sizeof *each->order, by_rank_and_host, chosen);
}

/* ---- messages ---- */

static void say_clocks(const struct each *each)
{
    const struct one_clock *clock = &each->clock;
    const struct selection *chosen = &each->session->chosen;
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
    for (size_t i = 0; i < chosen->processes && clock->unknown && chosen->processes > 1; i++) {
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
static void say_jobs(const struct each *each)
{
    const struct selection *chosen = &each->session->chosen;
    const struct process *first = NULL;
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct process *p = chosen->process[i];
        if (p->world < 0) continue;
        first = first ? first : p;
        if (p->world == first->world) continue;
        complain(p->path,
                 "is of a world of %lld ranks, and %s of one of %lld: they are of several jobs, which stand side by "
                 "side in the file",
                 (long long)p->world, first->path, (long long)first->world);
        break;
    }
}

static int by_first(const void *a, const void *b)
{
    const struct process *x = *(const struct process *const *)a, *y = *(const struct process *const *)b;
    return by_number(x->first, y->first);
}

static void say_gap(const struct each *each)
{
    const struct selection *chosen = &each->session->chosen;
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

/* ---- one process ---- */

/* True if a filter or a capture needs the contents of a trace of another program. */
static bool needs_contents(const struct session *session)
{
    const struct options *o = &session->options;
    return session->captures.patterns || o->stage.count || o->step.count || o->cycle.count || o->device.count ||
           o->stream.count;
}

/* Loads a process. The times of a trace of ours are shifted while it is loaded. */
static bool load(const struct each *each, const struct process *p, const struct clock_shift *shift, session_taker *take,
                 void *argument)
{
    struct again again = {is_of_others(p) ? export_kineto_needs : export_tfr_needs, *shift, each->start};
    again.needs.stream = STREAM_PART;
    if (is_of_others(p)) again.start = add_ns(each->start, -add_ns(clock_shifted(shift, each->start), -each->start));
    return session_read_again(each->session, p, &again, take, argument);
}

void each_process(const struct each *each, size_t place, session_taker *take, void *argument)
{
    const struct selection *chosen = &each->session->chosen;
    const struct process *p = chosen->process[place];
    bool good = is_of_others(p) && !needs_contents(each->session)
                    ? take(argument, chosen, p)
                    : load(each, p, &each->clock.process[place].shift, take, argument);
    if (good) return;
    complain(p->path, "cannot be read a second time");
    session_spoil(each->session);
}

/* ---- one file ---- */

static bool write_process(void *argument, const struct selection *chosen, const struct process *p)
{
    struct each_file *file = argument;
    return export_events(chosen, p, file->artefact, &file->taker, &file->events);
}

uint64_t each_write(const struct each *each, struct each_file file)
{
    const struct selection *chosen = &each->session->chosen;
    for (size_t i = 0; i < chosen->processes && !*file.failed; i++) {
        size_t place = each->order[i];
        bool has_own_times = is_of_others(chosen->process[place]);
        *file.shift = has_own_times ? each->clock.process[place].shift : (struct clock_shift){0};
        each_process(each, place, write_process, &file);
    }
    return file.events;
}

/* ---- all of them ---- */

struct needs export_needs(const struct options *options)
{
    (void)options;
    return needs_union(export_tfr_needs, (struct needs){.captures = true, .stream = STREAM_PART});
}

bool each_load(struct session *session)
{
    session->options.jobs = session->options.jobs ? session->options.jobs : JOBS;
    return session_describe(session);
}

static void each_free(struct each *each)
{
    one_clock_free(&each->clock);
    free(each->order);
}

bool each_begin(struct each *each, struct session *session)
{
    *each = (struct each){.session = session};
    one_clock_find(&each->clock, &session->chosen);
    each->start = each->clock.aligned || each->clock.unknown ? each->clock.start : session->model.start;
    find_order(each);
    say_jobs(each);
    say_gap(each);
    say_clocks(each);
    if (out_open(&session->out, session->options.output)) return true;
    session->status = STATUS_NOTHING;
    each_free(each);
    return false;
}

void each_end(struct each *each, uint64_t events)
{
    session_end(each->session, events || !is_filtered(&each->session->options));
    each_free(each);
}
