/* texts.c - makes texts of an operator's inputs, and counts its floating point operations.
 *
 * The texts are those that torch.profiler writes as "Input Dims", "Input type", "Concrete Inputs" and "Input
 * Strides". If libtorch has a function for a part of them, that function is called. inputs.c caches all of this for
 * equal inputs.
 */
#include <errno.h>
#include <sys/uio.h>

#include "base/fmt.h"
#include "base/raw_dlsym.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "torch/cxx.h"
#include "torch/values.h"

/* std::unordered_map. */
struct map {
    uint64_t words[7];
    uint64_t behind;
};

static struct {
    size_t (*num_inputs)(const void *function);
    struct tfi_cxx_vector *(*sizes)(struct tfi_cxx_vector *result, const void *function, bool flatten);
    struct tfi_cxx_vector *(*types)(struct tfi_cxx_vector *result, const void *function);
    struct tfi_cxx_string *(*values_text)(struct tfi_cxx_string *result, const struct tfi_cxx_vector *values);
    struct map *(*flops_inputs)(struct map *result, const void *function);
    uint64_t (*flops)(const struct tfi_cxx_string *name, const struct map *inputs);
    void (*map_end)(struct map *map);
} torch;
static bool can_free;

/* The destructor of a std::unordered_map<std::string, c10::IValue>. */
#define MAP_END                                                                                                        \
    "_ZNSt10_HashtableINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt4pairIKS5_N3c106IValueEESaISA_"           \
    "ENSt8__detail10_Select1stESt8equal_toIS5_ESt4hashIS5_ENSC_18_Mod_range_hashingENSC_20_Default_ranged_hashENSC_"   \
    "20_Prime_rehash_policyENSC_17_Hashtable_traitsILb1ELb0ELb1EEEED1Ev"

#define OLD_MAP_END                                                                                                    \
    "_ZNSt10_HashtableISsSt4pairIKSsN3c106IValueEESaIS4_ENSt8__detail10_Select1stESt8equal_toISsESt4hashISsENS6_18_"   \
    "Mod_"                                                                                                             \
    "range_hashingENS6_20_Default_ranged_hashENS6_20_Prime_rehash_policyENS6_17_Hashtable_traitsILb1ELb0ELb1EEEED1Ev"

static void find_functions(void *library)
{
    static const struct tfi_torch_function functions[] = {
        {"_ZNK2at14RecordFunction10num_inputsEv", &torch.num_inputs, NULL},
        {"_ZN5torch8profiler4impl10inputSizesERKN2at14RecordFunctionEb", &torch.sizes, NULL},
        {"_ZN5torch8profiler4impl10inputTypesB5cxx11ERKN2at14RecordFunctionE", &torch.types,
         "_ZN5torch8profiler4impl10inputTypesERKN2at14RecordFunctionE"},
        {"_ZN5torch8profiler4impl15ivalueListToStrB5cxx11ERKSt6vectorIN3c106IValueESaIS4_EE", &torch.values_text,
         "_ZN5torch8profiler4impl15ivalueListToStrERKSt6vectorIN3c106IValueESaIS4_EE"},
        {"_ZN5torch8profiler4impl13saveExtraArgsB5cxx11ERKN2at14RecordFunctionE", &torch.flops_inputs,
         "_ZN5torch8profiler4impl13saveExtraArgsERKN2at14RecordFunctionE"},
        {"_ZN5torch8profiler4impl12computeFlopsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt13unordered_"
         "mapIS7_N3c106IValueESt4hashIS7_ESt8equal_toIS7_ESaISt4pairIS8_SC_EEE",
         &torch.flops,
         "_ZN5torch8profiler4impl12computeFlopsERKSsRKSt13unordered_mapISsN3c106IValueESt4hashISsESt8equal_"
         "toISsESaISt4pair"
         "IS2_S6_EEE"},
        {MAP_END, &torch.map_end, OLD_MAP_END},
    };
    tfi_torch_find(library, functions, TFI_COUNT(functions));
}

bool tfi_torch_texts_init(void *library)
{
    can_free = tfi_cxx_init(library);
    find_functions(library);
    return tfi_torch_exported();
}

