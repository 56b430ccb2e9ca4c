/* pickle_machine.c - executes the opcodes of plain data. */
#include "read/torch/pickle_machine.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_NESTING = 32, HIGHEST_PROTOCOL = 5 };

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

/* The state of a container: its nesting, and whether it may be changed. FROZEN: it is on the stack and was used again
 * meanwhile, so that a change could make it contain itself. A pickler uses only what it has finished, but leaves it on the
 * stack. */
enum { NESTING = 0x3f, OPEN = 0x40, FROZEN = 0x80 };

/* ---- bytes ---- */

static bool fail(struct pickle_machine *m, const char *fault)
{
    m->fault = m->fault ? m->fault : fault;
    return false;
}

static bool fail_beyond(struct pickle_machine *m, const char *what, uint64_t limit, const char *unit)
{
    char digits[32], *at = digits + sizeof digits - 1;
    *at = 0;
    for (unsigned i = 0; !i || limit; i++, limit /= 10) { /* 4,194,304 */
        if (i && i % 3 == 0) *--at = ',';
        *--at = (char)('0' + limit % 10);
    }
    if (!m->fault) m->long_fault = string_format("%s %s%s", what, at, unit);
    return fail(m, m->long_fault);
}

/* Makes the window hold so many bytes. */
static bool have(struct pickle_machine *m, uint64_t bytes)
{
    struct stream *s = m->stream;
    while ((uint64_t)(s->end - s->at) < bytes)
        if (!stream_more(s)) return fail(m, "its argument goes beyond the end of the file");
    return true;
}

static const unsigned char *take_bytes(struct pickle_machine *m, uint64_t bytes)
{
    struct stream *s = m->stream;
    if ((uint64_t)(s->end - s->at) < bytes && !have(m, bytes)) return NULL;
    s->at += bytes;
    return (const unsigned char *)s->at - bytes;
}

/* Reads a little-endian number of up to eight bytes. */
static bool take_number(struct pickle_machine *m, unsigned bytes, uint64_t *number)
{
    const unsigned char *p = take_bytes(m, bytes);
    *number = 0;
    for (unsigned i = 0; p && i < bytes; i++) *number |= (uint64_t)p[i] << (8 * i);
    return p != NULL;
}

/* ---- containers ---- */

static bool is_container(const struct pickle_item *item)
{
    return item->type >= PICKLE_LIST;
}

static unsigned nesting_of(const struct pickle_machine *m, const struct pickle_item *item)
{
    return is_container(item) ? m->state[item->value] & NESTING : 0;
}

/* Ends a container that is open. */
static bool end_item(struct pickle_machine *m, const struct pickle_item *item)
{
    if (!is_container(item) || item->is_sealed) return true;
    uint8_t *state = &m->state[item->value];
    bool is_new = *state & OPEN && !(*state & FROZEN);
    *state &= NESTING;
    const char *fault = is_new ? m->builder->end(m->builder->context, (uint32_t)item->value) : NULL;
    return !fault || fail(m, fault);
}

/* Ends the items from `first` on, which go into a container; sets `nesting` to that of the deepest. */
static bool end_all(struct pickle_machine *m, size_t first, unsigned *nesting)
{
    for (size_t i = first; i < m->count; i++) {
        if (m->stack[i].type == PICKLE_MARK) return fail(m, "there is a mark among its values");
        if (!end_item(m, &m->stack[i])) return false;
        *nesting = MAX(*nesting, nesting_of(m, &m->stack[i]) + 1);
    }
    return *nesting <= MOST_NESTING || fail(m, "values are nested too deeply");
}

/* ---- the stack ---- */

static bool push(struct pickle_machine *m, enum pickle_type type, uint64_t value, bool is_sealed)
{
    m->stack = mem_grow(m->stack, &m->capacity, m->count + 1, sizeof *m->stack);
    m->stack[m->count++] = (struct pickle_item){value, (uint8_t)type, is_sealed};
    return ++m->values <= m->most_values || fail_beyond(m, "the file has more than", m->most_values, " values");
}

/* Pushes an empty list or dictionary. */
static bool push_new(struct pickle_machine *m, enum pickle_type type)
{
    if (m->containers == UINT32_MAX) return fail(m, "the file has more than 4,294,967,295 lists and dictionaries");
    const char *fault = m->builder->begin(m->builder->context, type == PICKLE_DICT);
    m->state = mem_grow(m->state, &m->state_capacity, m->containers + 1, sizeof *m->state);
    m->state[m->containers] = 1 | OPEN;
    if (fault) return fail(m, fault);
    return push(m, type, m->containers++, false);
}

static const struct pickle_item *top(struct pickle_machine *m)
{
    const struct pickle_item *item = m->count ? &m->stack[m->count - 1] : NULL;
    if (item && item->type != PICKLE_MARK) return item;
    fail(m, "there is no value on the stack");
    return NULL;
}

/* Returns the place behind the last mark; SIZE_MAX: there is none. */
static size_t after_mark(struct pickle_machine *m)
{
    for (size_t i = m->count; i; i--)
        if (m->stack[i - 1].type == PICKLE_MARK) return i;
    fail(m, "there is no mark on the stack");
    return SIZE_MAX;
}

