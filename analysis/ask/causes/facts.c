/* facts.c - takes the facts of one process.
 *
 * Copies below LEAST_BYTES are left out: their time is that of a call and not of a link. The halves of the calls are in
 * the order of the trace.
 */
#include "ask/causes/facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/comm/comm_rows.h"
#include "ask/work_kinds.h"
#include "base/sets/measure.h"
#include "base/sets/rows_by_key.h"
#include "base/statistics.h"

enum { LEAST_BYTES = 1 << 16 };

/* ---- kernels and copies ---- */

struct alike_key {
    uint32_t name, is_copy;
    uint64_t size;
};

/* Works of one name and size. */
struct alike {
    struct alike_key key;
    size_t calls, first; /* first: of its times, among those of all */
};

struct gathering {
    const struct process *process;
    struct work_kinds kinds;
    size_t copied, filling; /* the next entries of the process's tables */
    KEYED_ROWS(struct alike) alike;
    uint32_t *row; /* of each work that counts */
    int64_t *time;
    size_t count, row_capacity, time_capacity;
    struct map devices;
};

static uint64_t bytes_of_copy(struct gathering *g, size_t work)
{
    const struct process *p = g->process;
    while (g->copied < p->copied_count && p->copied[g->copied].work < work) g->copied++;
    const struct copied *c = g->copied < p->copied_count ? &p->copied[g->copied] : NULL;
    return c && c->work == work && c->has_bytes ? c->bytes : 0;
}

/* Blocks of a Kineto trace are those per multiprocessor, with a fraction. */
static uint64_t size_of_kernel(struct gathering *g, size_t work)
{
    const struct process *p = g->process;
    while (g->filling < p->fillings && p->filling[g->filling].work < work) g->filling++;
    const struct filling *f = g->filling < p->fillings ? &p->filling[g->filling] : NULL;
    if (!f || f->work != work || !(f->blocks >= 0 && f->blocks < 1e15)) return 0;
    return (uint64_t)llround(f->blocks * 1000) << 11 | (f->threads & 0x7ff);
}

/* Returns the key of a work. Returns false if works of its kind are not compared. */
static bool key_of_work(struct gathering *g, size_t work, struct alike_key *key)
{
    const struct works *w = &g->process->works;
    const char *name = names_get(g->kinds.names, w->name[work])->text;
    enum work_kind kind = work_kind_of(&g->kinds, g->process, work);
    bool is_copy = w->event_class[work] == CLASS_MEMCPY && (strstr(name, "HtoD") || strstr(name, "DtoH"));
    *key = (struct alike_key){w->name[work], is_copy, 0};
    if (is_copy) key->size = bytes_of_copy(g, work);
    else if (kind == WORK_COMPUTATION) key->size = size_of_kernel(g, work);
    return is_copy ? key->size >= LEAST_BYTES : kind == WORK_COMPUTATION;
}

static void gather_work(struct gathering *g, size_t work, int64_t time)
{
    const struct works *w = &g->process->works;
    struct alike_key key;
    if (!key_of_work(g, work, &key)) return;
    struct alike *alike = keyed_row(&g->alike.keyed, &key, sizeof key, sizeof *alike);
    alike->calls++;
    g->row = mem_grow(g->row, &g->row_capacity, g->count + 1, sizeof *g->row);
    g->time = mem_grow(g->time, &g->time_capacity, g->count + 1, sizeof *g->time);
    g->row[g->count] = (uint32_t)(alike - g->alike.row);
    g->time[g->count++] = time;
    uint32_t lane = w->lane[work];
    if (!key.is_copy && lane != NO_PLACE) map_put(&g->devices, (uint64_t)g->process->lane[lane].device, 1);
}

static int64_t median_of(const int64_t *time, size_t count)
{
    struct values values = {0};
    for (size_t i = 0; i < count; i++) values_add(&values, time[i]);
    values_sort(&values);
    int64_t median = values_percentile(&values, 0.5);
    values_free(&values);
    return median;
}

