/* kineto_ops.c - reads the arguments of operators, of memory events and of ranges with counters. */
#include "model/kineto/kineto_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/load/flops.h"
#include "model/load/load.h"

/* Compares with a literal, whose length the compiler knows. */
static inline bool is(struct slice key, const char *literal)
{
    size_t length = strlen(literal);
    return key.length == length && memcmp(key.at, literal, length) == 0;
}

/* Parses a stack; old traces have its frames on one line, joined with semicolons. The result equals that of
 * stack_add. */
static uint32_t stack_of(struct slice value, uint32_t (*name)(void *, struct slice), void *context)
{
    char *text = json_text(value);
    size_t count = 0, capacity = 0;
    uint32_t *frame = NULL, stack = NAME_NONE;
    for (const char *at = text; at && *at;) {
        size_t length = strcspn(at, ";");
        frame = mem_grow(frame, &capacity, count + 1, sizeof *frame);
        frame[count++] = name(context, (struct slice){at, length});
        at += length + (at[length] == ';');
    }
    if (count) stack = name(context, (struct slice){(const char *)frame, count * sizeof *frame});
    free(frame);
    free(text);
    return stack;
}

/* Returns the name of a JSON string without its escapes; NAME_NONE if it is empty. */
static uint32_t text_name(struct slice value, uint32_t (*name)(void *, struct slice), void *context)
{
    char *text = json_text(value);
    uint32_t number = text && *text ? name(context, (struct slice){text, strlen(text)}) : NAME_NONE;
    free(text);
    return number;
}

/* Recognises autograd's frame around a backward operator: it carries that operator's numbers but is none itself. */
static bool is_frame(struct slice name)
{
    static const char evaluates[] = "autograd::engine::evaluate_function: ";
    return name.length >= sizeof evaluates - 1 && memcmp(name.at, evaluates, sizeof evaluates - 1) == 0;
}

/* Of a convolution the numbers are its geometry. Those of others are many, and no answer has them. */
static bool convolves(struct slice name)
{
    return name.at && memmem(name.at, name.length, "conv", 4);
}

void take_op_detail(const struct kineto_event *event, bool with_flops, uint32_t (*name)(void *, struct slice),
                    void *context, struct op_detail *detail)
{
    struct slice at = event->args, key, value, dims = {0}, types = {0}, concrete = {0};
    int64_t number;
    *detail = (struct op_detail){.sequence = -1};
    while (at.at && json_next(&at, &key, &value)) {
        if (is(key, "Input Dims") || is(key, "Input dims")) {
            detail->shapes = name(context, value);
            dims = value;
        } else if (is(key, "Input type")) {
            detail->types = name(context, value);
            types = value;
        } else if (is(key, "Concrete Inputs")) {
            concrete = value;
            if (convolves(event->name)) detail->concrete = name(context, value);
        } else if (is(key, "Sequence number") && json_int(value, &number)) {
            detail->sequence = number;
        } else if (is(key, "Fwd thread id") && json_int(value, &number) && number > 0) {
            detail->forward_thread = (uint32_t)number;
            detail->scope = is_frame(event->name) ? TFI_SCOPE_FUNCTION : TFI_SCOPE_BACKWARD;
        } else if (is(key, "FLOPs") && json_int(value, &number)) {
            detail->flops = number > 0 ? (uint64_t)number : 0;
        } else if (is(key, "native") && slice_is(value, "true")) {
            detail->scope = TFI_SCOPE_NATIVE;
        } else if (is(key, "Module Hierarchy")) {
            detail->modules = text_name(value, name, context);
        } else if (is(key, "Call stack")) {
            detail->stack = stack_of(value, name, context);
        }
    }
    if (with_flops && !detail->flops && dims.at) detail->flops = op_flops(event->name, dims, types, concrete);
}

/* Maps c10::DeviceType to the host, the device or neither, as torch counts memory. */
static int64_t device_of(int64_t type, int64_t number)
{
    enum { CPU = 0, CUDA = 1, MKLDNN = 2, IDEEP = 5, HIP = 6, XPU = 12, PRIVATE = 20 };
    switch (type) {
    case CPU:
    case MKLDNN:
    case IDEEP: return DEVICE_HOST;
    case CUDA:
    case HIP:
    case XPU:
    case PRIVATE: return MAX(number, 0);
    default: return DEVICE_OTHER;
    }
}

void take_block(const struct kineto_event *event, struct blocks *b)
{
    struct slice at = event->args, key, value;
    int64_t type = 0, number = -1, address = 0, bytes = 0, allocated = -1, reserved = -1;
    while (at.at && json_next(&at, &key, &value)) {
        int64_t *to = is(key, "Device Type")       ? &type
                      : is(key, "Device Id")       ? &number
                      : is(key, "Addr")            ? &address
                      : is(key, "Bytes")           ? &bytes
                      : is(key, "Total Allocated") ? &allocated
                      : is(key, "Total Reserved")  ? &reserved
                                                   : NULL;
        if (to) json_int(value, to);
    }
    blocks_reserve(b, 1);
    size_t to = b->table.count++;
    if (allocated < 0 || reserved < 0) map_put(&b->untold, to, 1);
    b->time[to] = event->ts;
    b->bytes[to] = bytes;
    b->address[to] = (uint64_t)address;
    b->allocated[to] = (uint64_t)MAX(allocated, 0);
    b->reserved[to] = (uint64_t)MAX(reserved, 0);
    b->device[to] = device_of(type, number);
    b->thread[to] = 0;
    b->allocator[to] = b->stack[to] = NAME_NONE;
    b->other[to] = 0;
    b->kind[to] = BLOCK_NONE;
}

void take_filling(const struct kineto_event *event, struct process *process, size_t work)
{
    struct slice at = event->args, key, value;
    struct filling filling = {.work = (uint32_t)work, .blocks = NAN, .occupancy = NAN};
    while (at.at && json_next(&at, &key, &value))
        if (json_is_key(key, "blocks per SM")) filling.blocks = json_double(value);
        else if (json_is_key(key, "est. achieved occupancy %")) filling.occupancy = json_double(value);
    if (!isnan(filling.blocks) || !isnan(filling.occupancy)) add_filling(process, filling);
}

static bool is_number(struct slice value, double *number)
{
    char *text = value.length && strchr("-0123456789", *value.at) ? json_text(value) : NULL;
    *number = text ? strtod(text, NULL) : NAN;
    free(text);
    return isfinite(*number);
}

void take_counters(const struct kineto_event *event, uint32_t kernel, uint32_t (*name)(void *, struct slice),
                   void *context, struct counter_ranges *ranges)
{
    struct slice at = event->args, key, value;
    size_t first = ranges->values;
    char plain[256] = {0};
    double number;
    while (at.at && json_next(&at, &key, &value)) {
        if (!key.at || key.length > sizeof plain || !is_number(value, &number)) continue;
        size_t length = json_unescape(plain, key.at, key.length);
        key = (struct slice){plain, length};
        ranges->counted =
            mem_grow(ranges->counted, &ranges->value_capacity, ranges->values + 1, sizeof *ranges->counted);
        ranges->counted[ranges->values++] = (struct counted){name(context, key), number};
    }
    ranges->range = mem_grow(ranges->range, &ranges->capacity, ranges->count + 1, sizeof *ranges->range);
    ranges->range[ranges->count++] =
        (struct counter_range){event->ts, event->ts + event->dur, kernel, first, ranges->values - first};
}
