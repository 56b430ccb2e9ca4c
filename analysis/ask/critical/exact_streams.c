/* exact_streams.c - learns streams and devices from the calls of a process and from the work that they launched. */
#include "ask/critical/exact_streams.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { HANDLE_NONE = 0, HANDLE_LEGACY = 1, HANDLE_PER_THREAD = 2, NON_BLOCKING = 1 };

bool call_argument(const struct process *p, size_t call, const char *name, uint64_t *value)
{
    const struct func *func = &p->func[p->calls.func[call]];
    uint64_t first = p->calls.first_arg ? p->calls.first_arg[call] : 0;
    uint64_t count = p->calls.first_arg ? p->calls.first_arg[call + 1] - first : 0;
    for (unsigned i = 0; i < func->args && i < count; i++) {
        if (strcmp(func->arg[i], name) != 0) continue;
        *value = p->args[first + i];
        return true;
    }
    return false;
}

static const struct func *func_of(const struct streams *s, size_t call)
{
    return &s->process->func[s->process->calls.func[call]];
}

static bool is_class(const struct streams *s, size_t call, const char *name)
{
    return strcmp(func_of(s, call)->call_class, name) == 0;
}

/* Returns the handle of a call's stream. A call without one, such as cudaMemcpy, uses the default stream. */
static uint64_t handle_of(const struct streams *s, size_t call)
{
    const char *name = func_of(s, call)->name;
    size_t length = strlen(name);
    uint64_t handle = HANDLE_NONE;
    call_argument(s->process, call, "stream", &handle);
    if (handle != HANDLE_NONE) return handle;
    bool own = length > 5 && (strcmp(name + length - 5, "_ptsz") == 0 || strcmp(name + length - 5, "_ptds") == 0);
    return own ? HANDLE_PER_THREAD : HANDLE_LEGACY;
}

/* The key of a stream in `lane_of`. */
static uint64_t key_of(const struct streams *s, size_t call, uint64_t handle, int64_t device)
{
    if (handle == HANDLE_LEGACY) return hash_numbers(HANDLE_LEGACY, (uint64_t)device);
    if (handle != HANDLE_PER_THREAD) return handle;
    return hash_numbers((uint64_t)s->process->calls.thread[call] << 2 | HANDLE_PER_THREAD, (uint64_t)device);
}

static void set_device(struct streams *s, size_t call, int64_t device)
{
    if (device >= 0 && device < MAP_NONE) map_put(&s->device_of, s->process->calls.thread[call], (uint32_t)device);
}

static void take_launch(struct streams *s, size_t call, uint32_t lane)
{
    uint64_t handle = handle_of(s, call), given;
    int64_t device = s->process->lane[lane].device;
    bool names_stream = call_argument(s->process, call, "stream", &given);
    if (is_class(s, call, "LAUNCH") || !names_stream) set_device(s, call, device);
    map_put(&s->lane_of, key_of(s, call, handle, device), lane);
    uint32_t known = handle == HANDLE_PER_THREAD ? 1 : map_get(&s->is_blocking, handle);
    if (handle == HANDLE_LEGACY) s->sort[lane] = STREAM_LEGACY;
    else if (known != MAP_NONE && s->sort[lane] != STREAM_LEGACY)
        s->sort[lane] = known ? STREAM_BLOCKING : STREAM_ALONE;
}

/* An event is recorded only in streams of its own context. */
static void take_record(struct streams *s, size_t call)
{
    uint64_t event, handle = handle_of(s, call);
    if (!call_argument(s->process, call, "event", &event)) return;
    uint32_t lane = map_get(&s->lane_of, handle), device = map_get(&s->device_of_event, event);
    if (handle != HANDLE_LEGACY && handle != HANDLE_PER_THREAD) {
        if (lane != MAP_NONE) map_put(&s->device_of_event, event, (uint32_t)s->process->lane[lane].device);
    } else if (device != MAP_NONE) {
        set_device(s, call, device);
    }
}

void streams_take(struct streams *s, size_t call)
{
    const struct calls *c = &s->process->calls;
    uint32_t span = c->span[call], work = span == NO_PLACE ? NO_PLACE : s->first_of_span[span];
    uint64_t value, flags = 0;
    if (work != NO_PLACE) {
        take_launch(s, call, s->process->works.lane[work]);
    } else if (is_class(s, call, "RECORD")) {
        take_record(s, call);
    } else if (is_class(s, call, "STREAM") && strstr(func_of(s, call)->name, "Create")) {
        call_argument(s->process, call, "flags", &flags);
        if (call_argument(s->process, call, "stream", &value) && c->result[call] == 0)
            map_put(&s->is_blocking, value, !(flags & NON_BLOCKING));
    } else if (strcmp(func_of(s, call)->name, "cudaSetDevice") == 0 && c->result[call] == 0) {
        if (call_argument(s->process, call, "device", &value)) set_device(s, call, (int64_t)value);
    }
}

void streams_init(struct streams *s, const struct process *process, const uint32_t *order,
                  const uint32_t *first_of_span)
{
    *s = (struct streams){.process = process, .first_of_span = first_of_span};
    s->sort = mem_zero(process->lanes, sizeof *s->sort);
    for (size_t i = 0; i < process->calls.table.count; i++) streams_take(s, order[i]);
    map_free(&s->is_blocking);
    s->is_blocking = (struct map){0};
    /* Backwards, so that a call before a stream's or a thread's first launch finds that launch. The sorts are known. */
    for (size_t i = process->calls.table.count; i > 0; i--)
        if (!is_class(s, order[i - 1], "STREAM")) streams_take(s, order[i - 1]);
}

void streams_free(struct streams *s)
{
    map_free(&s->lane_of);
    map_free(&s->device_of);
    map_free(&s->device_of_event);
    map_free(&s->is_blocking);
    free(s->sort);
}

uint32_t streams_lane(const struct streams *s, size_t call)
{
    return map_get(&s->lane_of, key_of(s, call, handle_of(s, call), streams_device(s, call)));
}

int64_t streams_device(const struct streams *s, size_t call)
{
    uint32_t device = map_get(&s->device_of, s->process->calls.thread[call]);
    return device == MAP_NONE ? -1 : (int64_t)device;
}
