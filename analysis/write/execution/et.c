/* et.c - writes PyTorch's execution trace from the starts and ends of libtorch's functions.
 *
 * torch's ExecutionTraceObserver numbers functions, threads, tensors and storages as it meets them, from 2 on, and this
 * file meets them in the same order: at a start the thread, the function, then its inputs; at an end the outputs. A
 * tensor and a storage are what lies at an address. A node is written at the end of its function, its parent is the
 * function that was open in its thread.
 *
 * torch's observer describes the process groups with a function of its own when it starts. If no observer ran, the node
 * is made of the metadata and comes first, without a number and in the thread of the first function.
 */
#include "write/execution/et.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "read/json/json.h"
#include "write/execution/groups.h"

enum { DEPTH = 16, ROOT = 1, FIRST = 2 };

/* A thread by libtorch's number, with the stack of its open functions. */
struct et_thread {
    uint32_t node; /* its id */
    uint32_t top;  /* edge of the innermost open function; NO_PLACE: none */
};

/* A function between its start and its end; the places are those of edges. */
struct et_open {
    uint32_t id, parent, forward_parent;
    uint32_t below; /* edge of the function around it in its thread */
    bool is_open;
};

struct et {
    struct out *out;
    const struct trace *trace;
    const struct executions *executions;
    struct et_counts *counts;
    uint32_t ids;         /* the next one */
    struct map object;    /* id of a tensor or storage, by address */
    struct map thread_of; /* place in `thread`, by libtorch's number */
    struct et_thread *thread;
    size_t threads, capacity;
    struct map begun; /* edge of an open function, by handle */
    struct et_open *open;
    bool has_node; /* one is written */
    bool is_short; /* the values being written are not whole */
};

/* ---- numbers ---- */

static uint32_t object_id(struct et *et, uint64_t address)
{
    uint32_t id = map_get(&et->object, address);
    if (id != MAP_NONE) return id;
    map_put(&et->object, address, et->ids);
    return et->ids++;
}

static struct words words_of(const struct et *et, const struct function_edge *edge)
{
    const uint64_t *at = et->executions->word + edge->first;
    return (struct words){at, at + edge->count};
}

/* Numbers the tensors among the values in their order. */
static void number_objects(struct et *et, const struct function_edge *edge)
{
    struct words words = words_of(et, edge);
    struct torch_value value;
    while (words_next(&words, &value)) {
        if (value.kind == TFI_VALUE_KEYWORD) return; /* torch numbers no named inputs */
        if (value.kind != TFI_VALUE_TENSOR) continue;
        object_id(et, value.tensor);
        if (value.has_storage) object_id(et, value.storage);
    }
}

/* ---- values ---- */

enum part { VALUES, SHAPES, TYPES, STRIDES };

static void put_string(struct et *et, uint64_t number)
{
    const struct string *string = strings_get(&et->trace->strings, number);
    if (string) out_json_string(et->out, string->text, string->length);
    else out_puts(et->out, "\"\"");
}

static void put_dims(struct out *out, const uint64_t *dims, unsigned count)
{
    out_puts(out, "[");
    for (unsigned i = 0; dims && i < count; i++) out_format(out, "%s%" PRId64, i ? "," : "", (int64_t)dims[i]);
    out_puts(out, "]");
}

static void put_device(struct out *out, const struct torch_value *value)
{
    out_format(out, "\"%s", torch_device_name(value->device));
    if (value->device_index >= 0) out_format(out, ":%d", value->device_index);
    out_puts(out, "\"");
}

/* Writes a double as std::to_string does. */
static void put_double(struct out *out, uint64_t bits)
{
    double number;
    memcpy(&number, &bits, sizeof number);
    const char *quote = isfinite(number) ? "" : "\"";
    out_format(out, "%s%f%s", quote, number, quote);
}

static void put_tensor_value(struct et *et, const struct torch_value *value)
{
    uint32_t tensor = object_id(et, value->tensor), storage = value->has_storage ? object_id(et, value->storage) : 0;
    out_format(et->out, "[%u,%u,%" PRIu64 ",%" PRIu64 ",%u,", tensor, storage, value->offset, value->elements,
               value->has_storage ? torch_element_bytes(value->type) : 0);
    if (value->has_storage) put_device(et->out, value);
    else out_puts(et->out, "\"\"");
    out_puts(et->out, "]");
}

