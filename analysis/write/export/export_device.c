/* export_device.c - writes device work of .tfr traces into Chrome traces, with Kineto's categories and argument names.
 *
 * A row is one stream of a device, or work of it that overlaps the stream's other work (work_rows.h). In a file of one
 * process a device's pid is its number, as in Kineto. In a file of several processes it is a free number, and the arguments
 * name the device. Arrows lead from each launch to the work it started.
 */
#include "write/export/export_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask/device/occupancy.h"
#include "ask/stages/order.h"
#include "base/hash.h"
#include "model/join.h"
#include "model/ranges/step_ranges.h"
#include "write/export/captured_args.h"
#include "write/chrome/chrome_merge.h"
#include "write/values.h"

enum { WARP = 32, DEVICES_LAST = 5000000 }; /* DEVICES_LAST: below the rows of the host, as in Kineto */

/* ---- devices ---- */

static void put_property(struct export *x, const struct device *device)
{
    struct emit *e = &x->e;
    char uuid[DEVICE_UUID];
    device_uuid(device, uuid);
    emit_open(e, NULL, false);
    emit_count(e, "id", device->number);
    emit_text(e, "name", model_name(x->chosen->model, device->name));
    emit_count(e, "totalGlobalMem", device->memory);
    emit_count(e, "computeMajor", device->capability / 100);
    emit_count(e, "computeMinor", device->capability % 100);
    emit_count(e, "warpSize", WARP);
    emit_count(e, "numSms", device->units);
    emit_text(e, "uuid", uuid);
    emit_bool(e, "simulated", device->simulated);
    emit_close(e);
}

/* Devices of several ranks are distinguished by UUID. A device that several processes used is listed once. */
void put_device_properties(struct export *x)
{
    struct map seen = {0};
    bool any = false;
    for (size_t i = 0; i < x->asked->processes; i++) {
        const struct process *p = x->asked->process[i];
        for (size_t k = 0; k < p->devices; k++) {
            const uint64_t *uuid = p->device[k].uuid;
            uint32_t first = map_get(&seen, hash_numbers(uuid[0], uuid[1]));
            if (first != MAP_NONE && first != i) continue;
            if (!any) emit_open(&x->e, "deviceProperties", true);
            put_property(x, &p->device[k]);
            map_put(&seen, hash_numbers(uuid[0], uuid[1]), (uint32_t)i);
            any = true;
        }
    }
    if (any) emit_close(&x->e);
    map_free(&seen);
}

static int64_t pid_of_device(const struct export *x, int64_t device)
{
    uint32_t place = map_get(&x->device_of, (uint64_t)device);
    return place == MAP_NONE ? -1 : x->device_pid[place];
}

static void put_device(struct export *x, int64_t number, int64_t pid)
{
    const struct device *device = find_device(x->process, number);
    const char *program = x->process->command ? x->process->command : x->process->path;
    char *name = x->process->rank >= 0 && !is_alone(x)
                     ? string_format("rank %lld: %.60s", (long long)x->process->rank, program)
                     : string_format("%.60s", program);
    char *label = device
                      ? string_format("GPU %lld: %s%s", (long long)number, model_name(x->chosen->model, device->name),
                                      device->simulated ? ", simulated" : "")
                      : string_format("GPU %lld", (long long)number);
    put_metadata(x, "process_name", pid, 0, "name", name, 0);
    put_metadata(x, "process_labels", pid, 0, "labels", label, 0);
    int64_t last = is_alone(x) ? DEVICES_LAST : x->place * ROWS_OF_PROCESS + ROW_DEVICES;
    put_metadata(x, "process_sort_index", pid, 0, "sort_index", NULL, last + number);
    free(name);
    free(label);
}

void put_devices(struct export *x)
{
    const struct process *p = x->process;
    x->devices = 0;
    x->device_pid = mem_zero(p->lanes, sizeof *x->device_pid);
    for (size_t i = 0; i < p->lanes; i++) {
        int64_t number = p->lane[i].device;
        if (pid_of_device(x, number) < 0) {
            map_put(&x->device_of, (uint64_t)number, (uint32_t)x->devices);
            x->device_pid[x->devices] = free_pid(x, is_alone(x) ? number : -1);
            put_device(x, number, x->device_pid[x->devices++]);
        }
    }
    for (size_t i = 0; i < p->lanes; i++) {
        char name[40];
        snprintf(name, sizeof name, "stream %lld", (long long)p->lane[i].stream);
        put_metadata(x, "thread_name", pid_of_device(x, p->lane[i].device), (uint64_t)p->lane[i].stream, "name", name,
                     0);
    }
}

