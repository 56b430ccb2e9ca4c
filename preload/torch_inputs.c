/* torch_inputs.c - what went into an operator: shapes, types, strides, scalars and floating point operations.
 *
 * The texts are those torch.profiler writes as "Input Dims", "Input type", "Concrete Inputs" and "Input Strides". To
 * make them takes microseconds, so that is done once: the inputs are mixed into 128 bits as they lie in memory, and a
 * cache of the thread has the numbers of the strings. Two different inputs meet under one key with a probability that
 * is not a concern; a cache entry that is needed again after it was overwritten is simply made again.
 *
 * libtorch's structures are read by the offsets of torch_layout.def, and only of releases listed there. Tensors whose
 * sizes are symbolic, or asked of their own code (nested, functional, subclasses with sizes of their own), are not
 * read: they appear as torch.profiler shows an undefined tensor. All of it holds during the start callback only, while
 * the operator's caller keeps its arguments alive.
 */
#include "torch.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "dl.h"
#include "fmt.h"
#include "strings.h"
#include "sys.h"
#include "tfi.h"

#define MAX_INPUTS 256u
#define MAX_DIMS 64u
#define MAX_SHOWN 30u /* tensors or scalars of a list; torch.profiler leaves longer ones out too */
#define SETS 2048u    /* a power of two */
#define WAYS 4u
#define TEXT_BYTES (64u << 10)

struct value {
    uint64_t payload;
    uint32_t tag;
    uint32_t unused;
};

struct values {
    const struct value *first;
    size_t count;
};

/* std::vector and std::string as libstdc++ lays them out. */
struct vector {
    char *begin, *end, *limit;
};

struct string {
    char *bytes;
    size_t length;
    char in_place[16];
};

/* std::unordered_map. */
struct map {
    uint64_t words[7];
    uint64_t behind;
};

struct tfi_torch_cache {
    char text[TEXT_BYTES];
    uint32_t turn;
    struct entry {
        uint64_t a, b; /* the key; 0, 0 if empty */
        struct tfi_torch_inputs inputs;
    } set[SETS][WAYS];
};

static const struct known {
    uint32_t first, last;
    struct tfi_torch_layout layout;
} known[] = {
#define TORCH(first, last, ...) {first, last, {__VA_ARGS__}},
#include "torch_layout.def"
#undef TORCH
};

static struct tfi_torch_layout at;
static const void *undefined; /* the tensor that is none */

static struct {
    size_t (*num_inputs)(const void *function);
    struct vector *(*sizes)(struct vector *result, const void *function, bool flatten);
    struct vector *(*types)(struct vector *result, const void *function);
    struct string *(*values_text)(struct string *result, const struct vector *values);
    void (*free)(void *memory);
    struct map *(*flops_inputs)(struct map *result, const void *function);
    uint64_t (*flops)(const struct string *name, const struct map *inputs);
    void (*map_end)(struct map *map);
} torch;

/* The destructor of a std::unordered_map<std::string, c10::IValue>. */
#define MAP_END                                                                                                        \
    "_ZNSt10_HashtableINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt4pairIKS5_N3c106IValueEESaISA_"           \
    "ENSt8__detail10_Select1stESt8equal_toIS5_ESt4hashIS5_ENSC_18_Mod_range_hashingENSC_20_Default_ranged_hashENSC_"   \
    "20_Prime_rehash_policyENSC_17_Hashtable_traitsILb1ELb0ELb1EEEED1Ev"