static void put_scalar_value(struct et *et, const struct torch_value *value)
{
    switch (value->kind) {
    case TFI_VALUE_INT: out_format(et->out, "%" PRId64, (int64_t)value->payload); break;
    case TFI_VALUE_DOUBLE: put_double(et->out, value->payload); break;
    case TFI_VALUE_BOOL: out_puts(et->out, value->payload ? "true" : "false"); break;
    default: put_string(et, value->payload); break;
    }
}

static void put_value(struct et *et, enum part part, struct words *words, const struct torch_value *value,
                      unsigned depth);

/* Writes the elements of a list or tuple. */
static void put_parts(struct et *et, enum part part, struct words *words, uint32_t parts, unsigned depth)
{
    struct torch_value value;
    out_puts(et->out, "[");
    for (uint32_t i = 0; i < parts; i++) {
        if (depth == DEPTH || !words_next(words, &value)) {
            et->is_short = true;
            words->at = words->end;
            break;
        }
        out_puts(et->out, i ? "," : "");
        put_value(et, part, words, &value, depth + 1);
    }
    out_puts(et->out, "]");
}

static void put_type(struct et *et, struct words *words, const struct torch_value *value, unsigned depth)
{
    bool is_list = value->kind == TFI_VALUE_GENERIC_LIST || value->kind == TFI_VALUE_TUPLE;
    out_format(et->out, "%s%s", depth ? "" : "\"", torch_kind_name(value->kind));
    if (value->kind == TFI_VALUE_TENSOR) out_format(et->out, "(%s)", torch_element_name(value->type));
    if (is_list) put_parts(et, TYPES, words, value->parts, depth);
    out_puts(et->out, depth ? "" : "\"");
}

static void put_value(struct et *et, enum part part, struct words *words, const struct torch_value *value,
                      unsigned depth)
{
    bool is_list = value->kind == TFI_VALUE_GENERIC_LIST || value->kind == TFI_VALUE_TUPLE;
    bool is_scalar = value->kind == TFI_VALUE_INT || value->kind == TFI_VALUE_DOUBLE || value->kind == TFI_VALUE_BOOL ||
                     value->kind == TFI_VALUE_STRING;
    if (part == TYPES) put_type(et, words, value, depth);
    else if (is_list) put_parts(et, part, words, value->parts, depth);
    else if (part == SHAPES) put_dims(et->out, value->sizes, value->dims);
    else if (part == STRIDES) put_dims(et->out, value->strides, value->dims);
    else if (value->kind == TFI_VALUE_TENSOR) put_tensor_value(et, value);
    else if (value->kind == TFI_VALUE_DEVICE) put_device(et->out, value);
    else if (is_scalar && value->is_known) put_scalar_value(et, value);
    else if (is_scalar) out_puts(et->out, "null");
    else out_format(et->out, "\"<%s>\"", torch_kind_name(value->kind));
}

/* Finds the input of a name; false if there is none, or no value of that kind. Its parts are next in `words`. */
static bool keyword_at(const struct et *et, const struct function_edge *edge, const char *name, unsigned kind,
                       struct torch_value *value, struct words *words)
{
    *words = words_of(et, edge);
    while (words_next(words, value)) {
        if (value->kind != TFI_VALUE_KEYWORD) continue;
        const struct string *string = strings_get(&et->trace->strings, value->payload);
        bool is_it = string && string->length == strlen(name) && memcmp(string->text, name, string->length) == 0;
        if (!words_next(words, value)) return false;
        if (is_it) return value->kind == kind && (value->is_known || kind == TFI_VALUE_GENERIC_LIST);
    }
    return false;
}

static bool keyword(const struct et *et, const struct function_edge *edge, const char *name, unsigned kind,
                    struct torch_value *value)
{
    struct words words;
    return keyword_at(et, edge, name, kind, value, &words);
}

static bool is_triton(const struct et *et, const struct function_edge *edge)
{
    struct torch_value value;
    const struct string *backend = keyword(et, edge, "kernel_backend", TFI_VALUE_STRING, &value)
                                       ? strings_get(&et->trace->strings, value.payload)
                                       : NULL;
    return backend && backend->length == 6 && memcmp(backend->text, "triton", 6) == 0;
}

/* Writes what torch takes from the named inputs of a Triton kernel: its grid and its stream, without strides. */
static void put_kernel_inputs(struct et *et, enum part part, const struct function_edge *edge, bool is_first)
{
    static const struct {
        const char *name;
        unsigned kind;
    } given[] = {{"grid", TFI_VALUE_STRING}, {"stream", TFI_VALUE_INT}};
    struct torch_value value;
    struct words none = {NULL, NULL};
    for (size_t i = 0; i < ARRAY_SIZE(given) && part != STRIDES; i++) {
        if (!keyword(et, edge, given[i].name, given[i].kind, &value)) continue;
        out_puts(et->out, is_first ? "" : ",");
        put_value(et, part, &none, &value, 0);
        is_first = false;
    }
}

