/* load.h - declares what the loaders of our traces share: load_tfr.c, threads.c, load_ops.c, load_io.c,
 * device.c, nccl.c, nccl_plans.c, framework.c, load_open.c, load_graphs.c and model/memory/cuda.c.
 *
 * A loader takes a group, all records of one kind in a chunk, and reads the columns it needs before it keeps
 * anything.
 */
#ifndef TFA_LOAD_H
#define TFA_LOAD_H

#include "base/sets/intervals.h"
#include "model/frames.h"
#include "model/model.h"

/* Lifetime of a thread, in ticks. Device libraries identify threads by the low half of pthread_self(), which is
 * reused. */
struct lifetime {
    uint32_t pthread, serial;
    uint64_t start, end;
};

struct lifetimes {
    struct lifetime *life;
    size_t count, capacity;
    struct map end_of; /* index in `end`, by serial */
    uint64_t *end;
    size_t ends, end_capacity;
};

struct sync_place {
    uint32_t work, context;
    int64_t stream;
};

/* An operator with a sequence number. `thread` is the forward operator's thread: for a forward operator its own, for a
 * backward one the thread that its record names. A forward and a backward operator with equal `thread` and sequence
 * number belong together. */
struct op_link {
    int64_t sequence, time;
    uint64_t number;      /* of the operator, in file order */
    uint32_t own, thread; /* its own thread, and that of the forward operator */
    bool is_backward;
};

/* A collective as a framework sees it: a call of a process group, or the work of a backend of the host. */
struct framework_collective {
    struct collective own; /* of a work, `start` and `end` alone are set, and `op` */
    uint64_t tensor;       /* first tensor that the rank puts in: the same in the call and its work; 0: none */
    uint64_t tensors;
    uint32_t thread; /* in which it began */
    uint32_t group;  /* of a work: that of its thread; NAME_NONE: unknown */
    uint32_t works;  /* of a call: works that it has got */
    bool is_work;
    bool is_begun;       /* a call at its entry */
    bool is_description; /* libtorch's, inside the call that it describes */
    bool is_whole;       /* a call that does all of its work itself */
    bool is_part;   /* of another call: a description inside it, or the same call before it was dispatched once more */
    bool is_nested; /* a work inside its call, or a call around one of NCCL */
};

/* The operators and blocks of some times are loaded alone (model/sweep/load_windows.c). */
struct part {
    struct intervals when; /* merged; nanoseconds */
    struct clock clock;    /* shares the readings of the process's */
    struct clock_stretch stretch;
    struct arrows *arrows; /* of sweep/load_windows.c */
};

struct load {
    struct trace *trace;
    struct names *names;
    struct process *process;
    struct reader reader;
    struct needs needs;
    const struct piece *piece;
    struct group *group;
    uint64_t *zeros; /* zeros, as many as the largest group has records */
    size_t zero_capacity;
    uint64_t drops[TFI_MAX_DROPS];
    struct map name_of_tid; /* string ids of thread names, by tid */
    struct lifetimes lifetimes;
    struct map shown;    /* kernel names, by string id */
    struct map stack_of; /* call stacks, by string id */
    struct shown_frames shown_frames;
    uint64_t bad_stacks;     /* stacks that are partly or wholly invalid */
    struct sync_place *sync; /* waits; their context gives their device at the end of loading */
    size_t syncs, sync_capacity;
    struct map device_of; /* by context */
    struct op_link *link;
    size_t links, link_capacity;
    uint64_t ops;      /* operators so far, in file order */
    struct part *part; /* NULL: all operators and blocks are kept */
    struct framework_collective *framework;
    size_t frameworks, framework_capacity;
    struct plan *plan; /* of NCCL: see nccl_plans.c */
    size_t plans, plan_capacity;
    struct map look_stack;       /* names of stacks of samples, by their strings */
    struct map silence_of;       /* index in process->silence, by serial of the thread */
    struct map device_of_thread; /* the device that it chose last, by serial */
    uint64_t last_clock;         /* ticks */
    uint64_t first_look;         /* ticks: the start of the first sample; 0: there is none */
    uint64_t unknown;            /* records of kinds that the file does not describe */
};

/* ---- load.c ---- */
/* Frees all but the trace, the names and the process. */
void load_free(struct load *load);
int64_t part_ns(struct part *part, uint64_t ticks);
/* True if something from `start` to `end`, in ticks, is in the part. */
bool part_has(struct part *part, uint64_t start, uint64_t end);
/* Returns a column of the current group; zeros if the file lacks it. */
const uint64_t *load_column(struct load *load, unsigned own);
/* Returns the number of usable records in the group: 0 once one of its columns was found invalid. */
uint32_t load_rows(const struct load *load);
/* Returns the end of what lasted from `start`; `start` itself if the sum does not fit. */
int64_t load_end(uint64_t start, uint64_t duration);
uint32_t load_name(struct load *load, uint64_t string);
/* Returns NULL unless details are wanted. */
const uint64_t *load_detail_column(struct load *load, unsigned own);
uint32_t load_func(struct load *load, uint64_t string);
/* Adds how a kernel fills its device, in the order of works. */
void add_filling(struct process *process, struct filling filling);
/* Returns the place of an argument, -1 if the function has none of that name. */
int load_argument(const struct func *func, const char *name);

