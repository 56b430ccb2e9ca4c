/* kineto_keep.c - keeps the events of a Kineto trace. Times stay as they stand in the file. */
#include "model/load/kineto_keep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/kernel_names.h"
#include "model/kineto/kineto_ops.h"
#include "model/load/load.h"
#include "model/ranges/step_ranges.h"

static uint32_t name_of(void *context, struct slice name)
{
    struct kineto_load *load = context;
    return cached_name(&load->name_cache, name);
}

/* Notes the event that became row `at` of a table. */
static void note_number(struct kineto_load *load, uint32_t **number, size_t *capacity, size_t at)
{
    if (!load->needs.event_numbers) return;
    *number = mem_grow(*number, capacity, at + 1, sizeof **number);
    (*number)[at] = load->events;
}

void keep_range(struct kineto_load *load, const struct kineto_event *event, uint32_t thread)
{
    struct ranges *r = &load->process->ranges;
    static const char any_step[] = ANY_STEP;
    bool details = load->needs.details;
    uint64_t number;
    bool is_step = step_number(event->name, &number);
    ranges_reserve(r, 1, details);
    size_t at = r->table.count++;
    r->start[at] = event->ts;
    r->end[at] = event->ts + event->dur;
    r->id[at] = is_step ? number : NO_ID;
    r->name[at] = name_of(load, is_step && !load->names->full_stages ? (struct slice){any_step, sizeof any_step - 1}
                                                                     : event->name);
    r->thread[at] = thread;
    r->domain[at] = NAME_NONE;
    /* Asynchronous ranges are not marked in the trace, but those of c10d's backends always are (c10d::Work). */
    r->flags[at] = TFI_RANGE_STAGE | TFI_RANGE_NESTED | (is_backend_work(event->name) ? TFI_RANGE_ASYNC : 0);
    r->depth[at] = 0;
    r->step[at] = is_step ? (uint32_t)MIN(number, NO_PLACE - 2) : NO_PLACE;
    r->cpu[at] = -1;
    note_number(load, &load->process->numbers.range, &load->process->numbers.range_capacity, at);
    if (details) r->detail[at] = (struct range_detail){0};
    if (load->needs.all_spans) {
        struct op_detail detail = {0};
        take_op_detail(event, load->info.with_flops, name_of, load, &detail);
        if (event->has & HAS_EXTERNAL) map_put(&load->process->range_of_id, event->external, (uint32_t)at);
        if (detail.shapes != NAME_NONE || detail.modules != NAME_NONE || detail.stack != NAME_NONE)
            range_inputs_add(load->process, at, &detail);
    }
}

/* Returns the demangled name of a kernel if the profiler left it mangled; each name is demangled once. */
static uint32_t kernel_name(struct kineto_load *load, struct slice name)
{
    uint32_t number = name_of(load, name);
    bool mangled = name.length > 2 && memcmp(name.at, "_Z", 2) == 0;
    if (!mangled || load->names->are_of_kineto) return number;
    uint32_t known = map_get(&load->demangled, number);
    if (known == MAP_NONE) {
        char *text = mem_text(name.at, name.length), *shown = demangled_name(text);
        known = shown ? names_add(load->names, shown, strlen(shown)) : number;
        map_put(&load->demangled, number, known);
        free(shown);
        free(text);
    }
    return known;
}

/* Notes the kernel that a call launches. */
static void take_launched(struct kineto_load *load, const struct kineto_event *event, size_t span)
{
    char *plain = mem_text(event->kernel.at, event->kernel.length);
    size_t length = json_unescape(plain, event->kernel.at, event->kernel.length);
    map_put(&load->process->graphs.kernel_of, span, kernel_name(load, (struct slice){plain, length}));
    free(plain);
}

