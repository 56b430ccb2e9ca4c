/* models.c - counts the operations and bytes of operators by the models of models.def. */
#include "advise/roofline/models.h"

#include <ctype.h>
#include <string.h>

#include "base/util.h"
#include "pattern.h"

typedef struct op_cost count_cost(const struct op_inputs *inputs, int argument);

static struct op_cost known_cost(double flops, double bytes, enum element element)
{
    return (struct op_cost){flops >= 0 && bytes > 0, flops, bytes, element};
}

static struct op_cost count_nothing(const struct op_inputs *in, int unused)
{
    (void)in;
    (void)unused;
    return (struct op_cost){0};
}

static struct op_cost count_product(const struct op_inputs *in, int first, bool transposed)
{
    const struct tensor *left = &in->tensor[first], *right = &in->tensor[first + 1];
    if (!left->axes || !right->axes || !left->bytes || !right->bytes) return (struct op_cost){0};
    double inner = left->axis[left->axes - 1], rows = tensor_elements(left) / (inner ? inner : 1);
    double columns = right->axes < 2 ? 1 : right->axis[right->axes - (transposed ? 2 : 1)];
    double size = left->bytes / tensor_elements(left);
    return known_cost(2 * rows * inner * columns, left->bytes + right->bytes + rows * columns * size, left->element);
}

static struct op_cost count_matrices(const struct op_inputs *in, int first)
{
    return count_product(in, first, false);
}

static struct op_cost count_linear(const struct op_inputs *in, int unused)
{
    (void)unused;
    return count_product(in, 0, true);
}

static double number_at(const struct op_inputs *in, size_t input, size_t axis, double otherwise)
{
    if (input >= MOST_INPUTS || !in->numbers[input]) return otherwise;
    return in->concrete[input][axis < in->numbers[input] ? axis : in->numbers[input] - 1];
}

/* Inputs: image, weight, bias, stride, padding, dilation; then, in aten::convolution, transposed, output padding, groups;
 * in others groups alone. */
static struct op_cost count_convolution(const struct op_inputs *in, int unused)
{
    enum { STRIDE = 3, PADDING, DILATION, TRANSPOSED, OUTPUT_PADDING, GROUPS };
    const struct tensor *image = &in->tensor[0], *weight = &in->tensor[1];
    (void)unused;
    if (image->axes < 3 || weight->axes != image->axes || !image->bytes || !weight->bytes) return (struct op_cost){0};
    bool transposed = in->truth[TRANSPOSED];
    double groups = number_at(in, GROUPS, 0, number_at(in, TRANSPOSED, 0, 1)), places = image->axis[0];
    for (size_t i = 2; i < image->axes; i++) {
        double stride = number_at(in, STRIDE, i - 2, 1), padding = number_at(in, PADDING, i - 2, 0);
        double covered = number_at(in, DILATION, i - 2, 1) * (weight->axis[i] - 1) + 1;
        double side = transposed
                          ? (image->axis[i] - 1) * stride - 2 * padding + covered
                          : (double)(long)((image->axis[i] + 2 * padding - covered) / (stride > 0 ? stride : 1)) + 1;
        places *= side > 0 ? side : 0;
    }
    double outputs = transposed ? weight->axis[1] * groups : weight->axis[0];
    double of_each = tensor_elements(weight) / (weight->axis[0] ? weight->axis[0] : 1);
    double flops = transposed ? 2 * tensor_elements(image) * of_each : 2 * places * outputs * of_each;
    double size = image->bytes / tensor_elements(image);
    return known_cost(flops, image->bytes + weight->bytes + places * outputs * size, image->element);
}

enum { HEADS_FIRST, LENGTH_FIRST };

static struct op_cost count_attention(const struct op_inputs *in, int order)
{
    const struct tensor *q = &in->tensor[0], *k = &in->tensor[1], *v = &in->tensor[2];
    if (q->axes < 3 || k->axes != q->axes || v->axes != q->axes || !q->bytes) return (struct op_cost){0};
    size_t length = q->axes == 3 || order == LENGTH_FIRST ? 1 : 2, last = q->axes - 1;
    double rest = tensor_elements(q) / (q->axis[length] * q->axis[last]); /* batch and heads */
    double pairs = rest * q->axis[length] * k->axis[length];
    double output = q->bytes / (q->axis[last] ? q->axis[last] : 1) * v->axis[last];
    return known_cost(2 * pairs * (q->axis[last] + v->axis[last]), q->bytes + k->bytes + v->bytes + output, q->element);
}

