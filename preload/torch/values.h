/* values.h - reads libtorch's values as they lie in memory, by the offsets of layout.def.
 *
 * Used only during a start callback (for outputs: an end callback), while the
 * operator's caller keeps its arguments alive. Some tensors are not read: those whose sizes are symbolic or come from
 * their own code (nested, functional, subclasses with sizes of their own). They appear as an undefined tensor does in
 * torch.profiler.
 */
#ifndef TFI_TORCH_VALUES_H
#define TFI_TORCH_VALUES_H

#include <string.h>

#include "torch/torch.h"

#define TFI_TORCH_INPUTS 256u
#define TFI_TORCH_DIMS 64u
#define TFI_TORCH_SHOWN 30u /* tensors or scalars of a list; torch.profiler leaves longer ones out too */

struct value {
    uint64_t payload;
    uint32_t tag;
    uint32_t unused;
};

struct values {
    const struct value *first;
    size_t count;
};

/* The layout in use, and the address of the undefined tensor; written by tfi_torch_layout_choose() alone. */
extern struct tfi_torch_layout tfi_torch_at;
extern const void *tfi_torch_undefined;

/* Chooses the layout of the open library by its version and its strings (cxx.h); false if it is unknown. */
bool tfi_torch_layout_choose(void *library, const char *version);

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
    return (struct values){pointer(function, tfi_torch_at.inputs), word(function, tfi_torch_at.inputs + 8)};
}

static inline struct values outputs_of(const void *function)
{
    const struct value *first = pointer(function, tfi_torch_at.outputs),
                       *end = pointer(function, tfi_torch_at.outputs + 8);
    return (struct values){first, (size_t)(end - first)};
}

static inline struct values elements_of(const struct value *list)
{
    const void *impl = pointer(list, 0);
    const struct value *first = pointer(impl, tfi_torch_at.elements), *end = pointer(impl, tfi_torch_at.elements + 8);
    return (struct values){first, (size_t)(end - first)};
}

/* The readable part of a tensor. */
struct tensor {
    const int64_t *sizes; /* NULL: the tensor is not read */
    const int64_t *strides;
    uint32_t dims;
    uint16_t type;
};

static inline struct tensor tensor_of(const struct value *value)
{
    struct tensor t = {0};
    const char *impl = pointer(value, 0);
    uint8_t flags = (uint8_t)impl[tfi_torch_at.flags];
    uint64_t dims = word(impl, tfi_torch_at.dims);
    uint16_t policy = flags & tfi_torch_at.policy;
    if (impl == tfi_torch_undefined || flags & tfi_torch_at.symbolic ||
        policy > (tfi_torch_at.policy & -tfi_torch_at.policy) || dims > TFI_TORCH_DIMS)
        return t;
    t.dims = (uint32_t)dims;
    t.sizes = dims <= 5 ? (const int64_t *)(impl + tfi_torch_at.sizes) : pointer(impl, tfi_torch_at.sizes);
    if (!policy || !(word(impl, tfi_torch_at.keys) & tfi_torch_at.unstrided))
        t.strides = t.sizes + (dims <= 5 ? 5 : dims);
    memcpy(&t.type, impl + tfi_torch_at.type, sizeof t.type);
    return t;
}

static inline bool is_scalar(const struct value *value)
{
    uint32_t tag = value->tag;
    return tag == tfi_torch_at.integer || tag == tfi_torch_at.real || tag == tfi_torch_at.boolean ||
           tag == tfi_torch_at.complex;
}

static inline bool is_tensor_list(const struct value *value)
{
    const void *type = value->tag == tfi_torch_at.list ? pointer(pointer(value, 0), tfi_torch_at.element_type) : NULL;
    return type && (uint32_t)word(type, tfi_torch_at.kind) == tfi_torch_at.kind_tensor;
}

/* True for a list that torch.profiler takes for one of scalars: an empty list, or a short one that begins with a
 * scalar. False for symbolic numbers, because Python would have to make their text. */
static inline bool is_scalar_list(const struct value *value)
{
    if (value->tag != tfi_torch_at.list) return false;
    struct values list = elements_of(value);
    if (list.count > TFI_TORCH_SHOWN) return false;
    for (size_t i = 0; i < list.count; i++)
        if (!is_scalar(&list.first[i])) return false;
    return true;
}

/* False if a tensor of the list cannot be read; the list is then left out. */
static inline bool is_whole(struct values list)
{
    for (size_t i = 0; i < list.count; i++)
        if (!tensor_of(&list.first[i]).sizes) return false;
    return true;
}

#endif