static void take_python_call(struct process *p, const struct kineto_event *event, size_t span)
{
    struct slice at = event->args, key, value;
    int64_t id = -1, parent = -1;
    while (at.at && json_next(&at, &key, &value))
        if (json_is_key(key, "Python id")) json_int(value, &id);
        else if (json_is_key(key, "Python parent id")) json_int(value, &parent);
    if (id < 0) return;
    p->python_call = mem_grow(p->python_call, &p->python_call_capacity, p->python_calls + 1, sizeof *p->python_call);
    p->python_call[p->python_calls++] =
        (struct python_call){(uint64_t)id, parent < 0 ? NO_ID : (uint64_t)parent, (uint32_t)span};
}

/* Returns the name of a span. Our exports name the driver's record of an event as the runtime's, and have its own beside it. */
static uint32_t span_name(struct kineto_load *load, const struct kineto_event *event, enum event_class event_class)
{
    static const char record[] = "cudaEventRecord";
    size_t length = sizeof record - 1;
    bool may = event_class == CLASS_API && event->name.length >= length && memcmp(event->name.at, record, length) == 0;
    struct slice own = may ? json_member(event->args, "function") : (struct slice){0};
    bool is_text = own.length > 2 && *own.at == '"';
    return name_of(load, is_text ? (struct slice){own.at + 1, own.length - 2} : event->name);
}

void keep_span(struct kineto_load *load, const struct kineto_event *event, uint32_t thread,
               enum event_class event_class)
{
    struct spans *s = &load->process->spans;
    spans_reserve(s, 1);
    size_t at = s->table.count++;
    s->start[at] = event->ts;
    s->end[at] = event->ts + event->dur;
    s->id[at] = event_class == CLASS_API ? (event->has & HAS_CORRELATION ? event->correlation : NO_ID)
                                         : (event->has & HAS_EXTERNAL ? event->external : NO_ID);
    s->name[at] = span_name(load, event, event_class);
    s->thread[at] = thread;
    s->event_class[at] = (uint8_t)event_class;
    note_number(load, &load->process->numbers.span, &load->process->numbers.span_capacity, at);
    if (event_class == CLASS_API && s->id[at] == NO_ID && event->has & HAS_EXTERNAL)
        map_put(&load->process->uncorrelated, event->external, (uint32_t)at);
    if (load->needs.captures && event_class == CLASS_API && event->kernel.length) take_launched(load, event, at);
    if ((load->needs.all_spans || load->needs.operator_details) && event_class == CLASS_OPERATOR) {
        struct op_detail detail;
        take_op_detail(event, load->info.with_flops, name_of, load, &detail);
        op_details_add(&s->details, at, &detail);
    }
    if (load->needs.all_spans && event_class == CLASS_API && !(event->has & HAS_EXTERNAL && event->external))
        bits_add(&load->process->unlinked, at);
    if (event_class == CLASS_PYTHON) take_python_call(load->process, event, at);
    if (event_class == CLASS_OPERATOR && event->has & HAS_STREAM && event->stream != -1) {
        struct process *p = load->process;
        p->streamed = mem_grow(p->streamed, &p->streamed_capacity, p->streamed_count + 1, sizeof *p->streamed);
        p->streamed[p->streamed_count++] = (uint32_t)at;
    }
}

/* Returns the lane of a work. If its arguments name no stream, its row does: "stream 7", or a number. */
static uint32_t lane_of(struct kineto_load *load, const struct kineto_event *event)
{
    int64_t device = event->has & HAS_DEVICE ? event->device : event->has & HAS_PID ? event->pid : -1;
    int64_t stream = event->has & HAS_STREAM ? event->stream : event->has & HAS_TID ? event->tid : -1;
    static const char prefix[] = "stream ";
    size_t skip = sizeof prefix - 1;
    if (!(event->has & (HAS_STREAM | HAS_TID)) && event->tid_text.length > skip &&
        memcmp(event->tid_text.at, prefix, skip) == 0) {
        struct number number;
        json_number(event->tid_text.at + skip, 0, &number);
        stream = number.state == NUMBER_GOOD && number.magnitude <= INT64_MAX ? (int64_t)number.magnitude : -1;
    }
    return process_lane(load->process, device, stream, event->has & HAS_STREAM);
}

