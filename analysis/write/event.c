/* event.c - makes events of typed values and of scanned text, and finds and prints their arguments. */
#include "write/event.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "write/emit.h"
#include "write/out.h"

/* ---- values ---- */

/* Copies a text behind the others, with a zero. Returns its place among them. */
static struct slice keep_text(struct event_values *values, const char *text, size_t length)
{
    struct text *texts = &values->texts;
    size_t at = texts->length;
    texts->data = mem_grow(texts->data, &texts->capacity, at + length + 1, 1);
    if (length) memcpy(texts->data + at, text, length);
    texts->data[at + length] = 0;
    texts->length = at + length + 1;
    return (struct slice){(const char *)at, length};
}

static struct value *add_value(struct event_values *values, const char *key, enum value_kind kind)
{
    values->value = mem_grow(values->value, &values->capacity, values->count + 1, sizeof *values->value);
    struct value *value = &values->value[values->count++];
    value->kind = kind;
    value->has_key = key;
    value->is_written = false;
    value->key = key ? keep_text(values, key, strlen(key)) : (struct slice){0};
    return value;
}

void values_keep(struct event_values *values, const char *key, enum value_kind kind, uint64_t bits)
{
    add_value(values, key, kind)->count = bits;
}

bool values_take_double(struct event_values *values, const char *key, double value)
{
    if (values) add_value(values, key, isfinite(value) ? VALUE_DOUBLE : VALUE_NULL)->real = value;
    return values;
}

/* Text is kept as valid UTF-8; JSON without characters that act on a terminal, and ready to be scanned. */
bool values_take_text(struct event_values *values, const char *key, enum value_kind kind, const char *text,
                      size_t length)
{
    if (!values) return false;
    bool is_kept = kind == VALUE_TEXT && is_ascii(text, length);
    struct value *value = add_value(values, key, kind);
    value->text = keep_text(values, text, is_kept ? length : 0);
    if (is_kept) return true;
    values->texts.length--;
    (kind == VALUE_JSON ? text_json : text_utf8)(&values->texts, text, length);
    value->text.length = values->texts.length - (uintptr_t)value->text.at;
    json_padded(&values->texts);
    return true;
}

void event_values_free(struct event_values *values)
{
    free(values->value);
    text_free(&values->texts);
    *values = (struct event_values){0};
}

/* ---- events ---- */

/* Makes places of texts the texts themselves, once no more are added. */
static void settle_texts(struct event_values *values)
{
    const char *texts = values->texts.data;
    for (size_t i = 0; i < values->count; i++) {
        struct value *value = &values->value[i];
        if (value->has_key) value->key.at = texts + (uintptr_t)value->key.at;
        if (value->kind == VALUE_TEXT || value->kind == VALUE_JSON) value->text.at = texts + (uintptr_t)value->text.at;
    }
}

static void take_place(struct event *event, unsigned flag, int64_t *to, uint64_t number, bool is_signed)
{
    if (!is_signed && number > INT64_MAX) return;
    *to = (int64_t)number;
    event->has |= flag;
}

/* Takes the arguments, the last of the values. */
static void take_arguments(struct event *event, const struct value *object, const struct value *end)
{
    event->has_args = true;
    event->argument = object + 1;
    event->arguments = (size_t)(end - object) - 2; /* without both brackets */
}

struct event event_of_values(struct event_values *values, int64_t base)
{
    struct event event = {.values = values};
    settle_texts(values);
    const struct value *end = values->value + values->count;
    for (const struct value *value = values->value; value < end; value++) {
        const char *key = value->key.at;
        switch (key[0]) { /* the first two letters tell the keys of an event apart */
        case 'p':
            if (key[1] == 'h') event.phase = *value->text.at;
            else take_place(&event, HAS_PID, &event.pid, value->count, true);
            break;
        case 't':
            if (key[1] == 'i') take_place(&event, HAS_TID, &event.tid, value->count, false);
            else take_place(&event, HAS_TS | HAS_FLOAT_TS, &event.ts, (uint64_t)(value->number + base), true);
            break;
        case 'd': take_place(&event, HAS_DUR | HAS_FLOAT_DUR, &event.dur, value->count, true); break;
        case 'c': event.category = value->text; break;
        case 'n': event.name = value->text; break;
        case 'i':
            event.id = value->count;
            event.has |= HAS_ID;
            break;
        case 'a': take_arguments(&event, value, end); return event;
        }
    }
    return event;
}

