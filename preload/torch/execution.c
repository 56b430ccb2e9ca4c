/* execution.c - writes what torch's execution trace has of each function: its numbers, its inputs and its outputs.
 *
 * Only TFI_TENSOR_ADDRESSES asks for it. The values are written as words (torch_values.def), with the addresses of tensors
 * and their bytes: from them the analysis makes the numbers that torch's ExecutionTraceObserver gives to objects. A
 * function has as many values as its schema; libtorch may keep them at the end of a longer list.
 *
 * libtorch prints a schema once for each thread. The schema of an operator that a program removes gives its place to
 * another one's.
 */
#include "base/sys.h"
#include "base/tfi.h"
#include "base/process.h"
#include "control/config.h"
#include "hooks/hooks.h"
#include "record/clock.h"
#include "record/strings.h"
#include "record/thread.h"
#include "stage/recording_state.h"
#include "torch/cxx.h"
#include "torch/values.h"

#define WORDS 4000u      /* of a record, whose size has 16 bits */
#define DEPTH 8u         /* of lists in lists */
#define KEYWORDS 32u     /* named inputs of a function */
#define SCHEMAS 1024u    /* a power of two */
#define STREAM_BYTES 512 /* room for a std::ostringstream, which has 376 */

struct tfi_torch_execution {
    uint64_t words[WORDS];
    uint32_t used;
    bool is_cut;
    uint32_t gen; /* of the strings in `schema` */
    struct schema {
        const void *address;
        uint64_t content; /* of the schema; see content_of() */
        uint32_t text, unused;
    } schema[SCHEMAS];
    uint64_t stream[STREAM_BYTES / 8];
};

static struct {
    size_t (*inputs)(const void *function);
    size_t (*outputs)(const void *function);
    void *(*print)(void *stream, const void *schema);
    void (*stream_begin)(void *stream);
    void (*stream_end)(void *stream);
    struct tfi_cxx_string *(*stream_text)(struct tfi_cxx_string *result, const void *stream);
} torch;

void tfi_torch_execution_init(void *library)
{
    static const struct tfi_torch_function functions[] = {
        {"_ZNK2at14RecordFunction10num_inputsEv", &torch.inputs, NULL},
        {"_ZNK2at14RecordFunction11num_outputsEv", &torch.outputs, NULL},
        {"_ZN3c10lsERSoRKNS_14FunctionSchemaE", &torch.print, NULL},
        {"_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev", &torch.stream_begin, NULL},
        {"_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEED1Ev", &torch.stream_end, NULL},
        {"_ZNKSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEE3strEv", &torch.stream_text, NULL},
    };
    tfi_torch_find(library, functions, TFI_COUNT(functions));
}

bool tfi_torch_executes(void)
{
    return tfi_config.tensor_addresses && tfi_torch_at.handle && torch.inputs && torch.outputs;
}

/* ---- values ---- */

/* Makes room for the words of one value; NULL if there is none. */
static uint64_t *room(struct tfi_torch_execution *e, size_t words)
{
    e->is_cut |= words > WORDS - e->used;
    if (e->is_cut) return NULL;
    uint64_t *place = &e->words[e->used];
    e->used += (uint32_t)words;
    return place;
}

static uint64_t device_bits(const void *device)
{
    const uint8_t *byte = device;
    return (uint64_t)byte[0] << 40 | (uint64_t)byte[1] << 48;
}

static void add_tensor(struct tfi_torch_execution *e, const struct value *value)
{
    const char *impl = pointer(value, 0);
    struct tensor t = tensor_of(value);
    bool is_symbolic = (uint8_t)impl[tfi_torch_at.flags] & tfi_torch_at.symbolic;
    const void *storage = impl == tfi_torch_undefined || is_symbolic ? NULL : pointer(impl, tfi_torch_at.storage);
    uint16_t type;
    memcpy(&type, impl + tfi_torch_at.type, sizeof type);
    uint64_t *to = room(e, 2 + (storage ? 3 : 0) + (t.sizes ? t.dims : 0) + (t.strides ? t.dims : 0));
    if (!to) return;
    *to++ = TFI_VALUE_TENSOR | (uint64_t)t.dims << 8 | (t.sizes ? TFI_VALUE_HAS_SIZES : 0) |
            (t.strides ? TFI_VALUE_HAS_STRIDES : 0) | (storage ? TFI_VALUE_HAS_STORAGE : 0) | (uint64_t)type << 24 |
            device_bits(impl + tfi_torch_at.device);
    *to++ = (uintptr_t)impl;
    if (storage) {
        *to++ = word(storage, tfi_torch_at.data);
        *to++ = word(impl, tfi_torch_at.offset);
        *to++ = word(impl, tfi_torch_at.numel);
    }
    for (uint32_t i = 0; t.sizes && i < t.dims; i++) *to++ = (uint64_t)t.sizes[i];
    for (uint32_t i = 0; t.strides && i < t.dims; i++) *to++ = (uint64_t)t.strides[i];
}

