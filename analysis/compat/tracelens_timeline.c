/* tracelens_timeline.c - answers timeline, kinds and overlap by the rules of TraceLens's GPUEventAnalyser.
 *
 * A set of memory is computation. Only device work to which an arrow leads from its call counts, and all work of a graph's
 * launch: ROCm has no arrow from a call of hipMemset. In a trace without arrows all work counts whose call is there.
 * TraceLens adds ts and dur as
 * doubles of microseconds, whose last place is 0.2 to 2 ns in a real trace, and does so thousands of times. The same
 * doubles here give equal results. They are exact in units of 2^-20 us, or in larger units in a trace of months.
 */
#include <math.h>
#include <string.h>

#include "commands/device/answers.h"
#include "compat/file_us.h"
#include "compat/tracelens.h"
#include "model/communication.h"

static enum work_kind kind_of(enum event_class event_class, const struct name *name)
{
    if (!IS_WORK(event_class)) return WORK_OTHER;
    if (event_class == CLASS_MEMCPY) return WORK_MEMORY;
    return is_communication(name->text, name->length, true) ? WORK_COMMUNICATION : WORK_COMPUTATION;
}

const struct kind_rules tracelens_kind_rules = {kind_of, false};

/* ---- one process ---- */

struct context {
    const struct selection *chosen;
    const struct process *process;
    struct map calls; /* the correlation ids of calls */
    double units;     /* per microsecond */
};

/* Returns the ids of the calls whose work counts. */
static struct map called(const struct process *process, const struct names *names)
{
    const struct spans *s = &process->spans;
    struct map map = {0};
    for (size_t i = 0; i < s->table.count; i++) {
        if (s->event_class[i] != CLASS_API || s->id[i] == NO_ID) continue;
        const char *name = names_get(names, s->name[i])->text;
        bool is_graph = strcmp(name, "cudaGraphLaunch") == 0 || strcmp(name, "hipGraphLaunch") == 0;
        if (is_graph || !process->arrows.count || map_get(&process->arrows, s->id[i]) != MAP_NONE)
            map_put(&map, s->id[i], 1);
    }
    return map;
}

/* Moves a file's time to the axis that all ranks share; each file has its own base. */
static double from_start(const struct selection *chosen, const struct process *process, double us)
{
    return us - file_us(process, chosen->model->start);
}

/* Returns the number of units per microsecond: as many as fit. */
static double units_for(const struct selection *chosen)
{
    double units = 1 << 20, far = (double)add_ns(chosen->last, -chosen->model->start) / 1000;
    while (far * units > 0x1p62) units /= 2;
    return units;
}

static bool counts(void *context, size_t work)
{
    const struct context *c = context;
    return map_get(&c->calls, c->process->works.correlation[work]) != MAP_NONE;
}

static struct interval times(void *context, struct interval when)
{
    const struct context *c = context;
    double us = file_us(c->process, when.start);
    double start = from_start(c->chosen, c->process, us);
    double end = from_start(c->chosen, c->process, us + (double)(when.end - when.start) / 1000);
    return (struct interval){llround(start * c->units), llround(end * c->units)};
}

static void *reduce_tracelens_timeline(struct scope *scope)
{
    static const struct time_rules rules = {&tracelens_kind_rules, counts, times};
    struct context context = {scope->chosen, scope->process, called(scope->process, &scope->chosen->model->names),
                              units_for(scope->chosen)};
    struct rank_time *time = rank_time_of(scope, &rules, &context);
    map_free(&context.calls);
    return time;
}

struct needs tracelens_needs(const struct options *options)
{
    return needs_union(timeline_needs(options), (struct needs){.launches = true, .arrows = true});
}

/* The doubles count from the first record of all inputs. */
static bool stands_alone(const struct options *options)
{
    (void)options;
    return false;
}

const struct reduction tracelens_works = {stands_alone, reduce_tracelens_timeline, rank_time_drop, NULL};

/* ---- the answers ---- */

static bool begin_timeline(struct session *session, struct timeline *timeline)
{
    if (!session_ask(session, STYLE_TABLE)) return false;
    timeline_collect(timeline, &session->chosen, session_summaries(session));
    timeline->ns = 1000 / units_for(&session->chosen);
    return true;
}

void tracelens_timeline(struct session *session)
{
    struct timeline timeline;
    if (!begin_timeline(session, &timeline)) return;
    timeline_answer(session, &timeline, emit_timeline);
    timeline_free(&timeline);
}

void tracelens_overlap(struct session *session)
{
    struct timeline timeline;
    if (!begin_timeline(session, &timeline)) return;
    timeline_answer(session, &timeline, emit_overlap);
    timeline_free(&timeline);
}

void tracelens_kinds(struct session *session)
{
    int64_t total[INTERVALS_COMBINATIONS] = {0};
    struct timeline timeline;
    if (!begin_timeline(session, &timeline)) return;
    kinds_add(&timeline, total);
    kinds_answer(session, &timeline, total, NULL);
    timeline_free(&timeline);
}
