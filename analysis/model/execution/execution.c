/* execution.c - reads the starts and ends of libtorch's functions from a trace of ours. */
#include "model/execution/execution.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* ---- records ---- */

static struct function_edge *add_edge(struct executions *e, uint64_t time, uint64_t handle)
{
    e->edge = mem_grow(e->edge, &e->capacity, e->edges + 1, sizeof *e->edge);
    struct function_edge *edge = &e->edge[e->edges];
    *edge = (struct function_edge){.time = time, .handle = handle, .place = e->edges++, .first = e->words};
    return edge;
}

/* Keeps the values of the edge added last. */
static void add_words(struct executions *e, struct function_edge *edge, const uint64_t *word, uint32_t count)
{
    e->word = mem_grow(e->word, &e->word_capacity, e->words + count, sizeof *e->word);
    if (count) memcpy(e->word + e->words, word, count * sizeof *word);
    e->words += count;
    edge->count = count;
}

static void take_begins(struct executions *e, struct decoder *d, struct group *group)
{
    const uint32_t *first = NULL;
    const uint64_t *time = group_own(d, group, COL_function_begin_time),
                   *handle = group_own(d, group, COL_function_begin_handle);
    const uint64_t *name = group_own(d, group, COL_function_begin_name),
                   *sequence = group_own(d, group, COL_function_begin_sequence);
    const uint64_t *thread = group_own(d, group, COL_function_begin_logical_thread),
                   *forward = group_own(d, group, COL_function_begin_forward);
    const uint64_t *scope = group_own(d, group, COL_function_begin_scope),
                   *flags = group_own(d, group, COL_function_begin_flags);
    const uint64_t *word = group_list(d, group, group->kind->own[COL_function_begin_inputs], &first);
    bool is_whole = time && handle && name && sequence && thread && forward && scope && flags && word;
    for (uint32_t i = 0; i < group->count && is_whole && !group->damaged; i++) {
        struct function_edge *edge = add_edge(e, time[i], handle[i]);
        edge->string = (uint32_t)name[i];
        edge->sequence = (int64_t)sequence[i];
        edge->thread = (uint32_t)thread[i];
        edge->forward = (uint32_t)forward[i];
        edge->scope = (uint32_t)scope[i];
        edge->flags = (uint32_t)flags[i];
        add_words(e, edge, word + first[i], first[i + 1] - first[i]);
    }
    if (!is_whole || group->damaged) e->bad_records += group->count;
}

static void take_ends(struct executions *e, struct decoder *d, struct group *group)
{
    const uint32_t *first = NULL;
    const uint64_t *time = group_own(d, group, COL_function_end_time),
                   *handle = group_own(d, group, COL_function_end_handle);
    const uint64_t *schema = group_own(d, group, COL_function_end_schema),
                   *flags = group_own(d, group, COL_function_end_flags);
    const uint64_t *modules = group_own(d, group, COL_function_end_modules); /* an older trace has none */
    const uint64_t *word = group_list(d, group, group->kind->own[COL_function_end_outputs], &first);
    bool is_whole = time && handle && schema && flags && word;
    for (uint32_t i = 0; i < group->count && is_whole && !group->damaged; i++) {
        struct function_edge *edge = add_edge(e, time[i], handle[i]);
        edge->is_end = true;
        edge->string = (uint32_t)schema[i];
        edge->modules = modules ? (uint32_t)modules[i] : 0;
        edge->flags = (uint32_t)flags[i];
        add_words(e, edge, word + first[i], first[i + 1] - first[i]);
    }
    if (!is_whole || group->damaged) e->bad_records += group->count;
}