static void put_list(struct et *et, enum part part, const struct function_edge *edge)
{
    struct words words = words_of(et, edge);
    struct torch_value value;
    bool is_first = true;
    out_puts(et->out, "[");
    while (words_next(&words, &value) && value.kind != TFI_VALUE_KEYWORD) {
        out_puts(et->out, is_first ? "" : ",");
        put_value(et, part, &words, &value, 0);
        is_first = false;
    }
    if (!edge->is_end && is_triton(et, edge)) put_kernel_inputs(et, part, edge, is_first);
    out_puts(et->out, "]");
}

static void put_values(struct et *et, const char *key, const struct function_edge *edge)
{
    static const char *const parts[] = {"values", "shapes", "types", "strides"};
    out_format(et->out, ",\"%s\":{", key);
    for (enum part part = VALUES; part <= STRIDES; part++) {
        out_format(et->out, "%s\"%s\":", part ? "," : "", parts[part]);
        if (edge) put_list(et, part, edge);
        else out_puts(et->out, "[]");
    }
    out_puts(et->out, "}");
}

/* ---- nodes ---- */

static void put_number(struct et *et, const char *name, const char *type, int64_t value)
{
    bool is_signed = strcmp(type, "int64") == 0;
    out_format(et->out, "%s{\"name\":\"%s\",\"type\":\"%s\",\"value\":", strcmp(name, "rf_id") ? "," : "", name, type);
    out_format(et->out, is_signed ? "%" PRId64 "}" : "%" PRIu64 "}", value);
}

/* As torch, which calls it a string. */
static void put_bool(struct et *et, const char *name, bool value)
{
    out_format(et->out, ",{\"name\":\"%s\",\"type\":\"string\",\"value\":%s}", name, value ? "true" : "false");
}

static void put_text(struct et *et, const char *name, const char *bytes, size_t length)
{
    out_format(et->out, ",{\"name\":\"%s\",\"type\":\"string\",\"value\":", name);
    out_json_string(et->out, bytes, length);
    out_puts(et->out, "}");
}

static void put_kernel(struct et *et, const struct function_edge *begin)
{
    struct torch_value value;
    const struct string *backend = NULL, *file = NULL;
    if (begin && keyword(et, begin, "kernel_backend", TFI_VALUE_STRING, &value))
        backend = strings_get(&et->trace->strings, value.payload);
    if (begin && is_triton(et, begin) && keyword(et, begin, "kernel_file", TFI_VALUE_STRING, &value))
        file = strings_get(&et->trace->strings, value.payload);
    const char *slash = file ? memrchr(file->text, '/', file->length) : NULL;
    const char *name = slash ? slash + 1 : file ? file->text : "";
    put_text(et, "kernel_backend", backend ? backend->text : "", backend ? backend->length : 0);
    put_text(et, "kernel_file", name, file ? (size_t)(file->text + file->length - name) : 0);
}

/* Writes a list of numbers as a text. */
static void put_numbers(struct et *et, const char *name, struct words *words, uint32_t count)
{
    struct torch_value value;
    out_format(et->out, ",{\"name\":\"%s\",\"type\":\"string\",\"value\":\"[", name);
    for (uint32_t i = 0; i < count && words_next(words, &value); i++)
        out_format(et->out, "%s%" PRId64, i ? ", " : "", (int64_t)value.payload);
    out_puts(et->out, "]\"}");
}

