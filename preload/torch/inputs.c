/* inputs.c - describes the inputs of an operator, and caches their strings.
 *
 * Making the texts of texts.c takes microseconds, so it is done once for equal inputs. The inputs as they lie in
 * memory are mixed into a key of 128 bits, and a cache of the thread maps the key to the numbers of the strings. The
 * probability that two different inputs have one key is negligible. An overwritten cache entry is made again when it
 * is needed.
 */
#include "base/fmt.h"
#include "base/process.h"
#include "base/sys.h"
#include "control/config.h"
#include "record/log.h"
#include "record/strings.h"
#include "record/thread.h"
#include "torch/cxx.h"
#include "torch/values.h"

#define SETS 2048u /* a power of two */
#define WAYS 4u
#define TEXT_BYTES (64u << 10)

struct tfi_torch_cache {
    char text[TEXT_BYTES];
    uint32_t turn;
    bool asks; /* a function of libtorch's that was asked for a text has not returned */
    struct entry {
        uint64_t a, b; /* the key; 0, 0 if empty */
        struct tfi_torch_inputs inputs;
    } set[SETS][WAYS];
};

bool tfi_torch_inputs_init(void *library, const char *version)
{
    return tfi_torch_texts_init(library) && tfi_torch_layout_choose(library, version);
}

struct tfi_torch_cache *tfi_torch_cache_new(void)
{
    return tfi_map(sizeof(struct tfi_torch_cache));
}

int64_t tfi_torch_sequence(const void *function)
{
    return (int64_t)word(function, tfi_torch_at.sequence);
}

uint16_t tfi_torch_scope(const void *function)
{
    return ((const uint8_t *)function)[tfi_torch_at.scope];
}

bool tfi_torch_async(const void *function)
{
    return ((const uint8_t *)function)[tfi_torch_at.async] == 1;
}