static void find_functions(void *library)
{
    static const struct {
        const char *symbol;
        void *place;
    } functions[] = {
        {"_ZNK2at14RecordFunction10num_inputsEv", &torch.num_inputs},
        {"_ZN5torch8profiler4impl10inputSizesERKN2at14RecordFunctionEb", &torch.sizes},
        {"_ZN5torch8profiler4impl10inputTypesB5cxx11ERKN2at14RecordFunctionE", &torch.types},
        {"_ZN5torch8profiler4impl15ivalueListToStrB5cxx11ERKSt6vectorIN3c106IValueESaIS4_EE", &torch.values_text},
        {"_ZdlPv", &torch.free},
        {"_ZN3c1019UndefinedTensorImpl10_singletonE", &undefined},
        {"_ZN5torch8profiler4impl13saveExtraArgsB5cxx11ERKN2at14RecordFunctionE", &torch.flops_inputs},
        {"_ZN5torch8profiler4impl12computeFlopsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt13unordered_"
         "mapIS7_N3c106IValueESt4hashIS7_ESt8equal_toIS7_ESaISt4pairIS8_SC_EEE",
         &torch.flops},
        {MAP_END, &torch.map_end},
    };
    for (size_t i = 0; i < TFI_COUNT(functions); i++) {
        void *found = tfi_dlsym(library, functions[i].symbol);
        memcpy(functions[i].place, &found, sizeof found);
    }
}

bool tfi_torch_inputs_init(void *library, uint32_t version)
{
    find_functions(library);
    if (!tfi_torch_inputs_exported() || !torch.values_text || !undefined) return false;
    for (size_t i = 0; i < TFI_COUNT(known); i++) {
        if (version < known[i].first || version > known[i].last) continue;
        at = known[i].layout;
        return true;
    }
    return false;
}

bool tfi_torch_inputs_exported(void)
{
    return torch.num_inputs && torch.sizes && torch.types && torch.free;
}

struct tfi_torch_cache *tfi_torch_cache_new(void)
{
    return tfi_map(sizeof(struct tfi_torch_cache));
}

void tfi_torch_cache_clear(struct tfi_torch_cache *cache)
{
    memset(cache->set, 0, sizeof cache->set);
}

/* ---- reading ---- */

static inline uint64_t word(const void *base, size_t offset)
{
    uint64_t value;
    memcpy(&value, (const char *)base + offset, sizeof value);
    return value;
}

static inline const void *pointer(const void *base, size_t offset)
{
    return (const void *)(uintptr_t)word(base, offset);
}

static inline struct values inputs_of(const void *function)
{
    return (struct values){pointer(function, at.inputs), word(function, at.inputs + 8)};
}

static inline struct values elements_of(const struct value *list)
{
    const void *impl = pointer(list, 0);
    const struct value *first = pointer(impl, at.elements), *end = pointer(impl, at.elements + 8);
    return (struct values){first, (size_t)(end - first)};
}

int64_t tfi_torch_sequence(const void *function)
{
    return (int64_t)word(function, at.sequence);
}

uint64_t tfi_torch_forward(const void *function)
{
    return word(function, at.forward);
}

/* A tensor as far as it may be read. */
struct tensor {
    const int64_t *sizes; /* NULL: it is not */
    const int64_t *strides;
    uint32_t dims;
    uint16_t type;
};

static inline struct tensor tensor_of(const struct value *value)
{
    struct tensor t = {0};
    const char *impl = pointer(value, 0);
    uint8_t flags = (uint8_t)impl[at.flags];
    uint64_t dims = word(impl, at.dims);
    uint16_t policy = flags & at.policy;
    if (impl == undefined || flags & at.symbolic || policy > (at.policy & -at.policy) || dims > MAX_DIMS) return t;
    t.dims = (uint32_t)dims;
    t.sizes = dims <= 5 ? (const int64_t *)(impl + at.sizes) : pointer(impl, at.sizes);
    if (!policy || !(word(impl, at.keys) & at.unstrided)) t.strides = t.sizes + (dims <= 5 ? 5 : dims);
    memcpy(&t.type, impl + at.type, sizeof t.type);
    return t;
}

static inline bool is_scalar(const struct value *value)
{
    uint32_t tag = value->tag;
    return tag == at.integer || tag == at.real || tag == at.boolean || tag == at.complex;
}

static bool is_tensor_list(const struct value *value)
{
    const void *type = value->tag == at.list ? pointer(pointer(value, 0), at.element_type) : NULL;
    return type && (uint32_t)word(type, at.kind) == at.kind_tensor;
}

