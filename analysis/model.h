/* model.h - what all inputs say, as columns: processes, threads, ranges, marks, calls, messages.
 *
 * Readers fill it, questions consume it; neither knows the other. Times are nanoseconds of one axis (REALTIME as a
 * rule), names are numbers in `names`, and an event is one place in some arrays, never an object. While a process is
 * being read its times are still ticks; model_finish turns them. Only what was asked for (WANT_*) is kept.
 */
#ifndef TFA_MODEL_H
#define TFA_MODEL_H

#include "clock.h"
#include "reveals.h"
#include "trace.h"

enum want {
    WANT_RANGES = 1,
    WANT_DETAILS =
        2, /* categories, colours and payloads of ranges; arguments of calls; shapes and sizes of device work */
    WANT_MARKS = 4,
    WANT_CALLS = 8,
    WANT_MESSAGES = 16,
    WANT_FUNCS = 32, /* the descriptions of all functions, also where their calls are not wanted */
    WANT_DEVICE = 64,
    WANT_LAUNCHES = 128,          /* spans that are calls of a device's API */
    WANT_OPERATORS = 256,         /* spans that are operators, and the pairs of forward and backward ones */
    WANT_MANGLED = 512,           /* names of kernels as they stand in the trace, not as C++ shows them */
    WANT_OPERATOR_DETAILS = 1024, /* beside WANT_OPERATORS: their inputs, sequence numbers, stacks, operations */
    WANT_MEMORY = 2048,           /* blocks that were allocated and freed; of a Kineto trace those that were refused */
    WANT_SIGNATURES = 4096,       /* what went into stages and came out */
    WANT_STAGE_NAMES = 16384,     /* of a trace of ours: which stages there are, and nothing else of them */
    WANT_ALL_SPANS = 8192,        /* of a Kineto trace: Python functions, the profiler's overhead, details, memory */
    WANT_AS_WRITTEN = 16384,      /* names of kernels as other tools read them in a Kineto trace */
};

/* The different names of a process's stages, in the order of the file. */
struct stage_names {
    struct map known;
    uint32_t *name;
    size_t count, capacity;
};

/* What an event is, by its category (categories.def has them all): the first four happen on a device. */
enum event_class {
    CLASS_KERNEL,
    CLASS_MEMCPY,
    CLASS_MEMSET,
    CLASS_SYNC,              /* a wait on a device's side: no work */
    CLASS_DEVICE_ANNOTATION, /* a user annotation's shadow on a device: no work */
    CLASS_ANNOTATION,        /* user annotations: the stages of a Kineto trace */
    CLASS_OPERATOR,
    CLASS_API,   /* calls of a device's runtime or driver */
    CLASS_OTHER, /* this and what follows is kept only WANT_ALL_SPANS */
    CLASS_PYTHON,
    CLASS_OVERHEAD, /* of the profiler */
    NR_CLASSES
};
#define ON_DEVICE(class) ((class) <= CLASS_DEVICE_ANNOTATION)
#define IS_WORK(class) ((class) <= CLASS_MEMSET)

#define NO_ID UINT64_MAX
#define NO_PLACE UINT32_MAX

/* Beside TFI_RANGE_*: it has a beginning and no end; its `end` is the last moment of its process, or, where records are
 * lost, of its thread. */
#define RANGE_UNFINISHED 0x80000000u
/* A later piece of a range that left its thread and came back (pieces.h): no entry of its own. */
#define RANGE_CONTINUED 0x40000000u

struct range_detail {
    uint64_t payload;
    uint32_t category;
    uint32_t color;
    uint32_t payload_type; /* 0: there is no payload */
};

struct ranges {
    struct table table;
    int64_t *start, *end;
    uint64_t *id;
    uint32_t *name, *thread, *domain, *flags, *depth;
    uint32_t *step;              /* the N of ProfilerStep#N, whose name is `ProfilerStep*`; NO_PLACE */
    struct range_detail *detail; /* only with WANT_DETAILS */
};

/* From entry to exit of the ranges that stand in `ranges` in pieces. */
struct wholes {
    struct table table;
    int64_t *start, *end;
    uint32_t *range; /* the first piece: a place in ranges */
    uint32_t *pieces;
};