/* ---- calls ---- */

/* Runtime functions begin with cuda, driver functions with cu only. */
static const char *span_category(const char *name)
{
    return strncmp(name, "cu", 2) == 0 && strncmp(name, "cuda", 4) != 0 ? "cuda_driver" : "cuda_runtime";
}

void put_spans(struct export *x)
{
    const struct process *p = x->process;
    const struct spans *s = &p->spans;
    bool *joined = joined_spans(p);
    for (size_t i = 0; i < s->table.count && !without_calls(x->asked->without); i++) {
        if (joined[i] || s->event_class[i] != CLASS_API ||
            !is_wanted_call(x, s->thread[i], s->start[i], s->end[i], (uint32_t)i))
            continue;
        const struct name *name = names_get(&x->chosen->model->names, s->name[i]);
        begin_event(x, "X");
        emit_text(&x->e, "cat", span_category(name->text));
        emit_bytes_text(&x->e, "name", name->text, name->length);
        put_place(x, x->pid, tid_of(x, s->thread[i]), s->start[i]);
        emit_us(&x->e, "dur", s->end[i] - s->start[i]);
        emit_open(&x->e, "args", false);
        put_external_id(x, x->shared->launcher[i]);
        put_correlation(x, s->id[i]);
        emit_close(&x->e);
        end_event(x);
    }
    free(joined);
}

/* ---- work ---- */

static void put_three(struct emit *e, const char *key, const uint32_t *value)
{
    emit_open(e, key, true);
    for (int i = 0; i < 3; i++) emit_count(e, NULL, value[i]);
    emit_close(e);
}

static double product(const uint32_t *three)
{
    return (double)three[0] * three[1] * three[2];
}

static void put_occupancy(struct emit *e, const struct device *device, const struct work_detail *detail, double blocks)
{
    const struct block_needs needs = {(uint64_t)product(detail->block), detail->registers,
                                      (uint64_t)detail->static_shared + detail->dynamic_shared};
    double percent = occupancy_estimate(device->capability, &needs, blocks);
    if (!isnan(percent)) emit_double(e, "est. achieved occupancy %", percent);
}

static void put_kernel_args(struct export *x, const struct work_detail *detail, int64_t number)
{
    struct emit *e = &x->e;
    const struct device *device = find_device(x->process, number);
    if (detail->queued) emit_us(e, "queued", detail->queued - x->base);
    else emit_count(e, "queued", 0);
    emit_count(e, "registers per thread", detail->registers);
    emit_count(e, "shared memory", (uint64_t)detail->static_shared + detail->dynamic_shared);
    if (device && device->units) {
        double blocks = product(detail->grid) / device->units;
        emit_double(e, "blocks per SM", blocks);
        emit_double(e, "warps per SM", blocks * product(detail->block) / WARP);
        put_occupancy(e, device, detail, blocks);
    }
    put_three(e, "grid", detail->grid);
    put_three(e, "block", detail->block);
}

/* Writes the operator and stage in which a replayed node was captured. Kineto has no such fields. */
static void put_captured(struct export *x, size_t i)
{
    const struct attribution *a = &x->scope->attribution;
    uint32_t name;
    if (!captured_operator(a, i, &name)) return;
    struct captured_arg arg[CAPTURED_ARGS];
    uint32_t stage = a->node[a->captured[i]].stage;
    const struct graph_node *node = &x->process->graphs.node[a->captured[i]];
    size_t count = captured_args(&x->chosen->model->names, node, name, captured_detail(a, i), arg);
    for (size_t k = 0; k < count; k++) {
        emit_bytes_text(&x->e, arg[k].key, arg[k].text, arg[k].length);
        text_free(&arg[k].made);
    }
    if (stage != NO_PLACE) {
        const struct name *of = names_get(&x->chosen->model->names, range_full_name(x->process, stage));
        emit_bytes_text(&x->e, "captured stage", of->text, of->length);
    }
}

