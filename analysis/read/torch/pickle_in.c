/* pickle_in.c - builds JSON from pickles. Values are shared as in the pickle, so that they take a multiple of its size. */
#include "read/torch/pickle_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "read/torch/pickle_machine.h"

enum {
    MOST_VALUES = 1 << 22,  /* of a file */
    LONGEST_TEXT = 1 << 20, /* bytes */
    MOST_KEY_BYTES = 1 << 27,
};

struct values {
    json_t **value;
    size_t count, capacity;
};

struct building {
    struct values texts, containers; /* by their numbers */
    size_t key_bytes;
};

static const char *keep_value(struct values *values, json_t *value)
{
    if (!value) return "no memory is left";
    values->value = mem_grow(values->value, &values->capacity, values->count + 1, sizeof(json_t *));
    values->value[values->count++] = value;
    return NULL;
}

static void values_free(struct values *values)
{
    for (size_t i = 0; i < values->count; i++) json_decref(values->value[i]);
    free(values->value);
}

/* Returns a new reference. */
static json_t *value_of(const struct building *b, const struct pickle_item *item)
{
    double number;
    switch (item->type) {
    case PICKLE_FALSE: return json_false();
    case PICKLE_TRUE: return json_true();
    case PICKLE_INTEGER: return json_integer((json_int_t)item->value);
    case PICKLE_FLOAT:
        memcpy(&number, &item->value, sizeof number);
        return number - number == 0 ? json_real(number) : json_null();
    case PICKLE_TEXT: return json_incref(b->texts.value[item->value]);
    case PICKLE_LIST:
    case PICKLE_DICT: return json_incref(b->containers.value[item->value]);
    default: return json_null();
    }
}

/* ---- the builder ---- */

static const char *take_text(void *context, const char *bytes, size_t length, uint32_t *number)
{
    struct building *b = context;
    *number = (uint32_t)b->texts.count;
    return keep_value(&b->texts, json_stringn_nocheck(bytes, length));
}

static const char *begin_container(void *context, bool is_dict)
{
    struct building *b = context;
    return keep_value(&b->containers, is_dict ? json_object() : json_array());
}

static const char *set_item(struct building *b, json_t *object, const struct pickle_item *key, json_t *value)
{
    const json_t *text = key->type == PICKLE_TEXT ? b->texts.value[key->value] : NULL;
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)key->value);
    b->key_bytes += json_string_length(text); /* the library keeps a copy for each dictionary */
    json_object_set_new_nocheck(object, text ? json_string_value(text) : number, value);
    if (b->key_bytes <= MOST_KEY_BYTES) return NULL;
    return "its keys have more than 134,217,728 bytes, each time that they are used";
}

static const char *add_items(void *context, const struct pickle_item *to, const struct pickle_item *item, size_t count)
{
    struct building *b = context;
    json_t *container = b->containers.value[to->value];
    const char *fault = NULL;
    for (size_t i = 0; i < count && to->type == PICKLE_LIST; i++)
        json_array_append_new(container, value_of(b, &item[i]));
    for (size_t i = 0; i < count && to->type == PICKLE_DICT && !fault; i += 2)
        fault = set_item(b, container, &item[i], value_of(b, &item[i + 1]));
    return fault;
}

static const char *end_container(void *context, uint32_t container)
{
    (void)context;
    (void)container;
    return NULL;
}

json_t *pickle_read(const unsigned char *bytes, size_t length, char **why)
{
    struct building building = {0};
    const struct pickle_builder builder = {&building, take_text, begin_container, add_items, end_container};
    struct stream stream;
    struct pickle_machine machine = {
        .stream = &stream, .builder = &builder, .most_values = MOST_VALUES, .longest_text = LONGEST_TEXT};
    struct pickle_item item;
    stream_open_memory(&stream, bytes, length, STREAM_BLOCK);
    *why = pickle_execute(&machine, &item);
    json_t *value = *why ? NULL : value_of(&building, &item);
    stream_close(&stream);
    pickle_machine_free(&machine);
    values_free(&building.texts);
    values_free(&building.containers);
    return value;
}