static bool is_copy(const struct kineto_event *event, enum event_class event_class)
{
    return event_class == CLASS_MEMCPY || event_class == CLASS_MEMSET ||
           (event->name.length > 3 && (memcmp(event->name.at, "Mem", 3) == 0 || memcmp(event->name.at, "dma", 3) == 0));
}

static void take_copied(struct process *p, const struct kineto_event *event, size_t work)
{
    struct slice at = event->args, key, value;
    struct copied copied = {.work = (uint32_t)work};
    int64_t bytes;
    while (at.at && json_next(&at, &key, &value)) {
        if (json_is_key(key, "bytes") && json_int(value, &bytes) && bytes >= 0) {
            copied.has_bytes = true;
            copied.bytes = (uint64_t)bytes;
        } else if (json_is_key(key, "memory bandwidth (GB/s)")) {
            copied.gbs = json_double(value);
            if (!isfinite(copied.gbs)) copied.gbs = 0;
        }
    }
    process_copied(p, copied);
}

static void take_waited(struct process *p, const struct kineto_event *event, size_t work)
{
    struct slice at = event->args, key, value;
    struct waited waited = {.work = (uint32_t)work, .stream = -1, .correlation = NO_ID};
    int64_t number;
    while (at.at && json_next(&at, &key, &value))
        if (json_is_key(key, "wait_on_stream") && json_int(value, &number) && number >= 0) waited.stream = number;
        else if (json_is_key(key, "wait_on_cuda_event_record_corr_id") && json_int(value, &number) && number >= 0)
            waited.correlation = (uint64_t)number;
    if (waited.stream < 0 && waited.correlation == NO_ID) return;
    p->waited = mem_grow(p->waited, &p->waited_capacity, p->waited_count + 1, sizeof *p->waited);
    p->waited[p->waited_count++] = waited;
}

void keep_work(struct kineto_load *load, const struct kineto_event *event, enum event_class event_class)
{
    struct works *w = &load->process->works;
    works_reserve(w, 1);
    size_t at = w->table.count++;
    w->start[at] = event->ts;
    w->end[at] = event->ts + event->dur;
    w->correlation[at] = event->has & HAS_CORRELATION ? event->correlation : NO_ID;
    w->external[at] = event->has & HAS_EXTERNAL ? event->external : NO_ID;
    w->name[at] = kernel_name(load, event->name);
    w->lane[at] = lane_of(load, event);
    w->event_class[at] = (uint8_t)event_class;
    note_number(load, &load->process->numbers.work, &load->process->numbers.work_capacity, at);
    if (load->needs.captures && event->has & HAS_GRAPH && event->has & HAS_NODE)
        graphs_add_work(&load->process->graphs, at, event->graph, event->node);
    if (load->needs.copied && is_copy(event, event_class)) take_copied(load->process, event, at);
    if (load->needs.filling && event_class == CLASS_KERNEL) take_filling(event, load->process, at);
    if (load->needs.waited && event_class == CLASS_SYNC) take_waited(load->process, event, at);
    if (load->needs.device && event_class == CLASS_KERNEL && comm_describes(event))
        map_put(&load->process->described, at, 1);
    if (event_class == CLASS_KERNEL) comm_take_kernel(&load->comm, load->process, event, w->name[at], load->needs);
    if (!load->needs.device) { /* only the collective is wanted */
        struct collectives *c = &load->process->collectives;
        if (c->count && c->collective[c->count - 1].work == at) c->collective[c->count - 1].work = NO_WORK;
        w->table.count--;
    }
}

void keep_forward(struct kineto_load *load, const struct kineto_event *event, uint32_t thread)
{
    struct forwards *f = &load->process->forwards;
    forwards_reserve(f, 1);
    size_t at = f->table.count++;
    f->id[at] = event->id;
    f->time[at] = event->ts;
    f->thread[at] = thread;
    f->is_forward[at] = event->phase == 's';
}

void keep_counters(struct kineto_load *load, const struct kineto_event *event)
{
    take_counters(event, kernel_name(load, event->name), name_of, load, &load->process->counters);
}