/* Writes what libtorch's description of a collective says, in torch's order. */
static void put_collective(struct et *et, const struct function_edge *begin)
{
    static const struct {
        const char *name;
        unsigned kind;
    } given[] = {{"collective_name", TFI_VALUE_STRING},
                 {"dtype", TFI_VALUE_INT},
                 {"in_msg_nelems", TFI_VALUE_INT},
                 {"out_msg_nelems", TFI_VALUE_INT},
                 {"in_split_size", TFI_VALUE_GENERIC_LIST},
                 {"out_split_size", TFI_VALUE_GENERIC_LIST},
                 {"global_rank_start", TFI_VALUE_INT},
                 {"global_rank_stride", TFI_VALUE_INT},
                 {"pg_name", TFI_VALUE_STRING},
                 {"pg_desc", TFI_VALUE_STRING},
                 {"pg_size", TFI_VALUE_INT},
                 {"is_asynchronized_op", TFI_VALUE_BOOL}};
    struct torch_value value;
    for (size_t i = 0; i < ARRAY_SIZE(given); i++) {
        struct words words;
        if (!keyword_at(et, begin, given[i].name, given[i].kind, &value, &words)) continue;
        const struct string *string =
            value.kind == TFI_VALUE_STRING ? strings_get(&et->trace->strings, value.payload) : NULL;
        const char *type = strcmp(given[i].name, "dtype") == 0 ? torch_scalar_name(value.payload) : NULL;
        if (value.kind == TFI_VALUE_GENERIC_LIST) put_numbers(et, given[i].name, &words, value.parts);
        else if (string) put_text(et, given[i].name, string->text, string->length);
        else if (type) put_text(et, given[i].name, type, strlen(type));
        else if (value.kind == TFI_VALUE_INT) put_number(et, given[i].name, "uint64", (int64_t)value.payload);
        else if (value.kind == TFI_VALUE_BOOL) put_bool(et, given[i].name, value.payload != 0);
    }
}

static bool is_described(const struct et *et, const struct function_edge *begin)
{
    static const char name[] = "record_param_comms";
    const struct string *string = begin ? strings_get(&et->trace->strings, begin->string) : NULL;
    return string && string->length == sizeof name - 1 && memcmp(string->text, name, string->length) == 0;
}

static void begin_node(struct et *et, uint32_t id)
{
    out_format(et->out, "%s\n{\"id\":%u,\"name\":", et->has_node ? "," : "", id);
    et->has_node = true;
}

/* Writes the attributes, which end a node. A node of the process or of a thread has no edges. */
static void put_attributes(struct et *et, uint32_t forward_parent, uint32_t thread, const struct function_edge *begin,
                           const struct function_edge *end)
{
    const struct string *schema = end ? strings_get(&et->trace->strings, end->string) : NULL;
    const struct string *modules = end ? strings_get(&et->trace->strings, end->modules) : NULL;
    out_puts(et->out, ",\"attrs\":[");
    put_number(et, "rf_id", "uint64", begin ? (int64_t)begin->handle : 0);
    put_number(et, "fw_parent", "uint64", forward_parent);
    put_number(et, "seq_id", "int64", begin ? begin->sequence : -1);
    put_number(et, "scope", "uint64", begin ? begin->scope : TFI_SCOPE_USER);
    put_number(et, "tid", "uint64", thread);
    put_number(et, "fw_tid", "uint64", begin ? begin->forward : 0);
    put_text(et, "op_schema", schema ? schema->text : "", schema ? schema->length : 0);
    put_kernel(et, begin);
    put_text(et, "tensor_range", "", 0);
    if (is_described(et, begin)) put_collective(et, begin);
    if (modules && modules->length) put_text(et, "module_hierarchy", modules->text, modules->length);
    out_puts(et->out, "]}");
}

/* Writes the rest of a node behind its name. */
static void put_node(struct et *et, uint32_t parent, uint32_t forward_parent, uint32_t thread,
                     const struct function_edge *begin, const struct function_edge *end)
{
    out_format(et->out, ",\"ctrl_deps\":%u", parent);
    put_values(et, "inputs", begin);
    put_values(et, "outputs", end);
    put_attributes(et, forward_parent, thread, begin, end);
}

static void put_named_node(struct et *et, uint32_t id, const char *name, uint32_t thread)
{
    begin_node(et, id);
    out_format(et->out, "\"[pytorch|profiler|execution_trace|%s]\"", name);
    put_node(et, ROOT, 0, thread, NULL, NULL);
}

/* ---- starts and ends ---- */

/* Returns the place of a thread, whose node is written at its first function. */
static size_t thread_at(struct et *et, uint32_t number)
{
    size_t at = map_number(&et->thread_of, number);
    if (at < et->threads) return at;
    et->thread = mem_grow(et->thread, &et->capacity, et->threads + 1, sizeof *et->thread);
    et->thread[et->threads++] = (struct et_thread){et->ids++, NO_PLACE};
    put_named_node(et, et->thread[at].node, "thread", number);
    return at;
}

/* Returns the id of a thread's innermost open function, else of the thread. Functions may end in another order. */
static uint32_t innermost(struct et *et, struct et_thread *thread)
{
    while (thread->top != NO_PLACE && !et->open[thread->top].is_open) thread->top = et->open[thread->top].below;
    return thread->top == NO_PLACE ? thread->node : et->open[thread->top].id;
}

