/* kineto_npu.c - joins the tasks of an Ascend NPU to the operators that torch_npu's arrows come from.
 *
 * torch_npu writes no correlation ids. An arrow begins at the start of an operator and ends at the start of a task in
 * the task's row. If several operators begin there, the shortest is meant: it is the innermost.
 */
#include "model/kineto/kineto_npu.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

bool is_npu_task(struct slice category)
{
    return category.length > 4 && memcmp(category.at, "npu_", 4) == 0;
}

static void add_end(struct npu_tasks *tasks, struct npu_end end)
{
    tasks->end = mem_grow(tasks->end, &tasks->capacity, tasks->count + 1, sizeof *tasks->end);
    tasks->end[tasks->count++] = end;
}

static uint64_t row_of(const struct kineto_event *event)
{
    return hash_numbers((uint64_t)(event->has & HAS_PID ? event->pid : -1),
                        (uint64_t)(event->has & HAS_TID ? event->tid : -1));
}

void npu_take_task(struct npu_tasks *tasks, const struct kineto_event *event, size_t work)
{
    add_end(tasks, (struct npu_end){NPU_TASK, 0, row_of(event), event->ts, (uint32_t)work});
}

void npu_take_arrow(struct npu_tasks *tasks, const struct kineto_event *event, uint32_t thread)
{
    if (!(event->has & HAS_ID) || (event->phase != 's' && event->phase != 'f')) return;
    if (event->phase == 's') add_end(tasks, (struct npu_end){NPU_LAUNCH, event->id, thread, event->ts, 0});
    else add_end(tasks, (struct npu_end){NPU_ARRIVAL, event->id, row_of(event), event->ts, 0});
}

/* Maps rows and moments to operators, or to tasks. */
static uint64_t key_of(uint64_t row, int64_t time)
{
    return hash_numbers(row, (uint64_t)time);
}

static void map_operators(struct map *map, const struct spans *s)
{
    for (size_t i = 0; i < s->table.count; i++) {
        if (s->event_class[i] != CLASS_OPERATOR) continue;
        uint64_t key = key_of(s->thread[i], s->start[i]);
        uint32_t other = map_get(map, key);
        if (other == MAP_NONE || s->end[i] <= s->end[other]) map_put(map, key, (uint32_t)i);
    }
}

static uint64_t id_of_operator(struct spans *s, uint32_t place)
{
    static const uint64_t first_new = UINT64_C(1) << 62; /* no profiler counts as far */
    if (s->id[place] == NO_ID) s->id[place] = first_new + place;
    return s->id[place];
}

void npu_conclude(struct npu_tasks *tasks, struct process *process)
{
    struct map operators = {0}, works = {0}, launches = {0};
    struct spans *s = &process->spans;
    if (tasks->count) map_operators(&operators, s);
    for (size_t i = 0; i < tasks->count; i++) {
        const struct npu_end *end = &tasks->end[i];
        if (end->what == NPU_TASK) map_put(&works, key_of(end->row, end->time), end->work);
        if (end->what == NPU_LAUNCH) map_put(&launches, end->id, (uint32_t)i);
    }
    for (size_t i = 0; i < tasks->count; i++) {
        const struct npu_end *end = &tasks->end[i];
        uint32_t launch = end->what == NPU_ARRIVAL ? map_get(&launches, end->id) : MAP_NONE;
        if (launch == MAP_NONE) continue;
        uint32_t work = map_get(&works, key_of(end->row, end->time));
        uint32_t place = map_get(&operators, key_of(tasks->end[launch].row, tasks->end[launch].time));
        if (work != MAP_NONE && place != MAP_NONE) process->works.external[work] = id_of_operator(s, place);
    }
    map_free(&operators);
    map_free(&works);
    map_free(&launches);
}

void npu_free(struct npu_tasks *tasks)
{
    free(tasks->end);
}
