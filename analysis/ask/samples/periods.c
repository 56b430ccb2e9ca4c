/* periods.c - walks over the sampled periods of a process that the filters choose, with what is known of each.
 *
 * A period counts as what the look at its end found: stack, stage and system call. A thread that does not run keeps them, so
 * only periods in which it ran are approximate. Its processor time is another matter: a thread that waits at the end has used
 * it before, in other code.
 * The device waits for a thread while it has no work and that thread launches the next.
 */
#include "ask/samples/periods.h"

#include <stdio.h>
#include <stdlib.h>

static const struct call {
    uint32_t number;
    const char *name;
    bool idle;
} calls[] = {
#define CALL(number, name, idle) {number, name, idle},
#include "ask/samples/system_calls.def"
};

static const struct call *find_call(uint32_t number)
{
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        if (calls[i].number == number) return &calls[i];
    return NULL;
}

const char *sampled_wait(const struct looks *looks, size_t look, char room[24])
{
    uint32_t call = looks->call[look];
    if (looks->flags[look] & TFI_SAMPLED_WANTS) return "GIL";
    if (looks->flags[look] & TFI_SAMPLED_RUNNABLE) return "processor";
    if (!call) return NULL;
    const struct call *known = find_call(call - 1);
    if (known) return known->name;
    snprintf(room, 24, "system call %u", call - 1);
    return room;
}

/* True if the thread waited, and not for what it has to do. */
static bool is_idle(const struct looks *looks, size_t look)
{
    if (looks->flags[look] & (TFI_SAMPLED_WANTS | TFI_SAMPLED_RUNNABLE) || !looks->call[look]) return false;
    const struct call *known = find_call(looks->call[look] - 1);
    return known && known->idle;
}

/* ---- the device's gaps ---- */

struct gap {
    int64_t start, end, before; /* before: of all gaps up to this one's start */
    uint32_t thread;            /* that launched the work at its end; NO_THREAD: unknown */
};

struct gaps {
    struct gap *gap;
    size_t count, capacity;
    int64_t total; /* -1: no work */
};

static int work_by_start(const void *a, const void *b, void *context)
{
    const int64_t *start = context;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return start[x] != start[y] ? by_number(start[x], start[y]) : (x > y) - (x < y);
}

static uint32_t launcher_of(const struct process *p, const struct attribution *a, size_t work)
{
    uint32_t span = a->launch ? a->launch[work] : NO_PLACE;
    return span == NO_PLACE ? NO_THREAD : p->spans.thread[span];
}

/* Leaves the total unknown if records of work are left out, which may have run in a gap. */
static void find_gaps(struct gaps *gaps, struct scope *scope, const struct attribution *a)
{
    const struct process *p = scope->process;
    const struct works *w = &p->works;
    size_t *order = mem_zero(w->table.count, sizeof *order), count = 0;
    int64_t covered = INT64_MIN;
    gaps->total = -1;
    for (size_t i = 0; i < w->table.count; i++)
        if (IS_WORK(w->event_class[i])) order[count++] = i;
    qsort_r(order, count, sizeof *order, work_by_start, w->start);
    for (size_t i = 0; i < count; i++) {
        size_t work = order[i];
        gaps->total += gaps->total < 0;
        if (i && w->start[work] > covered) {
            gaps->gap = mem_grow(gaps->gap, &gaps->capacity, gaps->count + 1, sizeof *gaps->gap);
            gaps->gap[gaps->count++] = (struct gap){covered, w->start[work], gaps->total, launcher_of(p, a, work)};
            gaps->total += w->start[work] - covered;
        }
        covered = i ? MAX(covered, w->end[work]) : w->end[work];
    }
    if (count && left_out_of(scope_left_out(scope), (struct interval){w->start[order[0]], covered}, NO_PLACE))
        gaps->total = -1;
    free(order);
}

/* The time of gaps between two moments that ended with work of the thread. */
static int64_t idle_between(const struct gaps *gaps, uint32_t thread, int64_t from, int64_t to)
{
    size_t low = 0, high = gaps->count;
    int64_t idle = 0;
    if (gaps->total < 0) return -1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (gaps->gap[middle].end <= from) low = middle + 1;
        else high = middle;
    }
    for (; low < gaps->count && gaps->gap[low].start < to; low++)
        if (gaps->gap[low].thread == thread) idle += MIN(gaps->gap[low].end, to) - MAX(gaps->gap[low].start, from);
    return idle;
}

/* ---- threads ---- */

/* The serial of the thread with a kernel id; of several that had it one after the other, the one that lived then. */
static uint32_t thread_of(const struct process *p, uint32_t tid, int64_t time)
{
    uint32_t found = NO_THREAD;
    for (size_t i = 0; i < p->threads; i++) {
        const struct thread *t = &p->thread[i];
        if (t->tid != tid) continue;
        if (found == NO_THREAD || (t->has_time && t->first <= time)) found = t->serial;
    }
    return found;
}

/* ---- the walk ---- */

struct walk {
    struct scope *scope;
    const struct attribution *attribution;
    struct gaps gaps;
    struct map thread; /* serials by kernel id; MANY: several threads had it */
    int64_t *cpu;      /* the processor time of each look, where it belongs */
};

#define MANY (MAP_NONE - 1)