uint64_t tfi_torch_forward(const void *function)
{
    return word(function, tfi_torch_at.forward);
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

/* Mixes two values at once, at half the cost: the second one is small, and spread over all bits first. */
static inline void mix_two(struct key *key, uint64_t value, uint64_t small)
{
    mix(key, value + small * 0xa0761d6478bd642fu);
}

enum what { NOTHING, TENSOR, TENSORS, SCALAR, SCALARS };

static inline void mix_tensor(struct key *key, const struct value *value)
{
    struct tensor t = tensor_of(value);
    mix(key,
        TENSOR | (t.sizes != NULL) << 8 | (t.strides != NULL) << 9 | (uint64_t)t.dims << 16 | (uint64_t)t.type << 32);
    for (uint32_t i = 0; t.sizes && i < t.dims; i++)
        mix_two(key, (uint64_t)t.sizes[i], t.strides ? (uint64_t)t.strides[i] : 0);
}

static inline void mix_scalar(struct key *key, const struct value *value)
{
    uint64_t head = SCALAR | (uint64_t)value->tag << 8;
    if (value->tag == tfi_torch_at.complex) {
        const void *holder = pointer(value, 0);
        mix(key, head);
        mix(key, word(holder, tfi_torch_at.number));
        mix(key, word(holder, tfi_torch_at.number + 8));
    } else {
        mix_two(key, value->tag == tfi_torch_at.boolean ? (uint8_t)value->payload : value->payload, head);
    }
}

static void mix_list(struct key *key, const struct value *value)
{
    struct values list = elements_of(value);
    if (is_tensor_list(value)) {
        bool whole = is_whole(list);
        mix(key, TENSORS | whole << 8 | list.count << 16);
        for (size_t i = 0; whole && list.count <= TFI_TORCH_SHOWN && i < list.count; i++)
            mix_tensor(key, &list.first[i]);
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
        if (value->tag == tfi_torch_at.tensor) mix_tensor(&key, value);
        else if (is_scalar(value)) mix_scalar(&key, value);
        else if (value->tag == tfi_torch_at.list) mix_list(&key, value);
        else mix(&key, NOTHING);
    }
    key.b |= 1; /* never the key of an empty entry */
    return key;
}

/* ---- functions for other files ---- */

/* Returns a text as a string of the trace; 0 if it is empty, or too long for its room. */
static uint32_t number_of(const struct tfi_text *text)
{
    if (!text->used || text->full) return 0;
    if (tfi_self->gen != __atomic_load_n(&tfi_process->gen, __ATOMIC_SEQ_CST)) return 0; /* ended meanwhile */
    return tfi_string(text->data, text->used);
}

/* False if libtorch's functions are not to be asked any more. They throw for the sizes of a nested tensor, and libtorch
 * then warns of each such operator at length. A question without an answer ends them for all threads. */
static bool may_ask(const struct tfi_torch_cache *cache)
{
    static bool stopped;
    if (__atomic_load_n(&stopped, __ATOMIC_RELAXED)) return false;
    if (!cache->asks) return true;
    if (!__atomic_exchange_n(&stopped, true, __ATOMIC_RELAXED))
        tfi_log(TFI_LOG_WARN, "operators are recorded without shapes from now on: this libtorch cannot tell the shapes "
                              "of some tensors, such as nested ones");
    return false;
}

/* Returns one of the texts as a string of the trace; a text that is too long is left out. An exception of a function
 * of libtorch's passes through here to libtorch, which continues, so the thread's guard is clear meanwhile. */
static uint32_t string_of(struct tfi_torch_cache *cache, enum tfi_torch_how how, const void *function, int what)
{
    struct tfi_text text = {cache->text, sizeof cache->text, 0, 0};
    tfi_frame guard = tfi_self->guard;
    cache->asks = how == TFI_TORCH_EXPORTED;
    if (cache->asks) tfi_guard_clear(tfi_self);
    tfi_torch_text(&text, how, function, what);
    if (cache->asks) tfi_guard_put(tfi_self, guard);
    cache->asks = false;
    return number_of(&text);
}

static TFI_COLD void describe(struct tfi_torch_cache *cache, enum tfi_torch_how how, const void *function,
                              const char *text, struct tfi_torch_inputs *inputs)
{
    inputs->shapes = string_of(cache, how, function, TFI_TORCH_SHAPES);
    inputs->types = string_of(cache, how, function, TFI_TORCH_TYPES);
    inputs->concrete = tfi_config.record_values ? string_of(cache, how, function, TFI_TORCH_CONCRETE) : 0;
    inputs->strides = string_of(cache, how, function, TFI_TORCH_STRIDES);
    inputs->flops = how == TFI_TORCH_DIRECT ? tfi_torch_flops(text, function) : 0;
}

void tfi_torch_inputs(struct tfi_torch_cache *cache, enum tfi_torch_how how, const void *function, uint32_t name,
                      const char *text, struct tfi_torch_inputs *inputs)
{
    *inputs = (struct tfi_torch_inputs){0};
    if (how == TFI_TORCH_EXPORTED && tfi_torch_count(function) && may_ask(cache))
        describe(cache, how, function, text, inputs);
    if (how != TFI_TORCH_DIRECT) return;
    struct values values = inputs_of(function);
    if (!values.count || values.count > TFI_TORCH_INPUTS) return;
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

uint32_t tfi_torch_modules(struct tfi_torch_cache *cache)
{
    struct tfi_text text = {cache->text, sizeof cache->text, 0, 0};
    tfi_frame guard = tfi_self->guard;
    tfi_guard_clear(tfi_self); /* an exception of libtorch's passes through here, as above */
    tfi_torch_hierarchy(&text);
    tfi_guard_put(tfi_self, guard);
    return number_of(&text);
}

/* ---- storages of tensors ---- */

/* Appends a tensor's storage; one without memory has none. */
static uint32_t add_storage(const struct value *value, uint64_t *blocks, uint32_t used, uint32_t room)
{
    const void *storage =
        pointer(value, 0) == tfi_torch_undefined ? NULL : pointer(pointer(value, 0), tfi_torch_at.storage);
    if (!storage || room - used < 2 || !word(storage, tfi_torch_at.data)) return used;
    blocks[used] = word(storage, tfi_torch_at.data);
    blocks[used + 1] = word(storage, tfi_torch_at.bytes);
    return used + 2;
}

uint32_t tfi_torch_storages(const void *function, bool outputs, uint64_t *blocks, uint32_t room)
{
    struct values values = outputs ? outputs_of(function) : inputs_of(function);
    uint32_t used = 0;
    for (size_t i = 0; i < values.count; i++) {
        const struct value *value = &values.first[i];
        struct values list = is_tensor_list(value) ? elements_of(value) : (struct values){0};
        if (value->tag == tfi_torch_at.tensor) used = add_storage(value, blocks, used, room);
        for (size_t k = 0; k < list.count; k++) used = add_storage(&list.first[k], blocks, used, room);
    }
    return used;
}
