/* event_waits.c - finds, for each call that waits for an event of CUDA, the call that recorded the event.
 *
 * Kineto names it by its correlation id. CUPTI gives calls that record events no id, so those that are waited for get the ids
 * behind the process's own.
 */
#include <stdlib.h>
#include <string.h>

#include "ask/critical/exact_streams.h"
#include "model/join.h"
#include "write/export/export_write.h"

static int calls_by_start(const void *a, const void *b, void *context)
{
    const struct calls *c = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return c->start[x] != c->start[y] ? by_number(c->start[x], c->start[y]) : by_number(x, y);
}

static bool is_of_class(const struct process *p, uint32_t call, const char *call_class)
{
    const struct func *func = &p->func[p->calls.func[call]];
    return is_device_call(func) && strcmp(func->call_class, call_class) == 0;
}

/* Returns the calls that record events and that wait for them, by start, if the device library saw some wait. */
static uint32_t *calls_of_events(const struct process *p, size_t *count)
{
    const struct calls *c = &p->calls;
    uint32_t *call = mem_zero(c->table.count, sizeof *call);
    bool waits = false;
    *count = 0;
    for (size_t i = 0; i < p->works.table.count && !waits; i++) waits = p->works.event_class[i] == CLASS_SYNC;
    for (uint32_t i = 0; i < c->table.count && waits; i++) {
        bool is_wait = c->span[i] != NO_PLACE && (is_of_class(p, i, "WAIT") || is_of_class(p, i, "SYNC"));
        if (c->result[i] == 0 && (is_wait || is_of_class(p, i, "RECORD"))) call[(*count)++] = i;
    }
    if (*count) qsort_r(call, *count, sizeof *call, calls_by_start, (void *)c);
    return call;
}

static uint64_t first_free_id(const struct process *p)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < p->spans.table.count; i++)
        if (p->spans.event_class[i] == CLASS_API && p->spans.id[i] != NO_ID) largest = MAX(largest, p->spans.id[i]);
    for (size_t i = 0; i < p->works.table.count; i++)
        if (p->works.correlation[i] != NO_ID) largest = MAX(largest, p->works.correlation[i]);
    return largest + 1;
}

void find_event_waits(struct tfr_shared *shared)
{
    const struct process *p = shared->scope.process;
    size_t count, ids = 0;
    struct map recorded = {0}; /* the last call, by event */
    uint32_t *call = calls_of_events(p, &count);
    for (size_t i = 0; i < count; i++) {
        uint64_t event;
        if (!call_argument(p, call[i], "event", &event)) continue;
        if (is_of_class(p, call[i], "RECORD")) {
            map_put(&recorded, event, call[i]);
            continue;
        }
        uint32_t record = map_get(&recorded, event);
        if (record == MAP_NONE) continue;
        map_put(&shared->record_of, p->calls.span[call[i]], record);
        map_put(&shared->awaited, record, 1);
        if (p->calls.span[record] == NO_PLACE && map_get(&shared->record_id, record) == MAP_NONE)
            map_put(&shared->record_id, record, (uint32_t)ids++);
    }
    if (ids) shared->free_id = first_free_id(p);
    map_free(&recorded);
    free(call);
}

uint64_t id_of_call(const struct tfr_shared *shared, uint32_t call)
{
    const struct process *p = shared->scope.process;
    uint32_t span = p->calls.span[call], own = map_get(&shared->record_id, call);
    if (span != NO_PLACE) return p->spans.id[span];
    return own == MAP_NONE ? NO_ID : shared->free_id + own;
}

char *name_of_record(const struct tfr_shared *shared, uint32_t call)
{
    const struct process *p = shared->scope.process;
    const struct func *func = &p->func[p->calls.func[call]];
    bool of_driver = is_device_call(func) && strcmp(func->library, "cuda") == 0 && strncmp(func->name, "cu", 2) == 0;
    bool awaited = of_driver && map_get(&shared->awaited, call) != MAP_NONE;
    return awaited ? string_format("cuda%s", func->name + strlen("cu")) : NULL;
}