static void note_threads(struct walk *walk)
{
    const struct process *p = walk->scope->process;
    for (size_t i = 0; i < p->threads; i++) {
        bool is_known = map_get(&walk->thread, p->thread[i].tid) != MAP_NONE;
        map_put(&walk->thread, p->thread[i].tid, is_known ? MANY : p->thread[i].serial);
    }
}

static uint32_t thread_at(const struct walk *walk, uint32_t tid, int64_t time)
{
    uint32_t serial = map_get(&walk->thread, tid);
    if (serial == MANY) return thread_of(walk->scope->process, tid, time);
    return serial == MAP_NONE ? NO_THREAD : serial;
}

static uint32_t stage_of(const struct walk *walk, size_t look)
{
    const struct looks *l = &walk->scope->process->looks;
    int64_t end = l->end[look];
    return stage_at(&walk->attribution->finder, thread_at(walk, l->tid[look], end), end - 1);
}

/* The waiting looks of a thread whose processor time has no place yet, as a stack: index + 1, 0: none. */
struct unplaced {
    size_t *before;           /* the next one, by look */
    struct map top, previous; /* by thread: the last one; the last look, if it waited */
};

/* True if the thread waited at the look, or had waited there and was not yet given a processor. */
static bool waited_at(const struct looks *l, size_t look, const struct unplaced *u)
{
    if (l->call[look]) return true;
    uint32_t previous = map_get(&u->previous, l->tid[look]);
    return l->flags[look] & TFI_SAMPLED_RUNNABLE && previous != MAP_NONE && l->stack[previous] == l->stack[look];
}

/* Moves the processor time of periods at whose end the thread waited to the next looks of the same stage that found it
 * running: they tell best what has used it. No look gets more than its wall time, and what finds no room stays where it
 * is. */
static void place_cpu(struct walk *walk)
{
    const struct looks *l = &walk->scope->process->looks;
    size_t count = l->table.count;
    struct unplaced u = {.before = mem_zero(count, sizeof *u.before)};
    walk->cpu = mem_zero(count, sizeof *walk->cpu);
    for (size_t i = 0; i < count; i++) {
        bool waited = waited_at(l, i, &u);
        uint32_t known = map_get(&u.top, l->tid[i]);
        size_t top = known == MAP_NONE ? 0 : known;
        walk->cpu[i] = MAX(l->cpu[i], 0);
        if (top && stage_of(walk, top - 1) != stage_of(walk, i)) top = 0;
        if (waited && walk->cpu[i]) {
            u.before[i] = top;
            top = i + 1;
        }
        int64_t room = waited ? 0 : l->end[i] - l->start[i] - walk->cpu[i];
        while (top && room > 0) {
            int64_t moved = MIN(room, walk->cpu[top - 1]);
            walk->cpu[top - 1] -= moved;
            walk->cpu[i] += moved;
            room -= moved;
            if (!walk->cpu[top - 1]) top = u.before[top - 1];
        }
        map_put(&u.top, l->tid[i], (uint32_t)top);
        map_put(&u.previous, l->tid[i], waited ? (uint32_t)i : MAP_NONE);
    }
    map_free(&u.top);
    map_free(&u.previous);
    free(u.before);
}

/* Fills in what is known of a period; false if it is not chosen. */
static bool measure(const struct walk *walk, struct sampled *s)
{
    const struct process *p = walk->scope->process;
    const struct looks *l = &p->looks;
    const struct choice *choice = &walk->scope->choice;
    int64_t start = l->start[s->look], end = l->end[s->look];
    int64_t from = MAX(start, choice->window.from), to = MIN(end, choice->window.to);
    if (to <= from) return false;
    uint32_t thread = thread_at(walk, l->tid[s->look], to);
    s->stage = stage_at(&walk->attribution->finder, thread, to - 1);
    struct belonging at = {.time = to - 1, .stage = s->stage, .via = VIA_THREAD};
    if (!choice_moment(choice, to - 1, to - 1) || !choice_in_stage(choice, &at)) return false;
    s->wall = to - from;
    s->cpu = (int64_t)((double)walk->cpu[s->look] * ((double)s->wall / (double)(end - start)));
    s->waiting = MAX(s->wall - s->cpu, 0);
    s->device_idle = idle_between(&walk->gaps, thread, from, to);
    bool is_first = (int64_t)l->tid[s->look] == p->pid;
    s->weight = is_first || !is_idle(l, s->look) ? s->wall : s->cpu;
    return true;
}

struct needs sampled_needs(const struct options *options)
{
    return needs_union(work_needs(options),
                       (struct needs){.looks = true, .ranges = true, .device = true, .launches = true});
}

int64_t sampled_each(struct scope *scope, void (*visit)(void *context, const struct sampled *sampled), void *context)
{
    struct walk walk = {.scope = scope, .attribution = scope_attribute(scope)};
    note_threads(&walk);
    find_gaps(&walk.gaps, scope, walk.attribution);
    place_cpu(&walk);
    for (size_t i = 0; i < scope->process->looks.table.count; i++) {
        struct sampled s = {.look = i};
        if (measure(&walk, &s)) visit(context, &s);
    }
    map_free(&walk.thread);
    free(walk.gaps.gap);
    free(walk.cpu);
    return walk.gaps.total;
}