/* What torch.profiler takes for a list of scalars: an empty list, or a short one that begins with a scalar. One of
 * symbolic numbers is none here, as their text would have to be asked of Python. */
static bool is_scalar_list(const struct value *value)
{
    if (value->tag != at.list) return false;
    struct values list = elements_of(value);
    if (list.count > MAX_SHOWN) return false;
    for (size_t i = 0; i < list.count; i++)
        if (!is_scalar(&list.first[i])) return false;
    return true;
}

/* A list with a tensor in it that can't be read counts as no list. */
static bool is_whole(struct values list)
{
    for (size_t i = 0; i < list.count; i++)
        if (!tensor_of(&list.first[i]).sizes) return false;
    return true;
}

/* ---- the key ---- */

struct key {
    uint64_t a, b;
};

static inline void mix(struct key *key, uint64_t value)
{
    key->a = (key->a ^ value) * 0x9e3779b97f4a7c15u;
    key->a ^= key->a >> 32;
    key->b = ((key->b << 23 | key->b >> 41) + value) * 0xd6e8feb86659fd93u;
    key->b ^= key->b >> 29;
}

enum what { NOTHING, TENSOR, TENSORS, SCALAR, SCALARS };

static inline void mix_tensor(struct key *key, const struct value *value)
{
    struct tensor t = tensor_of(value);
    mix(key,
        TENSOR | (t.sizes != NULL) << 8 | (t.strides != NULL) << 9 | (uint64_t)t.dims << 16 | (uint64_t)t.type << 32);
    if (!t.sizes) return;
    for (uint32_t i = 0; i < t.dims; i++) mix(key, (uint64_t)t.sizes[i]);
    for (uint32_t i = 0; t.strides && i < t.dims; i++) mix(key, (uint64_t)t.strides[i]);
}

static inline void mix_scalar(struct key *key, const struct value *value)
{
    mix(key, SCALAR | (uint64_t)value->tag << 8);
    if (value->tag == at.complex) {
        const void *holder = pointer(value, 0);
        mix(key, word(holder, at.number));
        mix(key, word(holder, at.number + 8));
    } else {
        mix(key, value->tag == at.boolean ? (uint8_t)value->payload : value->payload);
    }
}

static void mix_list(struct key *key, const struct value *value)
{
    struct values list = elements_of(value);
    if (is_tensor_list(value)) {
        bool whole = is_whole(list);
        mix(key, TENSORS | whole << 8 | list.count << 16);
        for (size_t i = 0; whole && list.count <= MAX_SHOWN && i < list.count; i++) mix_tensor(key, &list.first[i]);
    } else if (is_scalar_list(value)) {
        mix(key, SCALARS | list.count << 16);
        for (size_t i = 0; i < list.count; i++) mix_scalar(key, &list.first[i]);
    } else {
        mix(key, NOTHING);
    }
}

static struct key key_of(struct values inputs, uint32_t name)
{
    struct key key = {name, inputs.count};
    for (size_t i = 0; i < inputs.count; i++) {
        const struct value *value = &inputs.first[i];
        if (value->tag == at.tensor) mix_tensor(&key, value);
        else if (is_scalar(value)) mix_scalar(&key, value);
        else if (value->tag == at.list) mix_list(&key, value);
        else mix(&key, NOTHING);
    }
    key.b |= 1; /* never that of an empty entry */
    return key;
}

/* ---- the texts ---- */

static void add_text(struct tfi_text *text, const char *bytes)
{
    tfi_text_bytes(text, bytes, strlen(bytes));
}

static void add_numbers(struct tfi_text *text, const int64_t *numbers, uint32_t count)
{
    add_text(text, "[");
    for (uint32_t i = 0; numbers && i < count; i++) tfi_text_add(text, "%s%ld", i ? ", " : "", (long)numbers[i]);
    add_text(text, "]");
}

static void add_dims(struct tfi_text *text, const struct value *value, bool strides)
{
    struct tensor t = tensor_of(value);
    add_numbers(text, strides ? t.strides : t.sizes, t.dims);
}

