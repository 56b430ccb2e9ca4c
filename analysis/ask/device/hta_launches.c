/* hta_launches.c - joins launches with the work they started, as get_cuda_kernel_launch_stats of HTA 0.5.0.
 *
 * HTA takes the correlation ids of the calls that it knows as launches. A host row is any row without a stream that has
 * such an id, also another call or a wait; a device row is one with a stream. Calls of the driver's API and launches of
 * CUDA graphs are no launches for it.
 */
#include "ask/device/hta_launches.h"

#include <stdlib.h>
#include <string.h>

#include "ask/device/hta_calls.h"

static const char *const launch_names[] = {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync",
                                           "cudaMemsetAsync", "runFunction - job_prep_and_submit_for_execution"};

/* A row with the id of a launch. */
struct side {
    uint64_t correlation;
    int64_t start, end;
    uint32_t times, place;
};

struct sides {
    struct side *side;
    size_t count, capacity;
};

static void add(struct sides *sides, const struct map *ids, struct side side)
{
    if (side.correlation == NO_ID || map_get(ids, side.correlation) == MAP_NONE) return;
    side.place = (uint32_t)sides->count;
    sides->side = mem_grow(sides->side, &sides->capacity, sides->count + 1, sizeof *sides->side);
    sides->side[sides->count++] = side;
}

static int by_correlation(const void *a, const void *b)
{
    const struct side *x = a, *y = b;
    return x->correlation != y->correlation ? (x->correlation > y->correlation ? 1 : -1)
                                            : by_number(x->place, y->place);
}

static struct map launch_ids(const struct hta_calls *calls, const struct names *names)
{
    struct map ids = {0};
    for (size_t i = 0; i < calls->count; i++) {
        const char *name = names_get(names, calls->call[i].name)->text;
        bool is_launch = false;
        for (size_t k = 0; k < ARRAY_SIZE(launch_names); k++) is_launch |= strcmp(name, launch_names[k]) == 0;
        if (is_launch && calls->call[i].kept) map_put(&ids, calls->call[i].correlation, 0);
    }
    return ids;
}

/* Fills both sides. Device rows without a stream, which are waits, are on the host's side. */
static void take_sides(const struct hta_frame *frame, const struct hta_calls *calls, const struct map *ids,
                       struct sides *host, struct sides *device)
{
    const struct works *w = &frame->process->works;
    for (size_t i = 0; i < frame->unstreamed_count; i++) {
        const struct hta_row *row = &frame->unstreamed[i];
        add(host, ids, (struct side){w->correlation[row->work], row->start, row->end, row->times, 0});
    }
    for (size_t i = 0; i < calls->count; i++) {
        const struct hta_call *call = &calls->call[i];
        if (call->kept) add(host, ids, (struct side){call->correlation, call->start, call->end, 1, 0});
    }
    for (size_t i = 0; i < frame->count; i++) {
        const struct hta_row *row = &frame->row[i];
        if (row->work != NO_PLACE)
            add(device, ids, (struct side){w->correlation[row->work], row->start, row->end, row->times, 0});
    }
    if (device->count) qsort(device->side, device->count, sizeof *device->side, by_correlation);
}

static void join(struct hta_launches *launches, const struct side *host, const struct side *device, uint32_t *pairs)
{
    struct hta_launch launch = {.correlation = host->correlation,
                                .host = host->end - host->start,
                                .device = device->end - device->start,
                                .delay = MAX(device->start - host->end, 0)};
    uint64_t times = (uint64_t)host->times * device->times, room = HTA_MOST_PAIRS - *pairs, taken = MIN(times, room);
    *pairs += (uint32_t)taken;
    launches->left_out += times - taken;
    for (; taken; taken--) {
        launches->launch =
            mem_grow(launches->launch, &launches->capacity, launches->count + 1, sizeof *launches->launch);
        launches->launch[launches->count++] = launch;
    }
}

void hta_launches(struct hta_launches *launches, const struct hta_frame *frame, const struct names *names)
{
    struct hta_calls calls;
    struct sides host = {0}, device = {0};
    struct map first = {0}; /* by correlation id: its first place on the device's side */
    *launches = (struct hta_launches){0};
    hta_calls(&calls, frame, names);
    struct map ids = launch_ids(&calls, names);
    take_sides(frame, &calls, &ids, &host, &device);
    for (size_t i = device.count; i > 0; i--) map_put(&first, device.side[i - 1].correlation, (uint32_t)(i - 1));
    uint32_t *pairs = mem_zero(device.count, sizeof *pairs); /* by first place */
    for (size_t i = 0; i < host.count; i++) {
        uint64_t id = host.side[i].correlation;
        uint32_t at = map_get(&first, id);
        if (at == MAP_NONE) continue;
        uint32_t *of_id = &pairs[at];
        for (size_t k = at; k < device.count && device.side[k].correlation == id; k++) {
            if (*of_id == HTA_MOST_PAIRS) { /* the rest of a hostile trace is not worth counting */
                launches->left_out++;
                break;
            }
            join(launches, &host.side[i], &device.side[k], of_id);
        }
    }
    free(pairs);
    free(host.side);
    free(device.side);
    map_free(&first);
    map_free(&ids);
    hta_calls_free(&calls);
}

void hta_launches_free(struct hta_launches *launches)
{
    free(launches->launch);
    *launches = (struct hta_launches){0};
}
