/* flops.c - counts operations from the input shapes that a Kineto trace keeps of an operator.
 *
 * Kineto writes no counts, so they are recomputed if the header says that the profile had them (with_flops). Products
 * wrap at 2^64, as torch's do.
 */
#include "model/load/flops.h"

#include <string.h>

#include "read/stream/stream.h"

enum { MOST_DIMS = 32, CONV_DIMS = 4, CONV_PAIR = 2 };

struct dims {
    int64_t of[MOST_DIMS];
    size_t count;
    bool known;
};

static struct slice item_at(struct slice list, size_t index)
{
    struct slice key, value = {0};
    for (size_t i = 0; list.at && json_next(&list, &key, &value); i++)
        if (i == index) return value;
    return (struct slice){0};
}

/* Parses the integers of a list; unknown if it has other items or too many. */
static struct dims numbers_of(struct slice list)
{
    struct dims dims = {.known = list.length && *list.at == '['};
    struct slice key, value;
    while (dims.known && json_next(&list, &key, &value)) {
        dims.known = dims.count < MOST_DIMS && json_int(value, &dims.of[dims.count]);
        dims.count++;
    }
    return dims;
}

/* Parses a list inside a string, the form of concrete inputs: "[1, 1]". */
static struct dims numbers_in_text(struct slice text)
{
    char copy[256 + STREAM_PAD];
    if (text.length < 2 || *text.at != '"' || text.length > 256) return (struct dims){0};
    memset(copy, 0, sizeof copy);
    memset(copy + text.length - 1, '"', STREAM_PAD);
    copy[text.length - 2] = 0;
    memcpy(copy, text.at + 1, text.length - 2);
    return numbers_of((struct slice){copy, text.length - 2});
}

struct inputs {
    struct slice dims, types, concrete;
};

/* Returns the sizes of a tensor; unknown if the input is no tensor. */
static struct dims sizes_of(const struct inputs *in, size_t index)
{
    static const char *const others[] = {"\"\"", "\"Scalar\"", "\"ScalarList\"", "\"TensorList\"", "\"GenericList\""};
    struct slice type = item_at(in->types, index);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (type.length == strlen(others[i]) && memcmp(type.at, others[i], type.length) == 0) return (struct dims){0};
    return numbers_of(item_at(in->dims, index));
}

static uint64_t product(const struct dims *dims, uint64_t start)
{
    for (size_t i = 0; i < dims->count; i++) start *= (uint64_t)dims->of[i];
    return start;
}

static uint64_t elementwise(const struct inputs *in)
{
    struct dims sizes = sizes_of(in, 0);
    return sizes.known ? product(&sizes, 1) : 0;
}

/* Counts a product of two matrices or of batches of them; in an addmm the summand comes first. */
static uint64_t matrices(const struct inputs *in, size_t first, bool batched)
{
    struct dims left = sizes_of(in, first), right = sizes_of(in, first + 1), added = sizes_of(in, 0);
    if (!left.known || !right.known || !added.known || !left.count) return 0;
    uint64_t batch = batched ? (uint64_t)left.of[0] : 1, overlap = (uint64_t)left.of[left.count - 1];
    return batch && overlap ? product(&right, product(&left, 1) / overlap / batch) * 2 : 0;
}

static uint64_t convolution(const struct inputs *in)
{
    enum { INPUT, WEIGHT, STRIDE = 3, PADDING, DILATION, GROUPS };
    struct dims input = sizes_of(in, INPUT), kernel = sizes_of(in, WEIGHT);
    struct dims stride = numbers_in_text(item_at(in->concrete, STRIDE));
    struct dims padding = numbers_in_text(item_at(in->concrete, PADDING));
    struct dims dilation = numbers_in_text(item_at(in->concrete, DILATION));
    int64_t groups = 0;
    bool good = input.known && kernel.known && input.count == CONV_DIMS && kernel.count == CONV_DIMS;
    const struct dims *pairs[] = {&stride, &padding, &dilation};
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) good &= pairs[i]->known && pairs[i]->count == CONV_PAIR;
    if (!good || !json_int(item_at(in->concrete, GROUPS), &groups) || !groups || !stride.of[0] || !stride.of[1])
        return 0;
    uint64_t sides = 1;
    for (size_t i = 0; i < CONV_PAIR; i++) {
        uint64_t covered = (uint64_t)input.of[2 + i] + 2 * (uint64_t)padding.of[i] -
                           (uint64_t)dilation.of[i] * ((uint64_t)kernel.of[2 + i] - 1) - 1;
        sides *= covered / (uint64_t)stride.of[i] + 1;
    }
    return 2 * (uint64_t)input.of[0] * sides * (uint64_t)kernel.of[2] * (uint64_t)kernel.of[3] * (uint64_t)input.of[1] *
           (uint64_t)kernel.of[0] / (uint64_t)groups;
}

uint64_t op_flops(struct slice name, struct slice dims, struct slice types, struct slice concrete)
{
    const struct inputs in = {dims, types, concrete};
    static const char *const names[] = {"aten::conv2d",  "aten::mm",  "aten::addmm", "aten::bmm",
                                        "aten::baddbmm", "aten::mul", "aten::add"};
    size_t i = 0;
    while (i < ARRAY_SIZE(names) && (name.length != strlen(names[i]) || memcmp(name.at, names[i], name.length) != 0))
        i++;
    switch (i) {
    case 0: return convolution(&in);
    case 1: return matrices(&in, 0, false);
    case 2: return matrices(&in, 1, false);
    case 3: return matrices(&in, 0, true);
    case 4: return matrices(&in, 1, true);
    case 5:
    case 6: return elementwise(&in);
    default: return 0;
    }
}
