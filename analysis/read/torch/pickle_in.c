/* pickle_in.c - a machine for the opcodes of plain data. */
#include "read/torch/pickle_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

enum {
    MOST_NESTING = 32,
    MOST_VALUES = 1 << 22,  /* of a file */
    LONGEST_TEXT = 1 << 20, /* bytes */
    MOST_MEMO = 1 << 20,
    MOST_KEY_BYTES = 1 << 27,
    HIGHEST_PROTOCOL = 5,
};

enum opcode {
    OP_MARK = '(',
    OP_STOP = '.',
    OP_BINFLOAT = 'G',
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_NONE = 'N',
    OP_BINUNICODE = 'X',
    OP_EMPTY_LIST = ']',
    OP_APPEND = 'a',
    OP_APPENDS = 'e',
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_SETITEM = 's',
    OP_TUPLE = 't',
    OP_SETITEMS = 'u',
    OP_EMPTY_DICT = '}',
    OP_EMPTY_TUPLE = ')',
    OP_PROTO = 0x80,
    OP_TUPLE1 = 0x85,
    OP_TUPLE2 = 0x86,
    OP_TUPLE3 = 0x87,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_LONG1 = 0x8a,
    OP_SHORT_BINUNICODE = 0x8c,
    OP_BINUNICODE8 = 0x8d,
    OP_MEMOIZE = 0x94,
    OP_FRAME = 0x95,
};

/* The names of opcodes that are refused, for the message. */
static const struct {
    unsigned char opcode;
    const char *name;
} refused[] = {{'R', "REDUCE"}, {'c', "GLOBAL"},    {'b', "BUILD"},   {'i', "INST"},        {'o', "OBJ"},
               {'P', "PERSID"}, {'Q', "BINPERSID"}, {0x81, "NEWOBJ"}, {0x92, "NEWOBJ_EX"},  {0x93, "STACK_GLOBAL"},
               {0x82, "EXT1"},  {0x83, "EXT2"},     {0x84, "EXT4"},   {0x97, "NEXT_BUFFER"}};

struct item {
    json_t *value;  /* NULL: a mark */
    bool is_sealed; /* it came from the memo, or is no list or dictionary: it may not be changed */
};

/* Added to a container's nesting: it is on the stack and may be changed; it was used again meanwhile, so that a change could
 * make it contain itself. A pickler uses only what it has finished, but leaves it on the stack. */
enum { OPEN = 1 << 16, FROZEN = 1 << 17 };

struct machine {
    const unsigned char *bytes;
    size_t length, at, opcode_at;
    struct item *stack;
    size_t count, capacity;
    json_t **memo;
    size_t memos, memo_capacity, values, key_bytes;
    struct map nesting; /* of each container, by address */
    const char *fault;  /* what is wrong; NULL: nothing */
};

/* ---- bytes ---- */

static bool fail(struct machine *m, const char *fault)
{
    m->fault = m->fault ? m->fault : fault;
    return false;
}

static const unsigned char *take_bytes(struct machine *m, uint64_t bytes)
{
    if (bytes > m->length - m->at) {
        fail(m, "its argument goes beyond the end of the file");
        return NULL;
    }
    m->at += (size_t)bytes;
    return m->bytes + m->at - bytes;
}

/* Reads a little-endian number of up to eight bytes. */
static bool take_number(struct machine *m, unsigned bytes, uint64_t *number)
{
    const unsigned char *p = take_bytes(m, bytes);
    *number = 0;
    for (unsigned i = 0; p && i < bytes; i++) *number |= (uint64_t)p[i] << (8 * i);
    return p != NULL;
}

/* ---- the nesting of containers ---- */

static uint64_t address_of(const json_t *value)
{
    return (uint64_t)(uintptr_t)value;
}

static bool is_container(const json_t *value)
{
    return json_is_array(value) || json_is_object(value);
}

/* A value that is no container has nesting 0. */
static unsigned nesting_of(const struct machine *m, const json_t *value)
{
    return is_container(value) ? map_get(&m->nesting, address_of(value)) & (OPEN - 1u) : 0;
}