/* A range left a thread, or came back to one: until they are cut, after process_finish there are none. */
struct pauses {
    struct table table;
    int64_t *time;
    uint64_t *id;
    uint32_t *thread;
    bool *is_resume;
};

/* Beginnings wait here for their end, which nearly always follows soon; after process_finish there are none. */
struct begins {
    struct table table; /* places, also free ones */
    int64_t *time;
    uint64_t *id;
    uint32_t *name, *thread, *domain, *flags, *depth; /* of a free place `thread` is the next free one */
    bool *waits;
    struct range_detail *detail;
    struct map by_id;
    uint32_t free; /* a place + 1, 0: none */
    size_t *early; /* ranges that ended in a chunk that was read before that of their beginning */
    size_t earlies, early_capacity;
};

struct marks {
    struct table table;
    int64_t *time;
    uint32_t *name, *thread, *domain, *flags;
    struct range_detail *detail;
};

struct calls {
    struct table table;
    int64_t *start, *end;
    int64_t *result;
    uint32_t *func, *thread; /* func: a place in process->func */
    int32_t *error;
    uint32_t *span;      /* its place in process->spans, where a device library knows the call too; NO_PLACE */
    uint64_t *first_arg; /* in process->args; one more than there are calls, only with WANT_DETAILS */
};

struct messages {
    struct table table;
    int64_t *time;
    uint32_t *text, *level;
};

/* What is known of an operator beside when and where it ran. The texts are JSON, as Kineto writes them; NAME_NONE: none. */
struct op_detail {
    int64_t sequence;        /* -1: none */
    uint64_t flops;          /* 0: not known */
    uint32_t forward_thread; /* serial of the thread of the forward operator; 0: it is no backward operator */
    uint32_t shapes, types, concrete, strides;
    uint32_t stack; /* stacks.h */
    uint32_t scope; /* enum tfi_scope */
};

/* What host threads did, beside stages: operators and API calls, in the order of the file. */
struct spans {
    struct table table;
    int64_t *start, *end;
    uint64_t *id; /* a call's correlation id, an operator's external id, or NO_ID */
    uint32_t *name, *thread;
    uint8_t *class;
    struct op_detail *detail; /* with WANT_OPERATOR_DETAILS; as far as there are operators */
    size_t detail_capacity;
};

/* Blocks that were allocated (bytes above 0) or freed. */
struct blocks {
    struct table table;
    int64_t *time, *bytes;
    uint64_t *address, *allocated, *reserved; /* of the allocator, afterwards */
    int64_t *device;
    uint32_t *thread, *allocator, *stack; /* stack: stacks.h */
};
enum { DEVICE_HOST = -1, DEVICE_OTHER = -2 };

/* What an allocator did during a range. */
struct stage_memory {
    uint64_t range; /* its id */
    int64_t device; /* -1: the host */
    uint64_t allocated_before, reserved_before, allocated_after, reserved_after;
    uint64_t allocated_peak, reserved_peak, allocated, freed;
};

/* Recording was switched. */
struct switching {
    int64_t time;
    uint64_t step; /* of the schedule */
    uint32_t state, activities, cause, cycle;
};
enum { RECORDING_OFF, RECORDING_WARMUP, RECORDING_ON };

/* Another profiler had the device to itself; while it is read, one edge of that. */
struct elsewhere {
    int64_t from, to;
    uint32_t who;
    bool begins;
};

/* What went into a stage, or came out of it. */
struct signature {
    int64_t time;
    uint64_t range; /* its id */
    uint32_t stage, text;
    uint32_t direction;
};
enum { SIGNATURE_ARGUMENTS, SIGNATURE_RESULT, SIGNATURE_MEMORY };

/* What a trace of ours says of device work beside when and where it was. */
struct work_detail {
    uint64_t bytes, node;
    int64_t queued; /* ns on the axis; 0: not given */
    uint32_t grid[3], block[3];
    uint32_t registers, static_shared, dynamic_shared;
    uint32_t context, graph; /* graph 0: none */
    uint32_t sync_event;
};

/* What devices did, in the order of the file. */
struct works {
    struct table table;
    int64_t *start, *end;
    uint64_t *correlation, *external; /* the call that launched it; the operator around it; NO_ID: not known */
    uint32_t *name, *lane;            /* lane: a place in process->lane */
    uint8_t *class;
    struct work_detail *detail; /* of traces of ours, with WANT_DETAILS */
    size_t detail_capacity;
};