/* Writes the id of the call that recorded the event for which a host or a stream waits, if the file has that call. */
static void put_waited_record(struct export *x, size_t work)
{
    const struct calls *c = &x->process->calls;
    uint32_t span = x->scope->attribution.launch[work];
    uint32_t record = span == NO_PLACE ? MAP_NONE : map_get(&x->shared->record_of, span);
    if (record == MAP_NONE || without_calls(x->asked->without)) return;
    if (!is_wanted_call(x, c->thread[record], c->start[record], c->end[record], c->span[record])) return;
    uint64_t id = id_of_call(x->shared, record);
    if (id != NO_ID) emit_count(&x->e, "wait_on_cuda_event_record_corr_id", x->calls + id);
}

static void put_work_args(struct export *x, size_t i)
{
    const struct works *w = &x->process->works;
    const struct lane *lane = &x->process->lane[w->lane[i]];
    const struct work_detail *detail = &w->detail[i];
    struct emit *e = &x->e;
    emit_open(e, "args", false);
    put_external_id(x, x->scope->attribution.op[i]);
    emit_int(e, "device", lane->device);
    emit_count(e, "context", detail->context);
    emit_int(e, "stream", lane->stream);
    put_correlation(x, w->correlation[i]);
    if (w->event_class[i] == CLASS_KERNEL) {
        put_kernel_args(x, detail, lane->device);
    } else if (w->event_class[i] == CLASS_SYNC) {
        emit_text(e, "cuda_sync_kind", model_name(x->chosen->model, w->name[i]));
        if (detail->sync_event && detail->sync_event != UINT32_MAX)
            emit_count(e, "wait_on_cuda_event_id", detail->sync_event);
        put_waited_record(x, i);
    } else {
        int64_t time = w->end[i] - w->start[i];
        emit_count(e, "bytes", detail->bytes);
        emit_double(e, "memory bandwidth (GB/s)", time > 0 ? (double)detail->bytes / (double)time : 0);
    }
    if (detail->graph) {
        emit_count(e, "graph id", detail->graph);
        emit_count(e, "graph node id", detail->node);
        put_captured(x, i);
    }
    emit_close(e);
}

/* Returns the tid of a work's row, and describes a new row. Perfetto traces get lanes of their own (pftrace/pf_rows.c). */
static uint64_t row_of_work(struct export *x, size_t i)
{
    const struct lane *lane = &x->process->lane[x->process->works.lane[i]];
    int64_t pid = pid_of_device(x, lane->device);
    bool is_new;
    if (x->asked->taker) return (uint64_t)lane->stream;
    uint64_t row = work_row(&x->rows, x->process, i, &is_new);
    if (is_new) {
        char name[64];
        snprintf(name, sizeof name, "stream %lld, lane %u", (long long)lane->stream, x->rows.lane[i] + 1);
        put_metadata(x, "thread_name", pid, row, "name", name, 0);
        put_metadata(x, "thread_sort_index", pid, row, "sort_index", NULL, work_row_order(&x->rows, x->process, i));
    }
    return row;
}

static void put_arrow(struct export *x, const char *phase, uint64_t id, int64_t pid, uint64_t tid, int64_t time)
{
    begin_event(x, phase);
    emit_text(&x->e, "cat", "ac2g");
    emit_text(&x->e, "name", "ac2g");
    emit_count(&x->e, "id", id);
    put_place(x, pid, tid, time);
    if (*phase == 'f') emit_text(&x->e, "bp", "e");
    end_event(x);
}

/* Writes the arrow to a work. Arrow ids differ from correlation ids, which repeat in other processes and after 2^32
 * calls of one process. */
static void put_arrows(struct export *x, const uint32_t *first, size_t i, uint64_t row)
{
    const struct works *w = &x->process->works;
    const struct spans *s = &x->process->spans;
    const struct lane *lane = &x->process->lane[w->lane[i]];
    uint32_t launch = x->scope->attribution.launch[i];
    uint64_t id = x->arrows + launch;
    if (launch == NO_PLACE || !is_wanted_call(x, s->thread[launch], s->start[launch], s->end[launch], launch)) return;
    if (first[launch] == i) put_arrow(x, "s", id, x->pid, tid_of(x, s->thread[launch]), s->start[launch]);
    put_arrow(x, "f", id, pid_of_device(x, lane->device), row, w->start[i]);
}