static bool set_nesting(struct machine *m, const json_t *value, unsigned nesting, bool is_open)
{
    map_put(&m->nesting, address_of(value), nesting | (is_open ? OPEN : 0));
    return nesting <= MOST_NESTING || fail(m, "values are nested too deeply");
}

/* ---- the stack ---- */

static bool push(struct machine *m, json_t *value, bool is_sealed)
{
    if (!value) return fail(m, "no memory is left");
    m->stack = mem_grow(m->stack, &m->capacity, m->count + 1, sizeof *m->stack);
    m->stack[m->count++] = (struct item){value, is_sealed};
    return ++m->values <= MOST_VALUES || fail(m, "the file has more than 4,194,304 values");
}

/* Pushes an empty list or dictionary. */
static bool push_new(struct machine *m, json_t *value)
{
    return push(m, value, false) && set_nesting(m, value, 1, true);
}

static bool push_mark(struct machine *m)
{
    m->stack = mem_grow(m->stack, &m->capacity, m->count + 1, sizeof *m->stack);
    m->stack[m->count++] = (struct item){0};
    return ++m->values <= MOST_VALUES || fail(m, "the file has more than 4,194,304 values");
}

static struct item *top(struct machine *m)
{
    struct item *item = m->count ? &m->stack[m->count - 1] : NULL;
    if (item && item->value) return item;
    fail(m, "there is no value on the stack");
    return NULL;
}

/* Returns the place behind the last mark; SIZE_MAX: there is none. */
static size_t after_mark(struct machine *m)
{
    for (size_t i = m->count; i; i--)
        if (!m->stack[i - 1].value) return i;
    fail(m, "there is no mark on the stack");
    return SIZE_MAX;
}

/* A container that leaves the stack may not be changed any more. */
static void drop_to(struct machine *m, size_t count)
{
    while (m->count > count) {
        const struct item *item = &m->stack[--m->count];
        if (!item->is_sealed && item->value && is_container(item->value))
            set_nesting(m, item->value, nesting_of(m, item->value), false);
        json_decref(item->value);
    }
}

/* Makes the values from `first` on a list, and drops what is above place `below`. */
static bool make_tuple(struct machine *m, size_t first, size_t below)
{
    json_t *list = json_array();
    unsigned nesting = 0;
    bool has_mark = false;
    for (size_t i = first; i < m->count; i++) {
        has_mark |= !m->stack[i].value;
        nesting = MAX(nesting, m->stack[i].value ? nesting_of(m, m->stack[i].value) : 0);
        json_array_append(list, m->stack[i].value);
    }
    drop_to(m, below);
    if (!push(m, list, true) || !set_nesting(m, list, nesting + 1, false)) return false;
    return !has_mark || fail(m, "there is a mark among its values");
}

static bool make_small_tuple(struct machine *m, size_t values)
{
    if (m->count < values) return fail(m, "there are too few values on the stack");
    return make_tuple(m, m->count - values, m->count - values);
}

/* ---- changing containers ---- */

/* Returns the container below place `first`, which may be changed. */
static struct item *container(struct machine *m, size_t first, bool is_list)
{
    struct item *item = first ? &m->stack[first - 1] : NULL;
    if (!item || !item->value || (is_list ? !json_is_array(item->value) : !json_is_object(item->value)) ||
        item->is_sealed) {
        fail(m, "there is no container that it may change");
        return NULL;
    }
    if (map_get(&m->nesting, address_of(item->value)) & FROZEN) {
        fail(m, "a container would contain itself");
        return NULL;
    }
    return item;
}

static bool nest(struct machine *m, const struct item *in, const json_t *value)
{
    return set_nesting(m, in->value, MAX(nesting_of(m, in->value), nesting_of(m, value) + 1), true);
}

static bool append(struct machine *m, size_t first, size_t end)
{
    struct item *list = container(m, end, true);
    for (size_t i = first; list && i < m->count; i++) {
        if (!m->stack[i].value) return fail(m, "there is a mark among its values");
        if (!nest(m, list, m->stack[i].value)) return false;
        json_array_append(list->value, m->stack[i].value);
    }
    if (list) drop_to(m, end);
    return list != NULL;
}