/* A call became a node of a CUDA graph. */
struct graph_node {
    uint64_t number; /* of its graph << 32 | in it */
    int64_t time;
    uint32_t thread, op; /* op: NAME_NONE: none, or it is not known */
};

/* A graph got its nodes from another one. */
struct graph_source {
    int64_t time;
    uint32_t graph, source, relation; /* enum tfi_graph_relation */
};

struct graphs {
    struct graph_node *node;
    size_t nodes, node_capacity;
    struct graph_source *source;
    size_t sources, source_capacity;
    uint64_t *node_of_work; /* of the first `works` works; 0: it was no node */
    size_t works, work_capacity;
    struct map whole_of; /* by a graph inside an executable one: that one */
};

/* A stream of a device. */
struct lane {
    int64_t device, stream; /* -1: not known */
    bool has_stream;        /* the trace says so in the event's arguments, not only by its row */
};

/* When a stage had work in a stream, by events round it: where there was no CUPTI. Gaps count. */
struct event_times {
    struct table table;
    uint64_t *range; /* id of the stage's range */
    int64_t *start, *end;
    uint32_t *lane;
};

/* A forward operator and the backward one that autograd made of it, as an arrow from one to the other. */
struct forwards {
    struct table table;
    uint64_t *id;
    int64_t *time;
    uint32_t *thread;
    bool *is_forward;
};

/* A device as its driver describes it. */
struct device {
    uint32_t number, name, units, capability; /* capability: major * 100 + minor */
    uint64_t uuid[2], pci, memory;
    bool simulated;
};

/* A function as its description gives it: "library\x1fclass\x1fname\x1fargument:TYPE,..." */
struct func {
    uint32_t string; /* its number in the file */
    char *library, *class, *name;
    unsigned args;
    char **arg;
    enum tfi_type *type;
};

struct thread {
    uint32_t serial;
    uint64_t tid;
    int64_t pid; /* of the thread's process where a file holds several; -1: that of the trace */
    uint32_t name;
    bool has_time;
    int64_t first, last;
};

struct category {
    uint32_t domain, category, name;
};

struct count {
    uint32_t kind;
    char *name;
    uint64_t count;
};

struct loss {
    char *cause;
    uint64_t count;
    bool lost; /* false: it only explains something */
};

struct process {
    size_t input;
    char *path;
    enum file_how how;        /* it is opened */
    bool is_of_reader;        /* recorded by this user, on this host, since it was started */
    const char *kind;         /* "tfr", "live", "kineto" */
    int64_t rank, world, pid; /* -1: not known */
    char *host, *command, *directory, *clock_name, *version; /* NULL: not known */
    char *names_asked, *stages_asked; /* ENABLE_PROFILER_NAMES and TFI_STAGES as they were; NULL: not set */
    struct stage_names stage_names;   /* with WANT_STAGE_NAMES */
    struct pairs *metadata;           /* keys without "meta." */
    struct reveals reveals;
    char *ended; /* why, "running", "killed"; NULL if it is not known */
    bool complete;
    bool has_time;
    int64_t first, last;   /* of its records */
    int64_t profile_start; /* with has_profile_start: the moment from which torch counts the times of its profile */
    bool has_profile_start;
    uint64_t own_cost_ns;
    bool has_cost;
    struct clock clock;
    struct count *kinds;
    size_t kind_count, kind_capacity;
    struct loss *losses;
    size_t loss_count, loss_capacity;
    uint64_t events, lost;
    struct thread *thread;
    size_t threads, thread_capacity;
    struct map thread_of; /* place by serial */
    struct category *category;
    size_t categories, category_capacity;
    struct map category_of; /* by domain and category */
    struct func *func;
    size_t funcs, func_capacity;
    struct map func_of; /* place by string */
    struct ranges ranges;
    struct begins begins;
    struct wholes wholes;
    struct pauses pauses;
    struct marks marks;
    struct calls calls;
    struct messages messages;
    struct spans spans;
    uint32_t *streamed; /* operators whose arguments name a stream, as Triton's do: places in spans */
    size_t streamed_count, streamed_capacity;
    struct map range_of_id;  /* of a Kineto trace, with WANT_ALL_SPANS: annotations by their external ids, */
    struct map unlinked;     /* and calls that belong to no operator: places in spans */
    struct map range_inputs; /* of ranges that the framework gave inputs: places in range_input */
    struct op_detail *range_input;
    size_t range_input_count, range_input_capacity;
    struct works works;
    struct graphs graphs;
    struct forwards forwards;
    struct event_times event_times;
    struct blocks blocks, ooms; /* ooms: blocks that were refused */
    struct stage_memory *stage_memory;
    size_t stage_memories, stage_memory_capacity;
    struct switching *switching; /* sorted by time */
    size_t switchings, switching_capacity;
    struct elsewhere *elsewhere; /* sorted by time */
    size_t elsewheres, elsewhere_capacity;
    struct signature *signature;
    size_t signatures, signature_capacity;
    struct lane *lane;
    size_t lanes, lane_capacity;
    struct map lane_of;
    struct device *device;
    size_t devices, device_capacity;
    struct map device_of; /* by number */
    bool has_float_ts,
        has_float_dur; /* some ts or dur of an event with both dur and category is written with a point */
    uint64_t *args;
    size_t arg_count, arg_capacity;
};