bool tfi_torch_exported(void)
{
    return torch.num_inputs && torch.sizes && torch.types && can_free;
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
        if (value->tag == tfi_torch_at.tensor) {
            add_dims(text, value, strides);
            continue;
        }
        add_text(text, "[");
        for (size_t k = 0; list.count <= TFI_TORCH_SHOWN && k < list.count && is_whole(list); k++) {
            add_text(text, k ? ", " : "");
            add_dims(text, &list.first[k], strides);
        }
        add_text(text, "]");
    }
    add_text(text, "]");
}

/* libtorch names the types of tensors. */
static void add_types(struct tfi_text *text, const void *function, struct values inputs)
{
    struct tfi_cxx_vector names;
    torch.types(&names, function);
    size_t bytes = tfi_cxx_string_bytes(), count = (size_t)(names.end - names.begin) / bytes;
    for (size_t i = 0; i < inputs.count; i++) {
        const struct value *value = &inputs.first[i];
        const char *type = "";
        if (value->tag == tfi_torch_at.tensor && i < count)
            type = tensor_of(value).sizes ? tfi_cxx_text(names.begin + i * bytes).bytes : "";
        else if (is_scalar(value)) type = "Scalar";
        else if (is_tensor_list(value)) type = is_whole(elements_of(value)) ? "TensorList" : "";
        else if (is_scalar_list(value)) type = "ScalarList";
        tfi_text_add(text, "%s\"%s\"", i ? ", " : "[", type);
    }
    add_text(text, "]");
    tfi_cxx_strings_end(&names);
}

/* libtorch makes the text of the scalars, from a copy of the values in which all others are None. The copy owns nothing,
 * and the function takes it by a constant reference. libtorch 2.0 has no such function. */
static void add_concrete(struct tfi_text *text, struct values inputs)
{
    struct value copy[TFI_TORCH_INPUTS];
    struct tfi_cxx_string result;
    for (size_t i = 0; i < inputs.count; i++) {
        const struct value *value = &inputs.first[i];
        bool shown = is_scalar(value) || (!is_tensor_list(value) && is_scalar_list(value));
        copy[i] = shown ? *value : (struct value){.tag = tfi_torch_at.none};
    }
    struct tfi_cxx_vector values = {(char *)copy, (char *)(copy + inputs.count), (char *)(copy + inputs.count)};
    torch.values_text(&result, &values);
    struct tfi_cxx_text made = tfi_cxx_text(&result);
    tfi_text_bytes(text, made.bytes, made.length);
    tfi_cxx_string_end(&result);
}

/* ---- floating point operations ---- */

static bool is_pair(const struct value *value)
{
    return is_scalar_list(value) && elements_of(value).count == 2;
}

/* True if libtorch can count the operations without a warning to the user. `needs` has a bit for each input that
 * has to be a tensor. */
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
        if (i >= inputs.count || in[i].tag != tfi_torch_at.tensor || !tensor_of(&in[i]).sizes) return false;
    if (strcmp(name, "aten::conv2d") != 0) return true;
    return inputs.count > 6 && tensor_of(&in[0]).dims == 4 && tensor_of(&in[1]).dims == 4 && is_pair(&in[3]) &&
           is_pair(&in[4]) && is_pair(&in[5]) && in[6].tag == tfi_torch_at.integer && in[6].payload &&
           elements_of(&in[3]).first[0].payload && elements_of(&in[3]).first[1].payload;
}

uint64_t tfi_torch_flops(const char *name, const void *function)
{
    struct map map;
    struct values inputs = inputs_of(function);
    struct tfi_cxx_borrowed text;
    if (!torch.flops_inputs || !torch.flops || !torch.map_end || !is_countable(name, inputs)) return 0;
    if (!tfi_cxx_borrow(&text, name)) return 0;
    torch.flops_inputs(&map, function);
    uint64_t flops = torch.flops(&text.string, &map);
    torch.map_end(&map);
    return flops;
}

/* ---- by libtorch's functions ---- */

static void add_exported_shapes(struct tfi_text *text, const void *function)
{
    struct tfi_cxx_vector shapes;
    torch.sizes(&shapes, function, false);
    for (struct tfi_cxx_vector *shape = (struct tfi_cxx_vector *)shapes.begin;
         shape < (struct tfi_cxx_vector *)shapes.end; shape++) {
        add_text(text, shape == (struct tfi_cxx_vector *)shapes.begin ? "[" : ", ");
        add_numbers(text, (const int64_t *)shape->begin, (uint32_t)((shape->end - shape->begin) / 8));
        tfi_cxx_vector_end(shape);
    }
    add_text(text, "]");
    tfi_cxx_vector_end(&shapes);
}