/* ---- spans of stages ----
 *
 * Each call of a stage has a span on each stream, as Kineto's gpu_user_annotation: from the first start to the last end of
 * the work that it launched there, with that of the stages inside it. Kineto has spans of the innermost stages only. Work
 * whose records a selection left out counts by its sums, which have its bounds too; where these are unknown there is no span.
 *
 * Boxes of a row must nest. In a Chrome trace a span that crosses work of another stage, or another span, is an asynchronous
 * pair. Perfetto's sink has lanes for what crosses.
 */

struct lane_span {
    int64_t start, end;
    uint32_t range, lane;
    uint32_t next; /* the next one of the range, index + 1 */
    bool is_unknown;
};

struct lane_spans {
    struct lane_span *span;
    size_t count, capacity;
    uint32_t *first; /* by range: its first span, index + 1 */
};

static void extend_span(struct lane_spans *s, uint32_t range, const struct lane_span *by)
{
    uint32_t at = s->first[range];
    while (at && s->span[at - 1].lane != by->lane) at = s->span[at - 1].next;
    if (at) {
        struct lane_span *span = &s->span[at - 1];
        span->start = MIN(span->start, by->start);
        span->end = MAX(span->end, by->end);
        span->is_unknown |= by->is_unknown;
        return;
    }
    struct lane_span made = *by;
    made.range = range;
    made.next = s->first[range];
    s->span = mem_grow(s->span, &s->capacity, s->count + 1, sizeof *s->span);
    s->span[s->count++] = made;
    s->first[range] = (uint32_t)s->count;
}

/* Adds the work of each stage itself: that with records, and that of which there are sums. */
static void add_own(struct lane_spans *s, const struct export *x)
{
    const struct process *p = x->process;
    const struct works *w = &p->works;
    const struct stage_times *t = &p->stage_times;
    struct map ranges = {0};
    for (size_t i = 0; i < w->table.count; i++) {
        uint32_t stage = x->scope->attribution.work[i].stage;
        if (stage == NO_PLACE || !IS_WORK(w->event_class[i])) continue;
        extend_span(s, stage, &(struct lane_span){.start = w->start[i], .end = w->end[i], .lane = w->lane[i]});
    }
    if (t->table.count) ranges_by_id(&ranges, p);
    for (size_t i = 0; i < t->table.count; i++) {
        uint32_t stage = map_get(&ranges, t->range[i]);
        if (stage == MAP_NONE || !is_stage(&p->ranges, stage)) continue;
        extend_span(s, stage,
                    &(struct lane_span){
                        .start = t->start[i], .end = t->end[i], .lane = t->lane[i], .is_unknown = t->busy[i] < 0});
    }
    map_free(&ranges);
}

/* Adds the spans of each stage to the stage around it; inner stages come first. */
static void add_inner(struct lane_spans *s, const struct attribution *a)
{
    for (size_t i = a->stages; i-- > 0;) {
        uint32_t range = (uint32_t)a->order[i], around = a->paths.outer[range];
        for (uint32_t at = s->first[range]; at && around != NO_PLACE; at = s->span[at - 1].next) {
            const struct lane_span span = s->span[at - 1];
            extend_span(s, around, &span);
        }
    }
}

static int by_lane_span(const void *a, const void *b)
{
    const struct lane_span *x = a, *y = b;
    if (x->lane != y->lane) return x->lane < y->lane ? -1 : 1;
    int nesting = outer_first(x->start, x->end, y->start, y->end);
    return nesting ? nesting : by_number(x->range, y->range); /* the outer stage was opened first */
}

struct own_row {
    struct interval *work; /* of the row that has the stream's number, in order of time; they do not overlap */
    size_t count, capacity;
};

static int by_work_start(const void *a, const void *b)
{
    const struct interval *x = a, *y = b;
    return by_number(x->start, y->start);
}

static struct own_row *own_rows(const struct export *x)
{
    const struct works *w = &x->process->works;
    struct own_row *row = mem_zero(x->process->lanes, sizeof *row);
    for (size_t i = 0; i < w->table.count; i++) {
        struct own_row *of = &row[w->lane[i]];
        if (!IS_WORK(w->event_class[i]) || x->rows.lane[i]) continue;
        of->work = mem_grow(of->work, &of->capacity, of->count + 1, sizeof *of->work);
        of->work[of->count++] = (struct interval){w->start[i], w->end[i]};
    }
    for (size_t i = 0; i < x->process->lanes; i++)
        if (row[i].count) qsort(row[i].work, row[i].count, sizeof *row[i].work, by_work_start);
    return row;
}