struct model {
    struct names names;
    struct process *process;
    size_t processes, capacity;
    int64_t start; /* the first record of all inputs: where --from and --to count from */
};

/* ---- filling it ---- */
void process_init(struct process *process, const char *path, const char *kind);
struct thread *process_thread(struct process *process, uint32_t serial);
void process_count(struct process *process, uint32_t kind, const char *name, uint64_t count);
void process_lose(struct process *process, const char *cause, uint64_t count, bool lost);
uint32_t process_func(struct process *process, uint32_t string, const char *text, size_t length);
void ranges_reserve(struct ranges *ranges, size_t more, bool details);
/* A place for a beginning; its columns are still to be filled, but for the id. */
size_t begins_add(struct begins *begins, uint64_t id, bool details);
/* A range was added to the end of `process->ranges`: it takes what its beginning has, if that is here by now. */
void begins_meet(struct process *process, bool details);
void marks_reserve(struct marks *marks, size_t more, bool details);
void calls_reserve(struct calls *calls, size_t more, bool details);
void messages_reserve(struct messages *messages, size_t more);
/* Whether it was read from a PyTorch trace, and not from ours. */
bool is_of_kineto(const struct process *process);
void spans_reserve(struct spans *spans, size_t more);
void works_reserve(struct works *works, size_t more);
void event_times_reserve(struct event_times *times, size_t more);
void forwards_reserve(struct forwards *forwards, size_t more);
uint32_t process_lane(struct process *process, int64_t device, int64_t stream, bool has_stream);
void pauses_reserve(struct pauses *pauses, size_t more);
void wholes_reserve(struct wholes *wholes, size_t more);
void blocks_reserve(struct blocks *blocks, size_t more);
/* What went into a range that the framework gave inputs; NULL if it was given none. The key is the range's id, in a Kineto
 * trace, whose ranges have no ids, its place. */
void range_inputs_add(struct process *process, uint64_t key, const struct op_detail *inputs);
const struct op_detail *range_inputs(const struct process *process, size_t range);
/* The detail of the last span. */
struct op_detail *spans_detail(struct spans *spans);
/* The detail of the last work; NULL unless `details`. */
struct work_detail *works_detail(struct works *works, bool details);
void calls_free(struct calls *calls);
/* All is read: ticks become nanoseconds, beginnings meet their ends. */
void process_finish(struct process *process);
void process_free(struct process *process);

void model_init(struct model *model);
void model_free(struct model *model);

/* ---- asking it ---- */
const char *model_name(const struct model *model, uint32_t name);
const struct thread *find_thread(const struct process *process, uint32_t serial); /* NULL if it is not there */
const struct device *find_device(const struct process *process, int64_t number);  /* the same */
/* As NVIDIA's tools write it. */
#define DEVICE_UUID 48
void device_uuid(const struct device *device, char text[DEVICE_UUID]);
const char *find_category(const struct model *model, const struct process *process, uint32_t domain, uint32_t category);

#endif
