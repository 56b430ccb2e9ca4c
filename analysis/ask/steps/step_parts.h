/* step_parts.h - divides the time of each profiler step by what the process did, and says how full the devices were.
 *
 * The table is the overview of the TensorBoard plugin for PyTorch (torch_tb_profiler 0.4.3, event_parser.py,
 * overall_parser.py, gpu_metrics_parser.py); step_parts.c has its rules, and devices.c those of the devices.
 */
#ifndef TFA_STEP_PARTS_H
#define TFA_STEP_PARTS_H

#include "ask/reduction.h"

/* A moment of a step counts as the first of these that happens in it. */
enum step_part {
    PART_KERNEL,
    PART_MEMCPY,
    PART_MEMSET,
    PART_COMMUNICATION,
    PART_RUNTIME,
    PART_DATALOADER,
    PART_CPU_EXEC,
    PART_OTHER, /* none of them */
    NR_PARTS
};

struct step_row {
    int64_t rank, pid, start, total;
    int64_t part[NR_PARTS]; /* their sum is `total` */
    unsigned known;         /* bit i: the trace can have events of part i; 0: nor is `total` known */
    uint32_t number;        /* the N of ProfilerStep#N; NO_PLACE: the whole trace, because it has no steps */
};

/* The kernels of a device within a process's chosen steps. Shares are sums over nanoseconds. */
struct step_device {
    int64_t rank, device;
    int64_t time;              /* of the steps */
    int64_t busy;              /* with at least one kernel */
    int64_t kernels, tensor;   /* sums of all kernels, and of those that use tensor cores */
    int64_t tensor_plugin;     /* of those that the plugin knows to use tensor cores */
    int64_t estimated;         /* sum of the kernels with a known occupancy */
    double filled, occupied;   /* of the SMs: filled of `time`; occupied percent of `estimated` */
    uint64_t counted, unsized; /* kernels, and those with an unknown number of blocks */
};

struct steps {
    struct step_row *row;
    size_t count, capacity;
    struct step_device *device;
    size_t devices, device_capacity;
    uint64_t cut;   /* last steps that were left out, because the profiler may have missed some of their kernels */
    uint64_t whole; /* processes without steps */
    bool unknown;   /* some work of the steps is not in the trace */
    uint64_t works; /* device work on the chosen devices and streams */
};

/* Makes a struct steps of a process. */
struct needs steps_needs(const struct options *options);
extern const struct reduction steps_reduction;
/* Collects the summaries of the chosen processes, by rank and time. A process without steps is left out if another one
 * of its rank has some. */
void steps_collect(struct steps *steps, void *const *taken, size_t count);
/* Adds up devices; rank and device of the sum are -1. */
struct step_device steps_sum(const struct steps *steps);
void steps_free(struct steps *steps);

/* Returns the shares of a device in percent; NAN: unknown. */
double device_utilization(const struct step_device *device);
double device_sm_efficiency(const struct step_device *device);
double device_occupancy(const struct step_device *device);
double device_tensor_core(const struct step_device *device);
double device_tensor_core_plugin(const struct step_device *device); /* by the names of kernels that the plugin knows */

/* True for the operator or annotation in which torch.utils.data waits for a batch. */
bool is_loading(const struct name *name);

#endif