static void take_begin(struct et *et, uint32_t at)
{
    const struct function_edge *edge = &et->executions->edge[at];
    struct et_open *open = &et->open[at];
    size_t thread = thread_at(et, edge->thread);
    open->id = et->ids++;
    number_objects(et, edge);
    open->parent = innermost(et, &et->thread[thread]);
    uint32_t forward = edge->forward ? map_get(&et->thread_of, edge->forward) : MAP_NONE;
    open->forward_parent = forward == MAP_NONE ? 0 : innermost(et, &et->thread[forward]);
    open->below = et->thread[thread].top;
    open->is_open = true;
    et->thread[thread].top = at;
    if (map_get(&et->begun, edge->handle) == MAP_NONE) et->counts->open++;
    map_put(&et->begun, edge->handle, at);
}

static void take_end(struct et *et, const struct function_edge *end)
{
    uint32_t at = map_get(&et->begun, end->handle);
    if (at == MAP_NONE) {
        et->counts->endless++;
        return;
    }
    const struct function_edge *begin = &et->executions->edge[at];
    struct et_open *open = &et->open[at];
    map_remove(&et->begun, end->handle);
    number_objects(et, end);
    open->is_open = false;
    et->is_short = (begin->flags | end->flags) & TFI_EXECUTION_CUT;
    begin_node(et, open->id);
    put_string(et, begin->string);
    put_node(et, open->parent, open->forward_parent, begin->thread, begin, end);
    et->counts->cut += et->is_short;
    et->counts->failed += (end->flags & TFI_EXECUTION_MISSING) != 0;
    et->counts->nodes++;
    et->counts->open--;
}

/* ---- process groups ---- */

static bool has_groups(const struct et *et)
{
    const struct executions *e = et->executions;
    for (uint32_t i = 0; i < e->edges; i++) {
        const struct string *name = e->edge[i].is_end ? NULL : strings_get(&et->trace->strings, e->edge[i].string);
        if (name && slice_is((struct slice){name->text, name->length}, GROUPS_FUNCTION)) return true;
    }
    return false;
}

static void put_groups(struct et *et, const char *text)
{
    uint32_t thread = et->executions->edges ? et->executions->edge[0].thread : 0;
    size_t at = thread_at(et, thread);
    begin_node(et, et->ids++);
    out_format(et->out, "\"%s\",\"ctrl_deps\":%u,\"inputs\":{\"values\":[", GROUPS_FUNCTION, et->thread[at].node);
    out_json_string(et->out, text, strlen(text));
    out_puts(et->out, "],\"shapes\":[[]],\"types\":[\"String\"],\"strides\":[[]]}");
    put_values(et, "outputs", NULL);
    put_attributes(et, 0, thread, NULL, NULL);
}

/* ---- the file ---- */

static void put_head(struct et *et, const struct process *process)
{
    char text[32] = "";
    time_t seconds = process->has_time ? (time_t)(process->first / 1000000000) : 0;
    struct tm broken;
    if (localtime_r(&seconds, &broken)) strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &broken);
    out_format(et->out, "{\"schema\":\"1.1.1-chakra.0.0.4\",\"pid\":%" PRId64 ",\"time\":\"%s\",\"start_ts\":%" PRId64,
               process->pid, text, process->has_time ? process->first / 1000000 : 0);
    out_puts(et->out, ",\"nodes\":[");
}

void et_write(struct out *out, const struct process *process, const struct executions *executions,
              struct et_counts *counts)
{
    struct et et = {.out = out, .trace = process->trace, .executions = executions, .counts = counts, .ids = FIRST};
    *counts = (struct et_counts){0};
    et.open = mem_zero(executions->edges, sizeof *et.open);
    char *groups = has_groups(&et) ? NULL : groups_text(process);
    put_head(&et, process);
    if (groups) put_groups(&et, groups);
    for (uint32_t i = 0; i < executions->edges && !out->failed; i++)
        if (executions->edge[i].is_end) take_end(&et, &executions->edge[i]);
        else take_begin(&et, i);
    put_named_node(&et, ROOT, "process", 0);
    out_format(out, "\n],\"finish_ts\":%" PRId64 "}\n", process->has_time ? process->last / 1000000 : 0);
    map_free(&et.object);
    map_free(&et.thread_of);
    map_free(&et.begun);
    free(et.thread);
    free(et.open);
    free(groups);
}