static void add_all_dims(struct tfi_text *text, struct values inputs, bool strides)
{
    for (size_t i = 0; i < inputs.count; i++) {
        const struct value *value = &inputs.first[i];
        add_text(text, i ? ", " : "[");
        struct values list = is_tensor_list(value) ? elements_of(value) : (struct values){0};
        if (value->tag == at.tensor) {
            add_dims(text, value, strides);
            continue;
        }
        add_text(text, "[");
        for (size_t k = 0; list.count <= MAX_SHOWN && k < list.count && is_whole(list); k++) {
            add_text(text, k ? ", " : "");
            add_dims(text, &list.first[k], strides);
        }
        add_text(text, "]");
    }
    add_text(text, "]");
}

static void free_strings(struct vector *strings)
{
    for (struct string *s = (struct string *)strings->begin; s < (struct string *)strings->end; s++)
        if (s->bytes != s->in_place) torch.free(s->bytes);
    if (strings->begin) torch.free(strings->begin);
}

/* The names of tensors' types are libtorch's own words. */
static void add_types(struct tfi_text *text, const void *function, struct values inputs)
{
    struct vector names;
    torch.types(&names, function);
    const struct string *name = (const struct string *)names.begin;
    size_t count = (size_t)((const struct string *)names.end - name);
    for (size_t i = 0; i < inputs.count; i++) {
        const struct value *value = &inputs.first[i];
        const char *type = "";
        if (value->tag == at.tensor && i < count) type = tensor_of(value).sizes ? name[i].bytes : "";
        else if (is_scalar(value)) type = "Scalar";
        else if (is_tensor_list(value)) type = is_whole(elements_of(value)) ? "TensorList" : "";
        else if (is_scalar_list(value)) type = "ScalarList";
        tfi_text_add(text, "%s\"%s\"", i ? ", " : "[", type);
    }
    add_text(text, "]");
    free_strings(&names);
}

/* libtorch makes the text of the scalars: it gets a copy of the values in which all others are None. The copy owns
 * nothing, and the function takes it by a constant reference. */
static void add_concrete(struct tfi_text *text, struct values inputs)
{
    struct value copy[MAX_INPUTS];
    struct string result;
    for (size_t i = 0; i < inputs.count; i++) {
        const struct value *value = &inputs.first[i];
        bool shown = is_scalar(value) || (!is_tensor_list(value) && is_scalar_list(value));
        copy[i] = shown ? *value : (struct value){.tag = at.none};
    }
    struct vector values = {(char *)copy, (char *)(copy + inputs.count), (char *)(copy + inputs.count)};
    torch.values_text(&result, &values);
    tfi_text_bytes(text, result.bytes, result.length);
    if (result.bytes != result.in_place) torch.free(result.bytes);
}

static void add_direct(struct tfi_text *text, const void *function, struct values inputs, int what)
{
    switch (what) {
    case TFI_TORCH_SHAPES: add_all_dims(text, inputs, false); break;
    case TFI_TORCH_TYPES: add_types(text, function, inputs); break;
    case TFI_TORCH_CONCRETE: add_concrete(text, inputs); break;
    case TFI_TORCH_STRIDES: add_all_dims(text, inputs, true); break;
    }
}

/* ---- floating point operations ---- */

static bool is_pair(const struct value *value)
{
    return is_scalar_list(value) && elements_of(value).count == 2;
}

/* Whether libtorch can count the operations without a word to the user: it warns where it can't. `needs` has a bit for
 * each input that has to be a tensor. */