/* Scalars have one name in torch.profiler's traces; of a list this way only tells that it is one. */
static void add_exported_types(struct tfi_text *text, const void *function)
{
    static const char *const scalars[] = {"Int", "Double", "Bool", "ComplexDouble"};
    struct tfi_cxx_vector types;
    torch.types(&types, function);
    for (char *type = types.begin; type < types.end; type += tfi_cxx_string_bytes()) {
        const char *shown = tfi_cxx_text(type).bytes;
        for (size_t i = 0; i < TFI_COUNT(scalars); i++)
            if (strcmp(shown, scalars[i]) == 0) shown = "Scalar";
        tfi_text_add(text, "%s\"%s\"", type == types.begin ? "[" : ", ", shown);
    }
    add_text(text, "]");
    tfi_cxx_strings_end(&types);
}

/* ---- functions for other files ---- */

size_t tfi_torch_count(const void *function)
{
    return torch.num_inputs(function);
}

void tfi_torch_text(struct tfi_text *text, enum tfi_torch_how how, const void *function, int what)
{
    bool direct = how == TFI_TORCH_DIRECT;
    struct values inputs = direct ? inputs_of(function) : (struct values){0};
    if (direct ? !inputs.count || inputs.count > TFI_TORCH_INPUTS : !tfi_torch_count(function)) return;
    switch (what) {
    case TFI_TORCH_SHAPES:
        if (direct) add_all_dims(text, inputs, false);
        else add_exported_shapes(text, function);
        break;
    case TFI_TORCH_TYPES:
        if (direct) add_types(text, function, inputs);
        else add_exported_types(text, function);
        break;
    case TFI_TORCH_CONCRETE:
        if (direct && torch.values_text) add_concrete(text, inputs);
        break;
    case TFI_TORCH_STRIDES:
        if (direct) add_all_dims(text, inputs, true);
        break;
    }
}

/* ---- trial ---- */

/* Asks the kernel. If that is forbidden, only values that cannot be an address are refused. */
bool tfi_torch_readable(const void *address, size_t bytes)
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
    size_t bytes = tfi_torch_at.keys > tfi_torch_at.type ? tfi_torch_at.keys + 8u : tfi_torch_at.type + 8u;
    if (!tfi_torch_readable(impl, bytes)) return false;
    uint64_t dims = word(impl, tfi_torch_at.dims);
    return dims <= 5 ||
           (dims <= TFI_TORCH_DIMS / 2 && tfi_torch_readable(pointer(impl, tfi_torch_at.sizes), 16 * dims));
}

static bool readable_list(const struct value *value)
{
    const void *impl = pointer(value, 0);
    if (!tfi_torch_readable(impl, tfi_torch_at.element_type + 8u) ||
        !tfi_torch_readable(pointer(impl, tfi_torch_at.element_type), tfi_torch_at.kind + 8u))
        return false;
    struct values list = elements_of(value);
    if (list.count > TFI_TORCH_SHOWN ||
        (list.count && !tfi_torch_readable(list.first, list.count * sizeof *list.first)))
        return false;
    for (size_t i = 0; is_tensor_list(value) && i < list.count; i++)
        if (list.first[i].tag != tfi_torch_at.tensor || !readable_tensor(&list.first[i])) return false;
    return true;
}

static bool readable_inputs(const void *function)
{
    struct values inputs = inputs_of(function);
    if (inputs.count != torch.num_inputs(function) || inputs.count > TFI_TORCH_SHOWN) return false;
    if (inputs.count && !tfi_torch_readable(inputs.first, inputs.count * sizeof *inputs.first)) return false;
    for (size_t i = 0; i < inputs.count; i++) {
        const struct value *value = &inputs.first[i];
        if (value->tag == tfi_torch_at.tensor && !readable_tensor(value)) return false;
        if (value->tag == tfi_torch_at.list && !readable_list(value)) return false;
        if (value->tag == tfi_torch_at.complex) return false;
    }
    return true;
}

void tfi_torch_inputs_text(enum tfi_torch_how how, const void *function, struct tfi_text *text)
{
    bool readable_all = how != TFI_TORCH_DIRECT || readable_inputs(function);
    for (int what = 0; what < TFI_TORCH_TEXTS; what++) {
        if (!readable_all) add_text(text, "?");
        else tfi_torch_text(text, how, function, what);
        add_text(text, "\n");
    }
}