/* True if some work of the row runs at this moment, not only from or until it. */
static bool runs_at(const struct own_row *row, int64_t time)
{
    size_t low = 0, high = row->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (row->work[middle].start < time) low = middle + 1;
        else high = middle;
    }
    return low && row->work[low - 1].end > time;
}

static void put_span(struct export *x, const struct lane_span *span, bool crosses)
{
    const struct lane *lane = &x->process->lane[span->lane];
    for (int end = 0; end < (crosses ? 2 : 1); end++) {
        struct name step;
        const struct name *name = range_name(x, span->range, &step);
        begin_event(x, !crosses ? "X" : end ? "e" : "b");
        emit_text(&x->e, "cat", "gpu_user_annotation");
        emit_bytes_text(&x->e, "name", name->text, name->length);
        put_place(x, pid_of_device(x, lane->device), (uint64_t)lane->stream, end ? span->end : span->start);
        if (crosses) emit_hex(&x->e, "id", end ? x->pairs : ++x->pairs);
        else emit_us(&x->e, "dur", span->end - span->start);
        emit_open(&x->e, "args", false);
        emit_int(&x->e, "device", lane->device);
        emit_int(&x->e, "stream", lane->stream);
        emit_close(&x->e);
        end_event(x);
        if (name == &step) free(step.text);
    }
}

static bool wants_span(const struct export *x, const struct lane_span *span)
{
    const struct choice *choice = &x->scope->choice;
    int64_t opened = x->process->ranges.start[span->range];
    return !span->is_unknown && span->start < x->to && span->end >= x->from && choice_in_steps(choice, opened) &&
           (!choice->by_lane || choice->lane[span->lane]) && (x->whole || is_inside(x, span->range, opened));
}

static void put_annotations(struct export *x)
{
    struct lane_spans s = {.first = mem_zero(x->process->ranges.table.count, sizeof *s.first)};
    size_t *open = NULL, depth = 0, capacity = 0;
    add_own(&s, x);
    add_inner(&s, &x->scope->attribution);
    if (s.count) qsort(s.span, s.count, sizeof *s.span, by_lane_span);
    struct own_row *row = own_rows(x);
    for (size_t i = 0; i < s.count; i++) {
        const struct lane_span *span = &s.span[i];
        if (!wants_span(x, span)) continue;
        while (depth && (s.span[open[depth - 1]].lane != span->lane || s.span[open[depth - 1]].end <= span->start))
            depth--;
        bool crosses = depth && s.span[open[depth - 1]].end < span->end;
        crosses |= runs_at(&row[span->lane], span->start) || runs_at(&row[span->lane], span->end);
        if (!x->asked->taker && crosses) {
            put_span(x, span, true);
            continue;
        }
        put_span(x, span, false);
        open = mem_grow(open, &capacity, depth + 1, sizeof *open);
        open[depth++] = i;
    }
    for (size_t i = 0; i < x->process->lanes; i++) free(row[i].work);
    free(row);
    free(open);
    free(s.first);
    free(s.span);
}

/* ---- all work ---- */

static bool wants_work(const struct export *x, size_t i)
{
    const struct works *w = &x->process->works;
    const struct belonging *at = &x->scope->attribution.work[i];
    bool in_time = w->start[i] < x->to && w->end[i] >= x->from;
    bool chosen = choice_in_steps(&x->scope->choice, at->time) &&
                  (!x->scope->choice.by_lane || x->scope->choice.lane[w->lane[i]]);
    return in_time && chosen && (x->whole || is_inside(x, at->stage, at->time));
}