/* ---- threads.c ---- */
/* Called after loading, before the first lifetimes_find. */
void lifetimes_sort(struct lifetimes *lifetimes);
/* Returns the serial of the thread that was alive at `time`, 0 if none is known. */
uint32_t lifetimes_find(const struct lifetimes *lifetimes, uint32_t pthread, uint64_t time);
void load_threads(struct load *load);
void load_thread_ends(struct load *load);
void load_thread_names(struct load *load);
/* Applies the names from thread_name records, after the last chunk. */
void load_name_threads(struct load *load);

/* ---- model/memory/cuda.c ---- */
/* Adds the blocks that calls of CUDA allocate and free, and the requests that they refuse; with `grants` the blocks to
 * the process's grants. */
void load_cuda_blocks(struct load *load);

/* ---- load_ops.c ---- */
/* Returns the model's number of a call stack; NAME_NONE if there is none. */
uint32_t load_stack(struct load *load, uint64_t string);
/* Returns the kind of the blocks of an allocator, a name: BLOCK_LIBC or BLOCK_NONE. */
uint8_t load_block_kind(const struct load *load, uint32_t allocator);
/* Returns the number of operators or blocks of the current group that stay in the file, 0 if a column that decides this
 * is invalid. A sweep gives just these. */
uint32_t load_left_rows(struct load *load);
void load_operators(struct load *load);
/* Columns of an operator's record that tell with which one it is linked. */
struct link_columns {
    const uint64_t *time, *scope, *sequence, *forward;
};
struct link_columns load_link_columns(struct load *load);
/* Fills in the link of a row, except for `number`. Returns false if it has none. */
bool load_link(const struct load *load, const struct link_columns *from, uint32_t row, struct op_link *link);
void keep_link(struct load *load, const struct op_link *link);
/* Compares two links of one forward operator and one direction for sorting: by time, then in file order. */
int op_link_order(const struct op_link *a, const struct op_link *b);
/* Loads the inputs of torch's ranges from the current group of range_begin; `id` is its column. Older traces, whose
 * ranges have no inputs, lack these columns. */
void load_range_inputs(struct load *load, const uint64_t *id);
void load_blocks(struct load *load);
void load_ooms(struct load *load);
void load_stage_memory(struct load *load);
void load_pauses(struct load *load);
void load_resumes(struct load *load);
void load_signatures(struct load *load);
void load_metadata(struct load *load);
void load_switchings(struct load *load);
void load_elsewheres(struct load *load);
void load_elsewheres_end(struct load *load);
/* Called after loading: pairs forward and backward operators. */
void load_operators_end(struct load *load);
void load_switchings_end(struct load *load);

/* ---- load_io.c ---- */
void load_ios(struct load *load);
void load_io_sums(struct load *load);

/* ---- device.c ---- */
void load_device(struct load *load);
void load_samples(struct load *load);
/* ---- load_startup.c ---- */

void load_startup(struct load *load);
void load_compile(struct load *load);

/* ---- load_machine.c ---- */

/* Takes the facts of the machine among the pairs of a header. */
void load_machine_facts(struct process *process, const struct pairs *info);
void load_process_samples(struct load *load);
void load_thread_pools(struct load *load);

/* Called after process_finish: sorts the samples. */
void load_samples_end(struct load *load);
void load_correlations(struct load *load);
void load_kernels(struct load *load);
void load_copies(struct load *load);
void load_sets(struct load *load);
void load_syncs(struct load *load);
void load_graph_launches(struct load *load);
void load_stage_devices(struct load *load);
void load_stage_works(struct load *load);
/* Called after loading: resolves the threads of calls and the devices of waits. */
void load_devices_end(struct load *load, struct notes *notes);

/* ---- nccl.c ---- */
void load_collectives(struct load *load);
/* The arguments of a call of NCCL, as a record or the slot of a thread in the call has them. */
struct nccl_arguments {
    uint64_t communicator, sequence, count, type;
    int32_t peer, rank; /* -1: none, unknown */
    uint32_t ranks;     /* 0: unknown */
};
uint32_t nccl_communicator_name(struct load *load, uint64_t hash); /* 0: NAME_NONE */
/* Fills in a collective, except for its times, from what a call was given. */
void nccl_describe(struct load *load, struct collective *c, const char *function, const struct nccl_arguments *given);
/* Called after process_finish: finds the kernels of the collectives. */
void load_collectives_end(struct load *load);

/* ---- load_open.c ---- */
void load_silences(struct load *load);
void load_looks(struct load *load);
/* Loads the communicators that calls of NCCL made. */
void load_communicators(struct load *load);
/* Called after load_collectives_end: takes what each thread is in from its slot. */
void load_open_threads(struct load *load);

/* ---- framework.c ---- */
void load_framework_collectives(struct load *load);
/* Called after load_collectives_end: adds the framework's collectives to those of NCCL, or their groups to these. */
void load_framework_collectives_end(struct load *load);

/* ---- nccl_plans.c ---- */
void load_plans(struct load *load);
/* Called with the collectives sorted by thread and time: joins the plans with them. */
struct nccl_calls;
void load_plans_end(struct load *load, const struct nccl_calls *calls);

/* ---- load_graphs.c ---- */
void load_graph_nodes(struct load *load);
void load_graph_sources(struct load *load);
/* Records the graph node that the last work ran as; graph 0: none. */
void graphs_add_work(struct graphs *graphs, size_t work, uint64_t graph, uint64_t node);
/* Records that a work was a launch of a whole graph. */
void load_graph_run(struct load *load, size_t work, uint64_t graph);

#endif