static uint64_t string_of(const struct value *value)
{
    const struct tfi_cxx_string *text = (const void *)((const char *)pointer(value, 0) + tfi_torch_at.string);
    return tfi_string(text->bytes, text->length);
}

/* Adds a number or text; only its kind if values are not recorded. */
static void add_scalar(struct tfi_torch_execution *e, const struct value *value)
{
    uint64_t *to = room(e, tfi_config.record_values ? 2 : 1);
    if (!to) return;
    to[0] = value->tag | (tfi_config.record_values ? TFI_VALUE_IS_KNOWN : 0);
    if (!tfi_config.record_values) return;
    to[1] = value->tag == TFI_VALUE_STRING ? string_of(value)
            : value->tag == TFI_VALUE_BOOL ? (uint8_t)value->payload
                                           : value->payload;
}

static struct values parts_of(const struct value *value)
{
    if (value->tag == TFI_VALUE_GENERIC_LIST) return elements_of(value);
    const char *tuple = (const char *)pointer(value, 0) + tfi_torch_at.tuple;
    size_t in_place = word(tuple, 0);
    if (in_place) return (struct values){(const struct value *)(tuple + 8), in_place};
    const struct value *first = pointer(tuple, 8), *end = pointer(tuple, 16);
    return (struct values){first, (size_t)(end - first)};
}

static void add_value(struct tfi_torch_execution *e, const struct value *value, uint32_t depth)
{
    uint64_t *to;
    struct values parts;
    switch (value->tag) {
    case TFI_VALUE_TENSOR: add_tensor(e, value); break;
    case TFI_VALUE_INT:
    case TFI_VALUE_DOUBLE:
    case TFI_VALUE_BOOL:
    case TFI_VALUE_STRING: add_scalar(e, value); break;
    case TFI_VALUE_TUPLE:
    case TFI_VALUE_GENERIC_LIST:
        parts = parts_of(value);
        e->is_cut |= depth == DEPTH || parts.count > WORDS;
        to = room(e, 1);
        if (to) *to = value->tag | (uint64_t)parts.count << 32;
        for (size_t i = 0; i < parts.count && !e->is_cut; i++) add_value(e, &parts.first[i], depth + 1);
        break;
    default:
        to = room(e, 1);
        if (to) *to = (value->tag & 0xff) | (value->tag == TFI_VALUE_DEVICE ? device_bits(&value->payload) : 0);
    }
}

/* Adds the values of a function, which has `own` of them, and returns flags. */
static uint32_t add_values(struct tfi_torch_execution *e, struct values values, size_t own)
{
    e->used = 0;
    e->is_cut = false;
    if (own > values.count) return TFI_EXECUTION_MISSING;
    for (size_t i = values.count - own; i < values.count && !e->is_cut; i++) add_value(e, &values.first[i], 0);
    return e->is_cut ? TFI_EXECUTION_CUT : 0;
}

/* Adds the named inputs: a std::unordered_map, whose nodes have the next one, a name, a value. */
static void add_keywords(struct tfi_torch_execution *e, const void *function)
{
    enum { FIRST = 16, COUNT = 24, NAME = 8, VALUE = NAME + sizeof(struct tfi_cxx_string) };
    const char *map = (const char *)function + tfi_torch_at.keywords;
    const char *node = word(map, COUNT) ? pointer(map, FIRST) : NULL;
    for (uint32_t i = 0; node && i < KEYWORDS && tfi_config.record_values; i++, node = pointer(node, 0)) {
        const struct tfi_cxx_string *name = (const void *)(node + NAME);
        uint64_t *to = room(e, 1);
        if (to) *to = TFI_VALUE_KEYWORD | (uint64_t)tfi_string(name->bytes, name->length) << 32;
        if (to) add_value(e, (const void *)(node + VALUE), 0);
    }
    e->is_cut |= word(map, COUNT) > KEYWORDS && tfi_config.record_values;
}

/* ---- the description of a collective ---- */