static bool is_countable(const char *name, struct values inputs)
{
    static const struct {
        const char *name;
        unsigned needs;
    } counted[] = {{"aten::mm", 3},     {"aten::addmm", 7}, {"aten::bmm", 3}, {"aten::baddbmm", 7},
                   {"aten::conv2d", 3}, {"aten::mul", 1},   {"aten::add", 1}};
    const struct value *in = inputs.first;
    size_t found = 0;
    while (found < TFI_COUNT(counted) && strcmp(name, counted[found].name) != 0) found++;
    if (found == TFI_COUNT(counted)) return false;
    for (unsigned i = 0; counted[found].needs >> i; i++)
        if (i >= inputs.count || in[i].tag != at.tensor || !tensor_of(&in[i]).sizes) return false;
    if (strcmp(name, "aten::conv2d") != 0) return true;
    return inputs.count > 6 && tensor_of(&in[0]).dims == 4 && tensor_of(&in[1]).dims == 4 && is_pair(&in[3]) &&
           is_pair(&in[4]) && is_pair(&in[5]) && in[6].tag == at.integer && in[6].payload &&
           elements_of(&in[3]).first[0].payload && elements_of(&in[3]).first[1].payload;
}

/* As torch.profiler(with_flops=True) has it, by its own functions. */
static uint64_t flops_of(const char *name, const void *function, struct values inputs)
{
    struct map map;
    struct string text = {.bytes = (char *)(uintptr_t)name, .length = strlen(name)};
    if (!torch.flops_inputs || !torch.flops || !torch.map_end || !is_countable(name, inputs)) return 0;
    torch.flops_inputs(&map, function);
    uint64_t flops = torch.flops(&text, &map);
    torch.map_end(&map);
    return flops;
}

/* ---- by libtorch's functions ---- */

static void add_exported_shapes(struct tfi_text *text, const void *function)
{
    struct vector shapes;
    torch.sizes(&shapes, function, false);
    for (struct vector *shape = (struct vector *)shapes.begin; shape < (struct vector *)shapes.end; shape++) {
        add_text(text, shape == (struct vector *)shapes.begin ? "[" : ", ");
        add_numbers(text, (const int64_t *)shape->begin, (uint32_t)((shape->end - shape->begin) / 8));
        if (shape->begin) torch.free(shape->begin);
    }
    add_text(text, "]");
    if (shapes.begin) torch.free(shapes.begin);
}

/* Scalars go by one name in torch.profiler's traces; of a list this says no more than that it is one. */
static void add_exported_types(struct tfi_text *text, const void *function)
{
    static const char *const scalars[] = {"Int", "Double", "Bool", "ComplexDouble"};
    struct vector types;
    torch.types(&types, function);
    for (struct string *type = (struct string *)types.begin; type < (struct string *)types.end; type++) {
        const char *shown = type->bytes;
        for (size_t i = 0; i < TFI_COUNT(scalars); i++)
            if (strcmp(shown, scalars[i]) == 0) shown = "Scalar";
        tfi_text_add(text, "%s\"%s\"", type == (struct string *)types.begin ? "[" : ", ", shown);
    }
    add_text(text, "]");
    free_strings(&types);
}

static void add_exported(struct tfi_text *text, const void *function, int what)
{
    if (what == TFI_TORCH_SHAPES) add_exported_shapes(text, function);
    if (what == TFI_TORCH_TYPES) add_exported_types(text, function);
}

/* ---- what callers see ---- */

/* One of the texts as a string of the trace; one that is too long is left out. */
static uint32_t string_of(struct tfi_torch_cache *cache, enum tfi_torch_how how, const void *function, int what)
{
    struct tfi_text text = {cache->text, sizeof cache->text, 0, 0};
    if (how == TFI_TORCH_DIRECT) add_direct(&text, function, inputs_of(function), what);
    else add_exported(&text, function, what);
    return text.full || !text.used ? 0 : tfi_string(text.data, text.used);
}

static TFI_COLD void describe(struct tfi_torch_cache *cache, enum tfi_torch_how how, const void *function,
                              const char *text, struct tfi_torch_inputs *inputs)
{
    inputs->shapes = string_of(cache, how, function, TFI_TORCH_SHAPES);
    inputs->types = string_of(cache, how, function, TFI_TORCH_TYPES);
    inputs->concrete = string_of(cache, how, function, TFI_TORCH_CONCRETE);
    inputs->strides = string_of(cache, how, function, TFI_TORCH_STRIDES);
    inputs->flops = how == TFI_TORCH_DIRECT ? flops_of(text, function, inputs_of(function)) : 0;
}