static bool set_items(struct machine *m, size_t first, size_t end)
{
    struct item *object = container(m, end, false);
    if (!object) return false;
    if ((m->count - first) % 2) return fail(m, "a key has no value");
    for (size_t i = first; i < m->count; i += 2) {
        json_t *key = m->stack[i].value, *value = m->stack[i + 1].value;
        char number[32];
        if (!key || !value) return fail(m, "there is a mark among its values");
        snprintf(number, sizeof number, "%lld", json_is_integer(key) ? (long long)json_integer_value(key) : 0);
        if (!json_is_string(key) && !json_is_integer(key)) return fail(m, "a key is neither a text nor a number");
        if (!nest(m, object, value)) return false;
        m->key_bytes += json_string_length(key); /* the library keeps a copy for each dictionary */
        if (m->key_bytes > MOST_KEY_BYTES)
            return fail(m, "its keys have more than 134,217,728 bytes, each time that they are used");
        json_object_set_nocheck(object->value, json_is_string(key) ? json_string_value(key) : number, value);
    }
    drop_to(m, end);
    return true;
}

/* ---- the memo ---- */

static bool put(struct machine *m, uint64_t place)
{
    const struct item *item = top(m);
    if (!item) return false;
    if (place >= MOST_MEMO) return fail(m, "its number in the memo is above 1,048,575");
    size_t before = m->memos;
    if (place >= m->memos) {
        m->memo = mem_grow(m->memo, &m->memo_capacity, (size_t)place + 1, sizeof *m->memo);
        m->memos = (size_t)place + 1;
        memset(m->memo + before, 0, (m->memos - before) * sizeof *m->memo);
    }
    json_decref(m->memo[place]);
    m->memo[place] = json_incref(item->value);
    return true;
}

static bool get(struct machine *m, uint64_t place)
{
    json_t *value = place < m->memos ? m->memo[place] : NULL;
    if (!value) return fail(m, "the memo has no such value");
    uint32_t nesting = is_container(value) ? map_get(&m->nesting, address_of(value)) : 0;
    if (nesting & OPEN) map_put(&m->nesting, address_of(value), nesting | FROZEN);
    return push(m, json_incref(value), true);
}

/* ---- values ---- */

static bool push_text(struct machine *m, unsigned size_bytes)
{
    uint64_t length;
    if (!take_number(m, size_bytes, &length)) return false;
    if (length > LONGEST_TEXT) return fail(m, "its text is longer than 1,048,576 bytes");
    const unsigned char *text = take_bytes(m, length);
    return text && push(m, json_stringn_nocheck((const char *)text, (size_t)length), true);
}

static bool push_integer(struct machine *m, unsigned bytes, bool has_sign)
{
    uint64_t number;
    if (bytes > 8) return fail(m, "its number has more than 64 bits");
    if (!take_number(m, bytes, &number)) return false;
    if (has_sign && bytes && bytes < 8 && number >> (8 * bytes - 1)) number |= UINT64_MAX << (8 * bytes);
    return push(m, json_integer((json_int_t)number), true);
}

static bool push_float(struct machine *m)
{
    const unsigned char *p = take_bytes(m, 8);
    uint64_t bits = 0;
    double number;
    for (int i = 0; p && i < 8; i++) bits = bits << 8 | p[i];
    memcpy(&number, &bits, sizeof number);
    bool is_finite = number - number == 0;
    return p && push(m, is_finite ? json_real(number) : json_null(), true);
}

static bool long_integer(struct machine *m)
{
    uint64_t bytes;
    return take_number(m, 1, &bytes) && push_integer(m, (unsigned)bytes, true);
}

/* ---- opcodes ---- */

static bool number_then(struct machine *m, unsigned bytes, bool (*then)(struct machine *m, uint64_t place))
{
    uint64_t place;
    return take_number(m, bytes, &place) && then(m, place);
}