/* Each expert that a token may go to is read, at most as many as tokens and choices can reach. */
static struct op_cost count_moe(const struct op_inputs *in, int unused)
{
    const struct tensor *tokens = &in->tensor[0], *first = &in->tensor[1], *second = &in->tensor[2];
    (void)unused;
    if (tokens->axes != 2 || first->axes != 3 || !tokens->bytes || !first->bytes) return (struct op_cost){0};
    const struct tensor *choices = second->axes == 3 ? &in->tensor[3] : NULL;
    double each = choices && choices->axes == 2 ? choices->axis[1] : 1, experts = first->axis[0];
    double used = MIN(experts, tokens->axis[0] * each) / experts;
    double weights = tensor_elements(first) + (second->axes == 3 ? tensor_elements(second) : 0);
    double bytes = first->bytes + (second->axes == 3 ? second->bytes : 0);
    return known_cost(2 * tokens->axis[0] * each * weights / experts, used * bytes + 2 * tokens->bytes,
                      tokens->element);
}

static const struct tensor *largest_input(const struct op_inputs *in)
{
    const struct tensor *largest = &in->tensor[0];
    for (size_t i = 1; i < in->count; i++)
        if (in->tensor[i].bytes > largest->bytes) largest = &in->tensor[i];
    return largest;
}

/* All inputs are read; the output is as large as the largest one. */
static struct op_cost count_elements(const struct op_inputs *in, int each)
{
    const struct tensor *largest = largest_input(in);
    double bytes = 0;
    for (size_t i = 0; i < in->count; i++) bytes += in->tensor[i].bytes;
    if (!largest->bytes) return (struct op_cost){0};
    return known_cost(each * tensor_elements(largest), bytes + largest->bytes, largest->element);
}

static struct op_cost count_reduction(const struct op_inputs *in, int each)
{
    const struct tensor *largest = largest_input(in);
    return largest->bytes ? known_cost(each * tensor_elements(largest), largest->bytes, largest->element)
                          : (struct op_cost){0};
}

static struct op_cost count_moved(const struct op_inputs *in, int times)
{
    const struct tensor *largest = largest_input(in);
    return largest->bytes ? known_cost(0, times * largest->bytes, largest->element) : (struct op_cost){0};
}

#define MATRICES(first) count_matrices, first
#define LINEAR count_linear, 0
#define CONVOLUTION count_convolution, 0
#define ATTENTION(order) count_attention, order
#define MOE count_moe, 0
#define ELEMENTS(n) count_elements, n
#define REDUCTION(n) count_reduction, n
#define MOVED(n) count_moved, n
#define NO_MODEL count_nothing, 0

static const struct {
    const char *glob;
    count_cost *count;
    int argument;
} models[] = {
#define MODEL(glob, model) {glob, model},
#include "advise/roofline/models.def"
#undef MODEL
};

struct op_cost op_cost(const char *name, const struct op_inputs *inputs)
{
    size_t length = strlen(name), plain = length - (length && name[length - 1] == '_');
    for (size_t i = 0; i < ARRAY_SIZE(models); i++)
        if (tfi_glob(models[i].glob, name, length, false) || tfi_glob(models[i].glob, name, plain, false))
            return models[i].count(inputs, models[i].argument);
    return (struct op_cost){0};
}

/* ---- devices ---- */

static const struct device_peaks devices[] = {
#define DEVICE(name, gbs, fp64, fp32, tf32, fp16, fp8, source)                                                         \
    {name, source, (gbs)*1e9, (fp64)*1e12, (fp32)*1e12, (tf32)*1e12, (fp16)*1e12, (fp8)*1e12},
#include "advise/roofline/devices.def"
#undef DEVICE
};

/* True if the words stand in the name as words: an L40 is no L4, and a GH200 no H200. */
static bool has_words(const char *name, const char *words)
{
    for (const char *at = name; (at = strcasestr(at, words)) != NULL; at++)
        if ((at == name || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[strlen(words)])) return true;
    return false;
}

const struct device_peaks *device_peaks(const char *name)
{
    /* A part of a device, and other devices that are sold under the same name. */
    static const char *const others[] = {"MIG", "Laptop", "Max-Q", "D", "Ti", "Super"};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (has_words(name, others[i])) return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++)
        if (has_words(name, devices[i].name)) return &devices[i];
    return NULL;
}

void devices_known(struct text *text)
{
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++) text_format(text, "%s%s", i ? ", " : "", devices[i].name);
}

static double peak_of(const struct op_cost *cost, const struct device_peaks *peaks, double took)
{
    switch (cost->element) {
    case ELEMENT_FP64: return peaks->fp64;
    case ELEMENT_FP16: return peaks->fp16;
    case ELEMENT_FP8: return peaks->fp8 > 0 ? peaks->fp8 : peaks->fp16;
    case ELEMENT_FP32:
        return peaks->tf32 > peaks->fp32 && cost->flops / peaks->fp32 * 1e9 > took ? peaks->tf32 : peaks->fp32;
    default: return 0;
    }
}

double bound_ns(const struct op_cost *cost, const struct device_peaks *peaks, double took, const char **bound)
{
    double peak = peak_of(cost, peaks, took), memory = cost->bytes / peaks->bytes * 1e9;
    double compute = peak > 0 ? cost->flops / peak * 1e9 : 0;
    *bound = compute > memory ? "compute" : "memory";
    return MAX(compute, memory);
}
