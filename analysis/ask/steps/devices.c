/* devices.c - computes GPU utilisation, SM efficiency, occupancy and the share of tensor cores of each device.
 *
 * Only what lies within the given times counts. As in gpu_metrics_parser.py of torch_tb_profiler 0.4.3:
 * utilisation: time with at least one kernel, of all time;
 * SM efficiency: blocks per SM, of all kernels at a moment together and at most 1, averaged over all time;
 * occupancy: the profiler's estimate for each kernel, ours in a trace of ours, weighted with the kernel's duration.
 * tensor cores: the share of kernels whose name has a word of tensor_core.py in the time of all kernels, as in the
 * plugin's kernel view, and the share with today's words as well.
 */
#include "ask/steps/devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/device/occupancy.h"
#include "base/sets/measure.h"

/* From TC_Allowlist of the plugin, which has it from NVIDIA's PyProf. */
static const char *const tensor_words[] = {"h884",
                                           "s884",
                                           "h1688",
                                           "s1688",
                                           "hmma",
                                           "i8816",
                                           "16816",
                                           "conv1x1",
                                           "conv2d_c1_k1",
                                           "direct_group",
                                           "xmma_sparse_conv",
                                           "xmma_implicit_gemm",
                                           "xmma_gemm",
                                           "c1688",
                                           "dgrad_1x1_stride_2x2",
                                           "first_layer_wgrad_kernel",
                                           "xmma_sparse_gemm",
                                           "xmma_warp_specialized_implicit_gemm"};

/* Words of kernels that use tensor cores and that the plugin does not know: cuBLAS and CUTLASS since Ampere. */
static const char *const newer_words[] = {"nvjet", "tensorop", "wgmma", "sm90_xmma", "tcgen05"};

enum tensor { TENSOR_NONE, TENSOR_NEWER, TENSOR_PLUGIN };

static bool has_word(const struct name *name, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memmem(name->text, name->length, words[i], strlen(words[i]))) return true;
    return false;
}

static enum tensor tensor_of(const struct name *name)
{
    if (has_word(name, tensor_words, ARRAY_SIZE(tensor_words))) return TENSOR_PLUGIN;
    return has_word(name, newer_words, ARRAY_SIZE(newer_words)) ? TENSOR_NEWER : TENSOR_NONE;
}

/* ---- kernels ---- */

struct step_kernel {
    int64_t device, start, end;
    double blocks, occupancy; /* blocks per SM; NAN: unknown */
    enum tensor tensor;
};

struct kernels {
    struct step_kernel *kernel;
    size_t count, capacity;
};

static int by_device(const void *a, const void *b)
{
    const struct step_kernel *x = a, *y = b;
    return x->device != y->device ? by_number(x->device, y->device) : by_number(x->start, y->start);
}

/* Returns a number of blocks per SM, or NAN if it is not a sensible one. */
static double blocks_per_sm(const struct process *p, int64_t device, double blocks)
{
    static const double MOST = 1e15;
    if (!is_of_kineto(p)) {
        const struct device *described = find_device(p, device);
        blocks = described && described->units ? blocks / described->units : NAN;
    }
    return blocks > 0 && blocks < MOST ? blocks : NAN;
}

/* Sets what is known of how a kernel fills its device. */
static void fill(struct step_kernel *k, const struct process *p, const struct filling *filling)
{
    k->blocks = blocks_per_sm(p, k->device, filling->blocks);
    double occupancy = filling->occupancy;
    const struct device *device = is_of_kineto(p) ? NULL : find_device(p, k->device);
    const struct block_needs block = {filling->threads, filling->registers, filling->shared};
    if (device) occupancy = occupancy_estimate(device->capability, &block, k->blocks);
    k->occupancy = occupancy >= 0 && occupancy <= 100 ? occupancy : NAN;
}

static struct kernels collect(const struct choice *choice, const struct names *names)
{
    const struct process *p = choice->process;
    const struct works *w = &p->works;
    struct map tensor = {0}; /* by name of a kernel: enum tensor */
    struct kernels kernels = {0};
    size_t filling = 0;
    for (size_t i = 0; i < w->table.count; i++) {
        struct step_kernel k = {.start = w->start[i], .end = w->end[i], .blocks = NAN, .occupancy = NAN};
        while (filling < p->fillings && p->filling[filling].work < i) filling++;
        if (w->event_class[i] != CLASS_KERNEL || !choice->lane[w->lane[i]]) continue;
        k.device = p->lane[w->lane[i]].device;
        if (filling < p->fillings && p->filling[filling].work == i) fill(&k, p, &p->filling[filling]);
        uint32_t known = map_get(&tensor, w->name[i]);
        if (known == MAP_NONE) map_put(&tensor, w->name[i], known = tensor_of(names_get(names, w->name[i])));
        k.tensor = (enum tensor)known;
        kernels.kernel = mem_grow(kernels.kernel, &kernels.capacity, kernels.count + 1, sizeof k);
        kernels.kernel[kernels.count++] = k;
    }
    map_free(&tensor);
    if (kernels.count) qsort(kernels.kernel, kernels.count, sizeof *kernels.kernel, by_device);
    return kernels;
}