static int edges_by_time(const void *a, const void *b)
{
    const struct function_edge *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

void executions_read(struct executions *executions, struct trace *trace)
{
    struct reader reader = {.trace = trace};
    struct chunk chunk;
    *executions = (struct executions){0};
    while (reader_next(&reader, &chunk)) {
        for (unsigned g = 0; g < chunk.groups; g++) {
            struct group *group = &chunk.group[g];
            if (!group->kind || !group->count) continue;
            if (group->number == TFI_KIND_function_begin) take_begins(executions, &reader.decoder, group);
            if (group->number == TFI_KIND_function_end) take_ends(executions, &reader.decoder, group);
        }
    }
    executions->unread = reader.unread;
    reader_free(&reader);
    if (executions->edges) qsort(executions->edge, executions->edges, sizeof *executions->edge, edges_by_time);
}

void executions_free(struct executions *executions)
{
    free(executions->edge);
    free(executions->word);
    *executions = (struct executions){0};
}

/* ---- values ---- */

static bool take_word(struct words *words, uint64_t *word)
{
    if (words->at >= words->end) return false;
    *word = *words->at++;
    return true;
}

static const uint64_t *take_dims(struct words *words, unsigned dims)
{
    const uint64_t *at = words->at;
    if ((size_t)(words->end - at) < dims) return NULL;
    words->at += dims;
    return at;
}

static bool take_tensor(struct words *words, uint64_t head, struct torch_value *value)
{
    value->dims = head >> 8 & 0xff;
    value->type = head >> 24 & 0xffff;
    value->has_storage = head & TFI_VALUE_HAS_STORAGE;
    if (!take_word(words, &value->tensor)) return false;
    if (value->has_storage &&
        !(take_word(words, &value->storage) && take_word(words, &value->offset) && take_word(words, &value->elements)))
        return false;
    if (head & TFI_VALUE_HAS_SIZES && !(value->sizes = take_dims(words, value->dims))) return false;
    return !(head & TFI_VALUE_HAS_STRIDES) || (value->strides = take_dims(words, value->dims)) != NULL;
}

bool words_next(struct words *words, struct torch_value *value)
{
    uint64_t head;
    if (!take_word(words, &head)) return false;
    *value =
        (struct torch_value){.kind = head & 0xff, .device = head >> 40 & 0xff, .device_index = (int8_t)(head >> 48)};
    switch (value->kind) {
    case TFI_VALUE_TENSOR: return take_tensor(words, head, value);
    case TFI_VALUE_INT:
    case TFI_VALUE_DOUBLE:
    case TFI_VALUE_BOOL:
    case TFI_VALUE_STRING:
        value->is_known = head & TFI_VALUE_IS_KNOWN;
        return !value->is_known || take_word(words, &value->payload);
    case TFI_VALUE_TUPLE:
    case TFI_VALUE_GENERIC_LIST: value->parts = (uint32_t)(head >> 32); return true;
    case TFI_VALUE_KEYWORD: value->payload = head >> 32; return true;
    default: return true;
    }
}

/* ---- names ---- */

#define VALUE(number, name, text) [number] = text,
#define ELEMENT(number, text, bytes, own)
#define DEVICE(number, text)
static const char *const kinds[256] = {
#include "torch_values.def"
};
#undef VALUE
#undef ELEMENT
#undef DEVICE

#define VALUE(number, name, text)
#define ELEMENT(number, text, bytes, own) [number] = {text, own, bytes},
#define DEVICE(number, text)
static const struct {
    const char *name, *own;
    unsigned bytes;
} elements[] = {
#include "torch_values.def"
};
#undef VALUE
#undef ELEMENT
#undef DEVICE

#define VALUE(number, name, text)
#define ELEMENT(number, text, bytes, own)
#define DEVICE(number, text) [number] = text,
static const char *const devices[] = {
#include "torch_values.def"
};
#undef VALUE
#undef ELEMENT
#undef DEVICE

const char *torch_kind_name(unsigned kind)
{
    return kind < ARRAY_SIZE(kinds) && kinds[kind] ? kinds[kind] : "Unknown";
}

const char *torch_element_name(unsigned type)
{
    return type < ARRAY_SIZE(elements) ? elements[type].name : "unknown";
}

const char *torch_scalar_name(uint64_t type)
{
    return type < ARRAY_SIZE(elements) ? elements[type].own : NULL;
}

unsigned torch_element_bytes(unsigned type)
{
    return type < ARRAY_SIZE(elements) ? elements[type].bytes : 0;
}

const char *torch_device_name(unsigned device)
{
    return device < ARRAY_SIZE(devices) ? devices[device] : "unknown";
}
