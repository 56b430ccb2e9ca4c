/* hta_launches.c - joins launches with the work they started, as get_cuda_kernel_launch_stats of HTA 0.5.0.
 *
 * HTA takes the correlation ids of the calls that it knows as launches. A host row is any row without a stream that has
 * such an id, also another call or a wait; a device row is one with a stream. Calls of the driver's API and launches of
 * CUDA graphs are no launches for it.
 */
#include <stdlib.h>
#include <string.h>

#include "commands/launches_budget.h"
#include "compat/hta_answer.h"
#include "compat/hta_calls.h"

/* A host row and a device row with the same correlation id. */
struct launch {
    uint64_t correlation;
    int64_t host, device,
        delay; /* durations, and the time from the end of the host row to the start of the device row */
};

struct launches {
    struct launch *launch;
    size_t count, capacity;
    uint64_t left_out; /* pairs beyond MOST_PAIRS of one correlation id */
};

/* HTA joins each host row with each device row of an id. This limit is above what any recorded trace needs, and keeps
 * the join of a hostile one small. */
enum { MOST_PAIRS = 4096 };

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

static void add_side(struct sides *sides, const struct map *ids, struct side side)
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
        add_side(host, ids, (struct side){w->correlation[row->work], row->start, row->end, row->times, 0});
    }
    for (size_t i = 0; i < calls->count; i++) {
        const struct hta_call *call = &calls->call[i];
        if (call->kept) add_side(host, ids, (struct side){call->correlation, call->start, call->end, 1, 0});
    }
    for (size_t i = 0; i < frame->count; i++) {
        const struct hta_row *row = &frame->row[i];
        if (row->work != NO_PLACE)
            add_side(device, ids, (struct side){w->correlation[row->work], row->start, row->end, row->times, 0});
    }
    if (device->count) qsort(device->side, device->count, sizeof *device->side, by_correlation);
}

static void join_sides(struct launches *launches, const struct side *host, const struct side *device, uint32_t *pairs)
{
    struct launch launch = {.correlation = host->correlation,
                            .host = host->end - host->start,
                            .device = device->end - device->start,
                            .delay = MAX(device->start - host->end, 0)};
    uint64_t times = (uint64_t)host->times * device->times, room = MOST_PAIRS - *pairs, taken = MIN(times, room);
    *pairs += (uint32_t)taken;
    launches->left_out += times - taken;
    for (; taken; taken--) {
        launches->launch =
            mem_grow(launches->launch, &launches->capacity, launches->count + 1, sizeof *launches->launch);
        launches->launch[launches->count++] = launch;
    }
}

static void take_frame(struct launches *launches, const struct hta_frame *frame, const struct names *names)
{
    struct hta_calls calls;
    struct sides host = {0}, device = {0};
    struct map first = {0}; /* by correlation id: its first place on the device's side */
    *launches = (struct launches){0};
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
            if (*of_id == MOST_PAIRS) { /* the rest of a hostile trace is not worth counting */
                launches->left_out++;
                break;
            }
            join_sides(launches, &host.side[i], &device.side[k], of_id);
        }
    }
    free(pairs);
    free(host.side);
    free(device.side);
    map_free(&first);
    map_free(&ids);
    hta_calls_free(&calls);
}

/* ---- the answer ---- */

enum { SLOW = 50000, DELAYED = 100000 }; /* ns: HTA's defaults */

struct sums {
    uint64_t pairs, short_kernels, slow, delayed;
    int64_t host, device, delay;
};

static void add_launch(struct sums *sums, const struct launch *launch)
{
    sums->pairs++;
    sums->host = add_ns(sums->host, launch->host);
    sums->device = add_ns(sums->device, launch->device);
    sums->delay = add_ns(sums->delay, launch->delay);
    sums->short_kernels += launch->host <= SLOW && launch->device < launch->host;
    sums->slow += launch->host > SLOW;
    sums->delayed += launch->delay > DELAYED;
}

static void emit_frame(struct session *session, const struct hta_frame *frame, struct sums *sums)
{
    struct emit *e = &session->emit;
    struct launches launches;
    uint64_t top = session->options.top;
    take_frame(&launches, frame, &session->model.names);
    for (size_t i = 0; i < launches.count; i++) {
        const struct launch *launch = &launches.launch[i];
        add_launch(sums, launch);
        if (top && i >= top) continue;
        emit_row(e);
        emit_known(e, "rank", frame->rank);
        emit_count(e, "correlation", launch->correlation);
        emit_us(e, "cpu_us", launch->host);
        emit_us(e, "gpu_us", launch->device);
        emit_us(e, "delay_us", launch->delay);
        emit_row_end(e);
    }
    if (launches.left_out) {
        complain(frame->path,
                 "HTA joins all host rows of a correlation id with all device rows; the pairs of an id "
                 "beyond %d are left out",
                 MOST_PAIRS);
    }
    free(launches.launch);
}

void hta_launches(struct session *session)
{
    struct sums sums = {0};
    struct emit *e = &session->emit;
    struct budget none = {0};
    if (!launches_budget_begin(session, &none) || !hta_load(session) || !session_begin(session, STYLE_TABLE)) return;
    emit_keys(e, "rank,correlation,cpu_us,gpu_us,delay_us");
    const struct hta_frames *frames = hta_frames(&session->chosen);
    for (size_t i = 0; i < frames->count; i++) emit_frame(session, &frames->frame[i], &sums);
    emit_totals(e);
    emit_count(e, "pairs", sums.pairs);
    emit_us(e, "cpu_us", sums.host);
    emit_us(e, "gpu_us", sums.device);
    emit_us(e, "delay_us", sums.delay);
    emit_count(e, "short_kernels", sums.short_kernels);
    emit_count(e, "slow_launches", sums.slow);
    emit_count(e, "delayed", sums.delayed);
    emit_end(e);
    if (!sums.pairs && !is_filtered(&session->options))
        complain(NULL, "HTA finds no launch that it knows: cudaLaunchKernel, cudaLaunchKernelExC, cudaMemcpyAsync or "
                       "cudaMemsetAsync with device work; --rules exact counts all launches");
    session_end(session, sums.pairs || !is_filtered(&session->options));
}