/* ---- SM efficiency ---- */

/* The moment at which a kernel begins or ends. */
struct edge {
    int64_t time;
    double blocks; /* more of them from now on; negative: fewer */
};

static int edges_by_time(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    return by_number(x->time, y->time);
}

/* Returns the nanoseconds in which the SMs would have been full, had all blocks at a moment been spread evenly. */
static double filled_time(const struct step_kernel *kernel, size_t count, const struct measure *times)
{
    struct edge *edge = mem_zero(2 * count, sizeof *edge);
    size_t edges = 0, open = 0;
    double blocks = 0, filled = 0;
    for (size_t i = 0; i < count; i++) {
        if (isnan(kernel[i].blocks) || kernel[i].start >= kernel[i].end) continue;
        edge[edges++] = (struct edge){kernel[i].start, kernel[i].blocks};
        edge[edges++] = (struct edge){kernel[i].end, -kernel[i].blocks};
    }
    if (edges) qsort(edge, edges, sizeof *edge, edges_by_time);
    for (size_t i = 0; i < edges; i++) {
        if (open) filled += MIN(blocks, 1) * (double)measure_between(times, edge[i - 1].time, edge[i].time);
        open = edge[i].blocks > 0 ? open + 1 : open - 1;
        blocks = open ? blocks + edge[i].blocks : 0; /* no rest of rounding stays */
    }
    free(edge);
    return filled;
}

/* ---- one device ---- */

static void add_device(struct steps *steps, int64_t rank, const struct step_kernel *kernel, size_t count,
                       const struct measure *times)
{
    struct step_device d = {.rank = rank, .device = kernel->device, .time = intervals_total(times->set)};
    struct intervals busy = {0};
    for (size_t i = 0; i < count; i++) {
        int64_t inside = measure_between(times, kernel[i].start, kernel[i].end);
        if (!inside) continue;
        intervals_add(&busy, kernel[i].start, kernel[i].end);
        d.counted++;
        d.unsized += isnan(kernel[i].blocks);
        d.kernels = add_ns(d.kernels, inside);
        if (kernel[i].tensor != TENSOR_NONE) d.tensor = add_ns(d.tensor, inside);
        if (kernel[i].tensor == TENSOR_PLUGIN) d.tensor_plugin = add_ns(d.tensor_plugin, inside);
        if (isnan(kernel[i].occupancy)) continue;
        d.estimated = add_ns(d.estimated, inside);
        d.occupied += kernel[i].occupancy * (double)inside;
    }
    intervals_merge(&busy);
    d.busy = measure_overlap(times, &busy);
    intervals_free(&busy);
    d.filled = filled_time(kernel, count, times);
    steps->device = mem_grow(steps->device, &steps->device_capacity, steps->devices + 1, sizeof d);
    steps->device[steps->devices++] = d;
}

void step_devices(struct steps *steps, const struct choice *choice, const struct names *names,
                  const struct intervals *times)
{
    struct kernels kernels = collect(choice, names);
    struct measure measure;
    measure_init(&measure, times);
    for (size_t first = 0, end; first < kernels.count; first = end) {
        for (end = first + 1; end < kernels.count && kernels.kernel[end].device == kernels.kernel[first].device;) end++;
        add_device(steps, choice->process->rank, &kernels.kernel[first], end - first, &measure);
    }
    measure_free(&measure);
    free(kernels.kernel);
}

/* ---- shares ---- */

double device_utilization(const struct step_device *d)
{
    return d->time ? 100 * (double)d->busy / (double)d->time : NAN;
}

double device_sm_efficiency(const struct step_device *d)
{
    return d->time && d->counted > d->unsized ? 100 * d->filled / (double)d->time : NAN;
}

double device_occupancy(const struct step_device *d)
{
    return d->estimated ? d->occupied / (double)d->estimated : NAN;
}

double device_tensor_core(const struct step_device *d)
{
    return d->kernels ? 100 * (double)d->tensor / (double)d->kernels : NAN;
}

double device_tensor_core_plugin(const struct step_device *d)
{
    return d->kernels ? 100 * (double)d->tensor_plugin / (double)d->kernels : NAN;
}