struct event event_of_file(const struct kineto_event *event)
{
    return (struct event){.phase = event->phase,
                          .has = event->has,
                          .ts = event->ts,
                          .dur = event->dur,
                          .pid = event->pid,
                          .tid = event->tid,
                          .device = event->device,
                          .id = event->id,
                          .pid_text = event->pid_text,
                          .tid_text = event->tid_text,
                          .category = event->category,
                          .name = event->name,
                          .raw = event->raw,
                          .args = event->args,
                          .has_args = event->args.at != NULL};
}

void event_split(struct event *event, struct event_values *room)
{
    struct slice rest = event->args, key, json;
    if (event->values || !rest.at) return;
    room->count = 0;
    while (json_next(&rest, &key, &json)) {
        struct value *value = add_value(room, NULL, VALUE_JSON);
        value->key = key;
        value->has_key = key.at;
        value->is_written = true;
        value->text = json;
    }
    event->argument = room->value;
    event->arguments = room->count;
}

/* ---- arguments ---- */

size_t value_length(const struct value *value)
{
    size_t count = 0, depth = 0;
    do {
        depth += value[count].kind == VALUE_OBJECT || value[count].kind == VALUE_LIST;
        depth -= value[count++].kind == VALUE_END;
    } while (depth);
    return count;
}

const struct value *event_argument(const struct event *event, const char *key)
{
    const struct value *found = NULL;
    for (size_t i = 0; i < event->arguments; i += value_length(&event->argument[i])) {
        const struct value *value = &event->argument[i];
        if (value_has_key(value, key)) found = value;
    }
    return found;
}

char *value_text(const struct value *value)
{
    if (value && value->kind == VALUE_TEXT) return mem_text(value->text.at, value->text.length);
    return value && value->kind == VALUE_JSON ? json_text(value->text) : NULL;
}

bool value_int(const struct value *value, int64_t *number)
{
    static const double most = 1e17; /* JSON has larger ones with an exponent */
    if (!value || value->kind == VALUE_JSON) return value && json_int(value->text, number);
    if (value->kind == VALUE_DOUBLE && fabs(value->real) < most && value->real == trunc(value->real)) {
        *number = (int64_t)value->real;
        return true;
    }
    if (value->kind != VALUE_INT && (value->kind != VALUE_COUNT || value->count > INT64_MAX)) return false;
    *number = value->number;
    return true;
}

/* Returns microseconds as a reader of their digits gets them. */
static double us_read(int64_t ns)
{
    static const int64_t exact = INT64_C(1) << DBL_MANT_DIG; /* up to this the quotient is the nearest double */
    char digits[US_LENGTH + 1] = {0};
    if (ns < exact && ns > -exact) return (double)ns / 1e3;
    us_write(digits, ns);
    return strtod(digits, NULL);
}

double value_real(const struct value *value)
{
    switch (value->kind) {
    case VALUE_COUNT: return (double)value->count;
    case VALUE_INT: return (double)value->number;
    case VALUE_US: return us_read(value->number);
    case VALUE_DOUBLE: return value->real;
    default: return NAN;
    }
}

struct slice value_object(const struct value *value)
{
    bool is_object = value && value->kind == VALUE_JSON && value->text.length && *value->text.at == '{';
    return is_object ? value->text : (struct slice){0};
}

size_t value_print(struct emit *e, const struct value *value)
{
    const char *key = value->has_key ? value->key.at : NULL;
    size_t count = 1;
    switch (value->kind) {
    case VALUE_NULL: emit_null(e, key); break;
    case VALUE_BOOL: emit_bool(e, key, value->count); break;
    case VALUE_COUNT: emit_count(e, key, value->count); break;
    case VALUE_INT: emit_int(e, key, value->number); break;
    case VALUE_US: emit_us(e, key, value->number); break;
    case VALUE_DOUBLE: emit_double(e, key, value->real); break;
    case VALUE_HEX: emit_hex(e, key, value->count); break;
    case VALUE_TEXT: emit_bytes_text(e, key, value->text.at, value->text.length); break;
    case VALUE_JSON: emit_json(e, key, value->text.at, value->text.length); break;
    case VALUE_OBJECT:
    case VALUE_LIST:
        emit_open(e, key, value->kind == VALUE_LIST);
        while (value[count].kind != VALUE_END) count += value_print(e, &value[count]);
        emit_close(e);
        count++;
        break;
    case VALUE_END: break;
    }
    return count;
}

void value_print_key(struct out *out, const struct value *value)
{
    if (!value->is_written) {
        out_json_string(out, value->key.at, value->key.length);
        return;
    }
    out_write(out, "\"", 1);
    out_write(out, value->key.at, value->key.length);
    out_write(out, "\"", 1);
}