static bool collect(struct machine *m, bool is_list)
{
    size_t first = after_mark(m);
    if (first == SIZE_MAX) return false;
    return is_list ? append(m, first, first - 1) : set_items(m, first, first - 1);
}

static bool change_one(struct machine *m, size_t values, bool is_list)
{
    if (m->count < values + 1) return fail(m, "there are too few values on the stack");
    size_t first = m->count - values;
    return is_list ? append(m, first, first) : set_items(m, first, first);
}

static bool take_protocol(struct machine *m)
{
    uint64_t protocol;
    return take_number(m, 1, &protocol) && (protocol <= HIGHEST_PROTOCOL || fail(m, "its protocol is above 5"));
}

static bool skip_frame(struct machine *m)
{
    uint64_t length;
    return take_number(m, 8, &length);
}

static bool execute(struct machine *m, unsigned char opcode)
{
    size_t first;
    switch (opcode) {
    case OP_PROTO: return take_protocol(m);
    case OP_FRAME: return skip_frame(m);
    case OP_MARK: return push_mark(m);
    case OP_EMPTY_DICT: return push_new(m, json_object());
    case OP_EMPTY_LIST: return push_new(m, json_array());
    case OP_EMPTY_TUPLE: return make_small_tuple(m, 0);
    case OP_NONE: return push(m, json_null(), true);
    case OP_NEWTRUE: return push(m, json_true(), true);
    case OP_NEWFALSE: return push(m, json_false(), true);
    case OP_BININT: return push_integer(m, 4, true);
    case OP_BININT1: return push_integer(m, 1, false);
    case OP_BININT2: return push_integer(m, 2, false);
    case OP_LONG1: return long_integer(m);
    case OP_BINFLOAT: return push_float(m);
    case OP_SHORT_BINUNICODE: return push_text(m, 1);
    case OP_BINUNICODE: return push_text(m, 4);
    case OP_BINUNICODE8: return push_text(m, 8);
    case OP_BINPUT: return number_then(m, 1, put);
    case OP_LONG_BINPUT: return number_then(m, 4, put);
    case OP_MEMOIZE: return put(m, m->memos);
    case OP_BINGET: return number_then(m, 1, get);
    case OP_LONG_BINGET: return number_then(m, 4, get);
    case OP_APPEND: return change_one(m, 1, true);
    case OP_SETITEM: return change_one(m, 2, false);
    case OP_APPENDS: return collect(m, true);
    case OP_SETITEMS: return collect(m, false);
    case OP_TUPLE1: return make_small_tuple(m, 1);
    case OP_TUPLE2: return make_small_tuple(m, 2);
    case OP_TUPLE3: return make_small_tuple(m, 3);
    case OP_TUPLE: first = after_mark(m); return first != SIZE_MAX && make_tuple(m, first, first - 1);
    default: return fail(m, "it is not an opcode of plain data");
    }
}

static const char *name_of(unsigned char opcode)
{
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        if (refused[i].opcode == opcode) return refused[i].name;
    return "";
}

json_t *pickle_read(const unsigned char *bytes, size_t length, char **why)
{
    struct machine m = {.bytes = bytes, .length = length};
    json_t *value = NULL;
    unsigned char opcode = 0;
    *why = NULL;
    while (m.at < length && !m.fault) {
        m.opcode_at = m.at;
        opcode = bytes[m.at++];
        if (opcode == OP_STOP || !execute(&m, opcode)) break;
    }
    if (!m.fault && opcode != OP_STOP) fail(&m, "the file ends without STOP");
    if (!m.fault && top(&m) && m.count == 1) value = json_incref(m.stack[0].value);
    if (!value) {
        *why = string_format("is refused at byte %zu, opcode 0x%02x%s%s: %s; nothing in it was executed", m.opcode_at,
                             opcode, *name_of(opcode) ? " " : "", name_of(opcode),
                             m.fault ? m.fault : "more than one value is left");
    }
    drop_to(&m, 0);
    for (size_t i = 0; i < m.memos; i++) json_decref(m.memo[i]);
    free(m.stack);
    free(m.memo);
    map_free(&m.nesting);
    return value;
}