/* Makes the values from `first` on a list, in place of what is above place `below`. */
static bool make_tuple(struct pickle_machine *m, size_t first, size_t below)
{
    unsigned nesting = 1;
    if (!end_all(m, first, &nesting) || !push_new(m, PICKLE_LIST)) return false;
    struct pickle_item list = m->stack[--m->count];
    const struct pickle_builder *b = m->builder;
    const char *fault = b->add(b->context, &list, m->stack + first, m->count - first);
    m->state[list.value] = (uint8_t)(nesting | OPEN);
    if (fault) return fail(m, fault);
    if (!end_item(m, &list)) return false;
    list.is_sealed = true;
    m->count = below;
    m->stack[m->count++] = list; /* there was room for it */
    return true;
}

static bool make_small_tuple(struct pickle_machine *m, size_t values)
{
    if (m->count < values) return fail(m, "there are too few values on the stack");
    return make_tuple(m, m->count - values, m->count - values);
}

/* Adds the values from `first` on to the container below place `below`. */
static bool add_items(struct pickle_machine *m, size_t first, size_t below, enum pickle_type type)
{
    const struct pickle_item *to = below ? &m->stack[below - 1] : NULL;
    if (!to || to->type != type || to->is_sealed) return fail(m, "there is no container that it may change");
    uint8_t *state = &m->state[to->value];
    if (*state & FROZEN) return fail(m, "a container would contain itself");
    if (type == PICKLE_DICT && (m->count - first) % 2) return fail(m, "a key has no value");
    unsigned nesting = *state & NESTING;
    if (!end_all(m, first, &nesting)) return false;
    *state = (uint8_t)(nesting | OPEN);
    for (size_t i = first; type == PICKLE_DICT && i < m->count; i += 2)
        if (m->stack[i].type != PICKLE_TEXT && m->stack[i].type != PICKLE_INTEGER)
            return fail(m, "a key is neither a text nor a number");
    const struct pickle_builder *b = m->builder;
    const char *fault = b->add(b->context, to, m->stack + first, m->count - first);
    m->count = below;
    return !fault || fail(m, fault);
}

/* ---- the memo ---- */

static bool put(struct pickle_machine *m, uint64_t place)
{
    const struct pickle_item *item = top(m);
    if (!item) return false;
    if (place > m->values) return fail(m, "its number in the memo is above the number of values before it");
    if (item->type == PICKLE_INTEGER || item->type == PICKLE_FLOAT) return fail(m, "the memo is not for numbers");
    size_t before = m->memos;
    if (place >= m->memos) {
        m->memo = mem_grow(m->memo, &m->memo_capacity, (size_t)place + 1, sizeof *m->memo);
        m->memos = (size_t)place + 1;
        memset(m->memo + before, 0, (m->memos - before) * sizeof *m->memo);
    }
    m->memo[place] = (uint64_t)item->type << 32 | item->value;
    return true;
}

static bool get(struct pickle_machine *m, uint64_t place)
{
    uint64_t known = place < m->memos ? m->memo[place] : 0;
    const struct pickle_item item = {known & UINT32_MAX, (uint8_t)(known >> 32), true};
    if (item.type == PICKLE_MARK) return fail(m, "the memo has no such value");
    if (is_container(&item) && m->state[item.value] & OPEN && !(m->state[item.value] & FROZEN)) {
        const char *fault = m->builder->end(m->builder->context, (uint32_t)item.value);
        m->state[item.value] |= FROZEN;
        if (fault) return fail(m, fault);
    }
    return push(m, item.type, item.value, true);
}

/* ---- values ---- */

static bool push_text(struct pickle_machine *m, unsigned size_bytes)
{
    uint64_t length;
    uint32_t number = 0;
    if (!take_number(m, size_bytes, &length)) return false;
    if (length > m->longest_text) return fail_beyond(m, "its text is longer than", m->longest_text, " bytes");
    const unsigned char *text = take_bytes(m, length);
    if (!text) return false;
    const char *fault = m->builder->text(m->builder->context, (const char *)text, (size_t)length, &number);
    return fault ? fail(m, fault) : push(m, PICKLE_TEXT, number, true);
}

static bool push_integer(struct pickle_machine *m, unsigned bytes, bool has_sign)
{
    uint64_t number;
    if (bytes > 8) return fail(m, "its number has more than 64 bits");
    if (!take_number(m, bytes, &number)) return false;
    if (has_sign && bytes && bytes < 8 && number >> (8 * bytes - 1)) number |= UINT64_MAX << (8 * bytes);
    return push(m, PICKLE_INTEGER, number, true);
}

static bool push_float(struct pickle_machine *m)
{
    const unsigned char *p = take_bytes(m, 8);
    uint64_t bits = 0;
    for (int i = 0; p && i < 8; i++) bits = bits << 8 | p[i];
    return p && push(m, PICKLE_FLOAT, bits, true);
}