/* Adds a fact for each kind of work with enough calls. */
static void sum_up_works(struct gathering *g, struct rank_facts *facts)
{
    int64_t *sorted = mem_zero(g->count, sizeof *sorted);
    size_t first = 0;
    for (size_t i = 0; i < g->alike.count; i++) {
        g->alike.row[i].first = first;
        first += g->alike.row[i].calls;
        g->alike.row[i].calls = 0;
    }
    for (size_t i = 0; i < g->count; i++) {
        struct alike *alike = &g->alike.row[g->row[i]];
        sorted[alike->first + alike->calls++] = g->time[i];
    }
    for (size_t i = 0; i < g->alike.count; i++) {
        const struct alike *alike = &g->alike.row[i];
        const int64_t *time = sorted + alike->first;
        size_t half = alike->calls / 2;
        if (alike->calls < LEAST_CALLS) continue;
        facts->work = mem_grow(facts->work, &facts->work_capacity, facts->works + 1, sizeof *facts->work);
        facts->work[facts->works++] =
            (struct work_fact){alike->key.name,
                               alike->key.is_copy,
                               alike->key.size,
                               alike->calls,
                               {median_of(time, half), median_of(time + half, alike->calls - half)}};
    }
    free(sorted);
}

static void take_works(struct rank_facts *facts, struct scope *scope)
{
    struct gathering g = {.process = scope->process};
    struct interval when;
    work_kinds_init(&g.kinds, &exact_kinds, &scope->chosen->model->names);
    for (size_t i = 0; i < scope->process->works.table.count; i++)
        if (choice_work(&scope->choice, i, &when)) gather_work(&g, i, less_ns(when.end, when.start));
    facts->devices = g.devices.count;
    if (facts->devices < 2) sum_up_works(&g, facts);
    work_kinds_free(&g.kinds);
    keyed_free(&g.alike.keyed);
    map_free(&g.devices);
    free(g.row);
    free(g.time);
}

/* ---- collectives ---- */

static int by_start_of_part(const void *a, const void *b)
{
    const struct comm_part *x = *(const struct comm_part *const *)a, *y = *(const struct comm_part *const *)b;
    int order = by_number(x->start, y->start);
    return order ? order : by_number(x->end, y->end);
}

/* Returns the collectives with known work that all ranks leave together, by their starts. */
static const struct comm_part **meeting_parts(const struct comm_summary *parts, size_t *count)
{
    const struct comm_part **part = mem_zero(parts->count, sizeof *part);
    *count = 0;
    for (size_t i = 0; i < parts->count; i++) {
        const struct comm_part *p = &parts->part[i];
        if (collective_kinds[p->op].meets && p->start != UNKNOWN_TIME && p->end != UNKNOWN_TIME) part[(*count)++] = p;
    }
    if (*count) qsort(part, *count, sizeof *part, by_start_of_part);
    return part;
}

static struct intervals busy_times(const struct process *process)
{
    const struct works *w = &process->works;
    struct intervals busy = {0};
    for (size_t i = 0; i < w->table.count; i++)
        if (IS_WORK(w->event_class[i])) intervals_add_merging(&busy, w->start[i], w->end[i]);
    intervals_merge(&busy);
    return busy;
}

static void take_gaps(struct rank_facts *facts, const struct process *process, const struct comm_summary *parts)
{
    size_t count;
    const struct comm_part **part = meeting_parts(parts, &count);
    struct intervals busy = busy_times(process);
    struct measure measure;
    int64_t end = count ? part[0]->end : 0, place = 0;
    measure_init(&measure, &busy);
    for (size_t i = 1; i < count; i++) {
        const struct comm_part *p = part[i];
        int64_t from = MIN(end, p->start), work = measure_between(&measure, from, p->start);
        place = p->step == part[i - 1]->step ? place + 1 : 0;
        end = MAX(end, p->end);
        facts->has_steps |= p->step != UNKNOWN_NUMBER;
        if (!p->is_chosen) continue;
        facts->gap = mem_grow(facts->gap, &facts->gap_capacity, facts->gaps + 1, sizeof *facts->gap);
        facts->gap[facts->gaps++] = (struct gap_fact){p->step,
                                                      place,
                                                      p->op,
                                                      comm_bytes(p),
                                                      p->size,
                                                      less_ns(less_ns(p->start, from), work),
                                                      less_ns(p->start, part[i - 1]->start)};
    }
    measure_free(&measure);
    intervals_free(&busy);
    free(part);
}

struct rank_facts *facts_take(struct scope *scope, const struct comm_summary *parts)
{
    struct rank_facts *facts = mem_zero(1, sizeof *facts);
    if (choice_needs_launches(scope->chosen->options, scope->process)) scope_attribute(scope);
    take_works(facts, scope);
    take_gaps(facts, scope->process, parts);
    return facts;
}

void facts_free(struct rank_facts *facts)
{
    if (!facts) return;
    free(facts->work);
    free(facts->gap);
    free(facts);
}