static void add_word(struct tfi_torch_execution *e, uint32_t kind, uint64_t payload)
{
    uint64_t *to = room(e, 2);
    if (!to) return;
    to[0] = kind | TFI_VALUE_IS_KNOWN;
    to[1] = payload;
}

static void add_name(struct tfi_torch_execution *e, const char *name)
{
    uint64_t *to = room(e, 1);
    if (to) *to = TFI_VALUE_KEYWORD | (uint64_t)tfi_string(name, strlen(name)) << 32;
}

static void add_number(struct tfi_torch_execution *e, const char *name, int64_t number)
{
    add_name(e, name);
    add_word(e, TFI_VALUE_INT, (uint64_t)number);
}

static void add_text(struct tfi_torch_execution *e, const char *name, const char *info, size_t offset)
{
    const struct tfi_cxx_string *text = (const struct tfi_cxx_string *)(info + offset);
    if (!text->length) return;
    add_name(e, name);
    add_word(e, TFI_VALUE_STRING, tfi_string(text->bytes, text->length));
}

static void add_numbers(struct tfi_torch_execution *e, const char *name, const char *info, size_t offset)
{
    const int64_t *first = pointer(info, offset), *end = pointer(info, offset + 8);
    add_name(e, name);
    uint64_t *to = room(e, 1);
    if (to) *to = TFI_VALUE_GENERIC_LIST | (uint64_t)(end - first) << 32;
    for (; first < end && !e->is_cut; first++) add_word(e, TFI_VALUE_INT, (uint64_t)*first);
}

static int32_t int_at(const char *info, size_t offset)
{
    int32_t number;
    memcpy(&number, info + offset, sizeof number);
    return number;
}

/* Adds what torch's observer writes of a collective as named values, whose names no input of libtorch has. */
static void add_description(struct tfi_torch_execution *e)
{
    const char *info = tfi_torch_description();
    if (!info || !tfi_config.record_values) return;
    int32_t start = int_at(info, tfi_torch_at.info_start), stride = int_at(info, tfi_torch_at.info_stride);
    add_text(e, "collective_name", info, tfi_torch_at.info_collective);
    add_number(e, "dtype", (uint8_t)info[tfi_torch_at.info_type]);
    add_number(e, "in_msg_nelems", (int64_t)word(info, tfi_torch_at.info_in));
    add_number(e, "out_msg_nelems", (int64_t)word(info, tfi_torch_at.info_out));
    add_numbers(e, "in_split_size", info, tfi_torch_at.info_in_splits);
    add_numbers(e, "out_split_size", info, tfi_torch_at.info_out_splits);
    if (start >= 0) add_number(e, "global_rank_start", start);
    if (stride > 0) add_number(e, "global_rank_stride", stride);
    add_text(e, "pg_name", info, tfi_torch_at.info_name);
    add_text(e, "pg_desc", info, tfi_torch_at.info_description);
    add_number(e, "pg_size", int_at(info, tfi_torch_at.info_size));
    add_name(e, "is_asynchronized_op");
    add_word(e, TFI_VALUE_BOOL, info[tfi_torch_at.info_async] != 0);
}

/* ---- schemas ---- */

static TFI_COLD uint32_t print_schema(struct tfi_torch_execution *e, const void *schema)
{
    struct tfi_cxx_string text;
    torch.stream_begin(e->stream);
    torch.print(e->stream, schema);
    torch.stream_text(&text, e->stream);
    uint32_t string = tfi_string(text.bytes, text.length);
    tfi_cxx_string_end(&text);
    torch.stream_end(e->stream);
    return string;
}

static uint64_t mix(uint64_t hash, const void *from, size_t bytes)
{
    const char *at = from;
    for (; bytes; at += sizeof hash) {
        size_t some = bytes < sizeof hash ? bytes : sizeof hash;
        uint64_t part = 0;
        memcpy(&part, at, some);
        hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
        bytes -= some;
    }
    return hash;
}

/* Mixes the names and the vectors of a schema as they lie in memory. */
static uint64_t content_of(const char *schema)
{
    const struct tfi_cxx_string *names = (const void *)schema;
    const size_t vectors[] = {tfi_torch_at.arguments, tfi_torch_at.returns};
    uint64_t hash = mix(mix(1, names[0].bytes, names[0].length), names[1].bytes, names[1].length);
    for (size_t i = 0; i < TFI_COUNT(vectors); i++) {
        const char *first = pointer(schema, vectors[i]), *end = pointer(schema, vectors[i] + 8);
        hash = mix(hash, first, (size_t)(end - first));
    }
    return hash;
}