static bool long_integer(struct pickle_machine *m)
{
    uint64_t bytes;
    return take_number(m, 1, &bytes) && push_integer(m, (unsigned)bytes, true);
}

/* ---- opcodes ---- */

static bool number_then(struct pickle_machine *m, unsigned bytes,
                        bool (*then)(struct pickle_machine *m, uint64_t place))
{
    uint64_t place;
    return take_number(m, bytes, &place) && then(m, place);
}

static bool collect(struct pickle_machine *m, enum pickle_type type)
{
    size_t first = after_mark(m);
    return first != SIZE_MAX && add_items(m, first, first - 1, type);
}

static bool change_one(struct pickle_machine *m, size_t values, enum pickle_type type)
{
    if (m->count < values + 1) return fail(m, "there are too few values on the stack");
    return add_items(m, m->count - values, m->count - values, type);
}

static bool take_protocol(struct pickle_machine *m)
{
    uint64_t protocol;
    return take_number(m, 1, &protocol) && (protocol <= HIGHEST_PROTOCOL || fail(m, "its protocol is above 5"));
}

static bool skip_frame(struct pickle_machine *m)
{
    uint64_t length;
    return take_number(m, 8, &length);
}

static bool execute(struct pickle_machine *m, unsigned char opcode)
{
    size_t first;
    switch (opcode) {
    case OP_PROTO: return take_protocol(m);
    case OP_FRAME: return skip_frame(m);
    case OP_MARK: return push(m, PICKLE_MARK, 0, true);
    case OP_EMPTY_DICT: return push_new(m, PICKLE_DICT);
    case OP_EMPTY_LIST: return push_new(m, PICKLE_LIST);
    case OP_EMPTY_TUPLE: return make_small_tuple(m, 0);
    case OP_NONE: return push(m, PICKLE_NONE, 0, true);
    case OP_NEWTRUE: return push(m, PICKLE_TRUE, 0, true);
    case OP_NEWFALSE: return push(m, PICKLE_FALSE, 0, true);
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
    case OP_APPEND: return change_one(m, 1, PICKLE_LIST);
    case OP_SETITEM: return change_one(m, 2, PICKLE_DICT);
    case OP_APPENDS: return collect(m, PICKLE_LIST);
    case OP_SETITEMS: return collect(m, PICKLE_DICT);
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

/* Returns the last opcode. */
static unsigned char execute_all(struct pickle_machine *m)
{
    struct stream *s = m->stream;
    unsigned char opcode = 0;
    while (s->at < s->end || stream_more(s)) {
        m->opcode_at = stream_offset(s, s->at);
        opcode = (unsigned char)*s->at++;
        if (opcode == OP_STOP || !execute(m, opcode)) return opcode;
    }
    fail(m, "the file ends without STOP");
    return opcode;
}

char *pickle_execute(struct pickle_machine *m, struct pickle_item *result)
{
    unsigned char opcode = execute_all(m);
    const struct pickle_item *item = m->fault ? NULL : top(m);
    if (item && m->count > 1) fail(m, "more than one value is left");
    if (item && end_item(m, item)) *result = *item;
    if (!m->fault) return NULL;
    return string_format("is refused at byte %llu, opcode 0x%02x%s%s: %s; nothing in it was executed",
                         (unsigned long long)m->opcode_at, opcode, *name_of(opcode) ? " " : "", name_of(opcode),
                         m->fault);
}

void pickle_machine_free(struct pickle_machine *m)
{
    free(m->long_fault);
    free(m->stack);
    free(m->memo);
    free(m->state);
    *m = (struct pickle_machine){0};
}

/* ---- the first bytes ---- */

bool is_pickle(const char *bytes, size_t length)
{
    return length > 2 && (unsigned char)bytes[0] == OP_PROTO && bytes[1] >= 2 && bytes[1] <= HIGHEST_PROTOCOL;
}

const char *pickle_first_key(const char *bytes, size_t length, size_t *key_length)
{
    enum { MOST_BEFORE = 32 };
    size_t at = 2;
    bool is_dict = false;
    *key_length = 0;
    if (!is_pickle(bytes, length)) return NULL;
    while (at + 5 < length && at < MOST_BEFORE) {
        unsigned char opcode = (unsigned char)bytes[at++];
        size_t argument = opcode == OP_FRAME ? 8 : opcode == OP_BINPUT ? 1 : opcode == OP_LONG_BINPUT ? 4 : 0;
        bool is_text = opcode == OP_SHORT_BINUNICODE || opcode == OP_BINUNICODE;
        is_dict |= opcode == OP_EMPTY_DICT;
        if (is_text) {
            unsigned sizes = opcode == OP_BINUNICODE ? 4 : 1;
            for (unsigned i = 0; i < sizes; i++) *key_length |= (size_t)(unsigned char)bytes[at + i] << (8 * i);
            at += sizes;
            return is_dict && *key_length <= length - at ? bytes + at : NULL;
        }
        if (!argument && opcode != OP_EMPTY_DICT && opcode != OP_MARK && opcode != OP_MEMOIZE) return NULL;
        at += argument;
    }
    return NULL;
}