void put_works(struct export *x)
{
    static const char *const categories[] = {[CLASS_KERNEL] = "kernel",
                                             [CLASS_MEMCPY] = "gpu_memcpy",
                                             [CLASS_MEMSET] = "gpu_memset",
                                             [CLASS_SYNC] = "cuda_sync"};
    const struct works *w = &x->process->works;
    uint32_t *first = no_places(x->process->spans.table.count); /* by span: its first work that is written */
    work_rows_init(&x->rows, x->process);
    for (size_t i = 0; i < w->table.count && !(x->asked->without & WITHOUT_GPU); i++) {
        if (!wants_work(x, i)) continue;
        const struct lane *lane = &x->process->lane[w->lane[i]];
        const struct name *name = names_get(&x->chosen->model->names, w->name[i]);
        uint32_t launch = x->scope->attribution.launch[i];
        uint64_t row = row_of_work(x, i);
        begin_event(x, "X");
        emit_text(&x->e, "cat", categories[w->event_class[i]]);
        emit_bytes_text(&x->e, "name", name->text, name->length);
        put_place(x, pid_of_device(x, lane->device), row, w->start[i]);
        emit_us(&x->e, "dur", w->end[i] - w->start[i]);
        put_work_args(x, i);
        end_event(x);
        if (launch != NO_PLACE && first[launch] == NO_PLACE) first[launch] = (uint32_t)i;
        put_arrows(x, first, i, row);
    }
    x->arrows += x->process->spans.table.count;
    if (!(x->asked->without & WITHOUT_GPU)) put_annotations(x);
    work_rows_next(&x->rows);
    free(first);
}

/* ---- samples ---- */

/* Begins a counter of a device, in the row of the device or, if it did no recorded work, in that of the process. The
 * values follow. */
static void begin_counter(struct export *x, const struct device_sample *sample, const char *what)
{
    int64_t pid = pid_of_device(x, sample->device);
    char *name = string_format("GPU %u: %s", sample->device, what);
    begin_event(x, "C");
    emit_text(&x->e, "cat", "device_sample");
    emit_text(&x->e, "name", name);
    put_place(x, pid < 0 ? x->pid : pid, 0, sample->time);
    emit_open(&x->e, "args", false);
    free(name);
}

static void end_counter(struct export *x)
{
    emit_close(&x->e);
    end_event(x);
}

/* Writes a track with 1 for each reason that holds and 0 for the others that ever hold. */
static void put_reasons(struct export *x, const struct device_sample *sample, uint64_t ever)
{
    char room[16];
    begin_counter(x, sample, "throttle reasons");
    for (unsigned bit = 0; bit < 64; bit++)
        if (ever >> bit & 1) emit_count(&x->e, reason_word(bit, room), sample->reasons >> bit & 1);
    end_counter(x);
}

static void put_sample(struct export *x, const struct device_sample *sample, uint64_t ever)
{
    struct emit *e = &x->e;
    if (sample->known & (TFI_SAMPLE_SM_CLOCK | TFI_SAMPLE_MEMORY_CLOCK)) {
        begin_counter(x, sample, "clocks");
        if (sample->known & TFI_SAMPLE_SM_CLOCK) emit_count(e, "SM MHz", sample->sm_mhz);
        if (sample->known & TFI_SAMPLE_MEMORY_CLOCK) emit_count(e, "memory MHz", sample->memory_mhz);
        end_counter(x);
    }
    if (sample->known & TFI_SAMPLE_POWER) {
        begin_counter(x, sample, "power");
        emit_double(e, "W", sample->power_mw / 1e3);
        end_counter(x);
    }
    if (sample->known & TFI_SAMPLE_TEMPERATURE) {
        begin_counter(x, sample, "temperature");
        emit_int(e, "C", sample->temperature);
        end_counter(x);
    }
    if (sample->known & TFI_SAMPLE_BUSY) {
        begin_counter(x, sample, "utilisation");
        emit_count(e, "GPU %", sample->busy);
        emit_count(e, "memory %", sample->memory_busy);
        end_counter(x);
    }
    if (sample->known & TFI_SAMPLE_REASONS && ever) put_reasons(x, sample, ever);
}

/* The export of a stage has no counters, as samples belong to no stage. */
void put_samples(struct export *x)
{
    const struct process *p = x->process;
    uint64_t ever = 0;
    for (size_t i = 0; i < p->samples; i++) ever |= p->sample[i].reasons;
    for (size_t i = 0; i < p->samples && x->whole && !(x->asked->without & WITHOUT_GPU); i++) {
        int64_t time = p->sample[i].time;
        if (time >= x->from && time < x->to && is_chosen(x, time)) put_sample(x, &p->sample[i], ever);
    }
}
