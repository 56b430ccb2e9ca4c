/* slowest.c - finds the single calls of stages that took longest beyond the median of their stage. */
#include "ask/stages/slowest.h"

#include <stdlib.h>
#include <string.h>

#include "ask/stages/order.h"
#include "base/statistics.h"

static const char batch_of_worker[] = "DataLoader worker ";

/* Returns the number in the name of a worker's batch; -1 if it is another name. */
static int64_t worker_in(const struct name *name)
{
    size_t prefix = sizeof batch_of_worker - 1;
    if (name->length <= prefix || name->length > prefix + 9 || memcmp(name->text, batch_of_worker, prefix) != 0)
        return -1;
    int64_t number = 0;
    for (size_t i = prefix; i < name->length; i++) {
        if (name->text[i] < '0' || name->text[i] > '9') return -1;
        number = number * 10 + (name->text[i] - '0');
    }
    return number;
}

void slow_calls_add(struct slow_calls *calls, const struct scope *scope)
{
    const struct process *p = scope->process;
    const struct ranges *r = &p->ranges;
    const struct choice *choice = &scope->choice;
    const struct names *names = &scope->chosen->model->names;
    struct map whole_of = {0};
    wholes_by_id(&whole_of, p);
    for (size_t i = 0; i < r->table.count; i++) {
        if (r->flags[i] & (RANGE_CONTINUED | TFI_RANGE_UNTRACKED)) continue;
        int64_t worker = is_stage(r, i) ? -1 : worker_in(names_get(names, r->name[i]));
        if (!is_stage(r, i) && worker < 0) continue;
        if (!choice_stage(choice, i) || !selection_wants(scope->chosen, r->name[i])) continue;
        int64_t end = call_time(p, i, map_get(&whole_of, r->id[i])).end;
        calls->call = mem_grow(calls->call, &calls->capacity, calls->count + 1, sizeof *calls->call);
        calls->call[calls->count++] = (struct slow_call){
            p, i, r->name[i], MAX(r->start[i], choice->window.from), MIN(end, choice->window.to), 0, worker};
    }
    map_free(&whole_of);
}

static int call_by_name(const void *a, const void *b)
{
    const struct slow_call *x = a, *y = b;
    if (x->name != y->name) return x->name < y->name ? -1 : 1;
    return x->start != y->start ? by_number(x->start, y->start) : by_number(x->end, y->end);
}

static int call_by_excess(const void *a, const void *b)
{
    const struct slow_call *x = a, *y = b;
    int64_t excess_x = x->end - x->start - x->median, excess_y = y->end - y->start - y->median;
    return excess_x != excess_y ? by_number(excess_y, excess_x) : call_by_name(a, b);
}

/* Sets the median of calls with one name. */
static void set_median(struct slow_call *calls, size_t count)
{
    struct values times = {0};
    for (size_t i = 0; i < count; i++) values_add(&times, calls[i].end - calls[i].start);
    values_sort(&times);
    int64_t median = values_percentile(&times, 0.5);
    for (size_t i = 0; i < count; i++) calls[i].median = median;
    values_free(&times);
}

/* The workers of a DataLoader make batches of one kind: their calls have one median. */
static bool is_alike(const struct slow_call *a, const struct slow_call *b)
{
    return a->name == b->name || (a->worker >= 0 && b->worker >= 0);
}

static int call_alike(const void *a, const void *b)
{
    const struct slow_call *x = a, *y = b;
    bool of_worker_x = x->worker >= 0, of_worker_y = y->worker >= 0;
    if (of_worker_x != of_worker_y) return of_worker_x - of_worker_y;
    return of_worker_x ? by_number(x->start, y->start) : call_by_name(a, b);
}

void slow_calls_sort(struct slow_calls *calls)
{
    if (!calls->count) return;
    qsort(calls->call, calls->count, sizeof *calls->call, call_alike);
    for (size_t i = 0, end; i < calls->count; i = end) {
        for (end = i + 1; end < calls->count && is_alike(&calls->call[i], &calls->call[end]);) end++;
        set_median(&calls->call[i], end - i);
    }
    qsort(calls->call, calls->count, sizeof *calls->call, call_by_excess);
}

uint32_t slow_call_file(const struct slow_call *call, int64_t *time)
{
    const struct ios *ios = &call->process->ios;
    struct map place = {0};
    struct file {
        uint32_t path;
        int64_t time;
    } *files = NULL, *most = NULL;
    size_t count = 0, capacity = 0;
    for (size_t i = 0; i < ios->table.count; i++) {
        if (ios->path[i] == NAME_NONE || ios->end[i] <= call->start || ios->start[i] >= call->end) continue;
        if (call->worker < 0 && ios->thread[i] != call->process->ranges.thread[call->range]) continue;
        uint32_t at = map_get(&place, ios->path[i]);
        if (at == MAP_NONE) {
            at = (uint32_t)count++;
            files = mem_grow(files, &capacity, count, sizeof *files);
            files[at] = (struct file){ios->path[i], 0};
            map_put(&place, ios->path[i], at);
        }
        files[at].time += MIN(ios->end[i], call->end) - MAX(ios->start[i], call->start);
    }
    for (size_t i = 0; i < count; i++)
        if (!most || files[i].time > most->time) most = &files[i];
    uint32_t path = most ? most->path : NAME_NONE;
    *time = most ? most->time : 0;
    free(files);
    map_free(&place);
    return path;
}