/* Returns the string of a function's schema; 0 if it has none. The variant has the index 0 for a name alone. */
static uint32_t schema_of(struct tfi_torch_execution *e, const void *function)
{
    const char *described = (const char *)function + tfi_torch_at.described;
    bool prints = torch.print && torch.stream_begin && torch.stream_end && torch.stream_text;
    if (!prints || described[sizeof(struct tfi_cxx_string)] != 1) return 0;
    const void *schema = pointer(described, 0);
    struct schema *place = &e->schema[((uintptr_t)schema >> 4 ^ (uintptr_t)schema >> 14) & (SCHEMAS - 1)];
    uint64_t content = content_of(schema);
    if (place->address != schema || place->content != content || !place->text)
        *place = (struct schema){schema, content, print_schema(e, schema), 0};
    return place->text;
}

/* ---- records ---- */

/* Returns the thread's state. The numbers of strings change with the trace. */
static struct tfi_torch_execution *state_of(struct tfi_thread *t, struct tfi_torch_execution **state)
{
    if (!*state) *state = tfi_map(sizeof **state);
    struct tfi_torch_execution *e = *state;
    if (e && e->gen != t->gen) memset(e->schema, 0, sizeof e->schema);
    if (e) e->gen = t->gen;
    return e;
}

bool tfi_torch_execution_begin(struct tfi_thread *t, struct tfi_torch_execution **state, const void *function,
                               uint32_t name, const char *text, uint16_t scope)
{
    bool is_wanted = tfi_torch_executes() && tfi_call_wanted(t) && tfi_recording(TFI_ACTIVITY_OPS);
    struct tfi_torch_execution *e = is_wanted ? state_of(t, state) : NULL;
    if (is_wanted && !e) tfi_count_drop(TFI_DROP_NO_CHUNK, 1);
    if (!e) return false;
    uint32_t flags = add_values(e, inputs_of(function), torch.inputs(function));
    add_keywords(e, function);
    if (tfi_torch_is_described(text)) add_description(e);
    size_t bytes = e->used * sizeof *e->words, size = sizeof(struct tfi_rec_function_begin) + bytes;
    struct tfi_rec_function_begin *rec = tfi_reserve(t, size, TFI_KIND_function_begin);
    if (!rec) return false;
    rec->name = name;
    rec->time = tfi_ticks();
    rec->handle = word(function, tfi_torch_at.handle);
    rec->sequence = tfi_torch_sequence(function);
    rec->logical_thread = (uint32_t)word(function, tfi_torch_at.thread);
    rec->forward = (uint32_t)tfi_torch_forward(function);
    rec->scope = scope;
    rec->flags = flags | (e->is_cut ? TFI_EXECUTION_CUT : 0);
    memcpy(rec->inputs, e->words, bytes);
    tfi_commit(t, size);
    return true;
}

void tfi_torch_execution_end(struct tfi_thread *t, struct tfi_torch_execution **state, const void *function,
                             uint32_t modules)
{
    struct tfi_torch_execution *e = state ? state_of(t, state) : NULL;
    uint32_t flags = e ? add_values(e, outputs_of(function), torch.outputs(function)) : TFI_EXECUTION_CUT;
    uint32_t schema = e ? schema_of(e, function) : 0;
    size_t bytes = e ? e->used * sizeof *e->words : 0, size = sizeof(struct tfi_rec_function_end) + bytes;
    struct tfi_rec_function_end *rec = tfi_reserve(t, size, TFI_KIND_function_end);
    if (!rec) return;
    rec->schema = schema;
    rec->time = tfi_ticks();
    rec->handle = word(function, tfi_torch_at.handle);
    rec->flags = flags;
    rec->modules = modules;
    if (bytes) memcpy(rec->outputs, e->words, bytes);
    tfi_commit(t, size);
}

/* ---- storages ---- */

TFI_COLD void tfi_torch_write_tensors(struct tfi_thread *t, uint32_t name, uint64_t start, const void *function,
                                      uint32_t role)
{
    enum { MOST = 256 };
    uint64_t blocks[MOST];
    uint32_t count = tfi_torch_storages(function, role == 2, blocks, MOST);
    size_t size = sizeof(struct tfi_rec_tensors) + count * sizeof *blocks;
    struct tfi_rec_tensors *rec = count ? tfi_reserve(t, size, TFI_KIND_tensors) : NULL;
    if (!rec) return;
    rec->name = name;
    rec->time = start;
    rec->role = role;
    rec->reserved = 0;
    memcpy(rec->blocks, blocks, count * sizeof *blocks);
    tfi_commit(t, size);
}