void tfi_torch_inputs(struct tfi_torch_cache *cache, enum tfi_torch_how how, const void *function, uint32_t name,
                      const char *text, struct tfi_torch_inputs *inputs)
{
    *inputs = (struct tfi_torch_inputs){0};
    if (how == TFI_TORCH_EXPORTED && torch.num_inputs(function)) describe(cache, how, function, text, inputs);
    if (how != TFI_TORCH_DIRECT) return;
    struct values values = inputs_of(function);
    if (!values.count || values.count > MAX_INPUTS) return;
    struct key key = key_of(values, name);
    struct entry *set = cache->set[key.a & (SETS - 1)];
    for (uint32_t i = 0; i < WAYS; i++) {
        if (set[i].a != key.a || set[i].b != key.b) continue;
        *inputs = set[i].inputs;
        return;
    }
    describe(cache, how, function, text, inputs);
    set[cache->turn++ % WAYS] = (struct entry){key.a, key.b, *inputs};
}

/* ---- trying it ---- */

/* Asks the kernel; where that is forbidden, only what can't be an address is refused. */
static bool readable(const void *address, size_t bytes)
{
    char room[512];
    struct iovec to = {room, bytes}, from = {(void *)(uintptr_t)address, bytes};
    if ((uintptr_t)address < 4096 || (uintptr_t)address % 8 || (uintptr_t)address >> 47 || bytes > sizeof room)
        return false;
    ssize_t read = process_vm_readv(tfi_getpid(), &to, 1, &from, 1, 0);
    return read == (ssize_t)bytes || (read < 0 && (errno == ENOSYS || errno == EPERM));
}

static bool readable_tensor(const struct value *value)
{
    const char *impl = pointer(value, 0);
    size_t bytes = at.keys > at.type ? at.keys + 8u : at.type + 8u;
    if (!readable(impl, bytes)) return false;
    uint64_t dims = word(impl, at.dims);
    return dims <= 5 || (dims <= MAX_DIMS / 2 && readable(pointer(impl, at.sizes), 16 * dims));
}

static bool readable_list(const struct value *value)
{
    const void *impl = pointer(value, 0);
    if (!readable(impl, at.element_type + 8u) || !readable(pointer(impl, at.element_type), at.kind + 8u)) return false;
    struct values list = elements_of(value);
    if (list.count > MAX_SHOWN || (list.count && !readable(list.first, list.count * sizeof *list.first))) return false;
    for (size_t i = 0; is_tensor_list(value) && i < list.count; i++)
        if (list.first[i].tag != at.tensor || !readable_tensor(&list.first[i])) return false;
    return true;
}

static bool readable_inputs(const void *function)
{
    struct values inputs = inputs_of(function);
    if (inputs.count != torch.num_inputs(function) || inputs.count > MAX_SHOWN) return false;
    if (inputs.count && !readable(inputs.first, inputs.count * sizeof *inputs.first)) return false;
    for (size_t i = 0; i < inputs.count; i++) {
        const struct value *value = &inputs.first[i];
        if (value->tag == at.tensor && !readable_tensor(value)) return false;
        if (value->tag == at.list && !readable_list(value)) return false;
        if (value->tag == at.complex) return false;
    }
    return true;
}

void tfi_torch_inputs_text(enum tfi_torch_how how, const void *function, struct tfi_text *text)
{
    bool readable_all = how != TFI_TORCH_DIRECT || readable_inputs(function);
    for (int what = 0; what < TFI_TORCH_TEXTS; what++) {
        if (!readable_all) add_text(text, "?");
        else if (how == TFI_TORCH_DIRECT) add_direct(text, function, inputs_of(function), what);
        else if (how == TFI_TORCH_EXPORTED) add_exported(text, function, what);
        add_text(text, "\n");
    }
}
