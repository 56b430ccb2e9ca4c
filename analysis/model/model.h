/* model.h - holds the content of all inputs as columns: processes, threads, ranges, marks, calls, messages.
 *
 * Loaders fill the model and questions read it; neither knows the other. Times are nanoseconds on one axis (REALTIME
 * as a rule). Names are numbers in `names`. An event is one index into several arrays, never an object. Times of a
 * process are ticks while it is loaded; process_finish converts them. Only what questions need (needs.def) is kept.
 */
#ifndef TFA_MODEL_H
#define TFA_MODEL_H

#include "model/memory/kinds.h"
#include "model/memory/segment.h"
#include "model/clock.h"
#include "model/health/doubts.h"
#include "model/collective.h"
#include "model/io_calls.h"
#include "model/host/machine.h"
#include "model/host/process_start.h"
#include "model/names.h"
#include "model/needs/needs.h"
#include "model/tables_in_file.h"
#include "model/inputs/trace_kind.h"
#include "model/memory/tensors.h"
#include "model/operators/details.h"
#include "model/ranges/lost_ends.h"
#include "read/reveals.h"
#include "read/summary/packing.h"
#include "read/stream/stream.h"
#include "read/torch/memory_rows.h"

/* The distinct names of a process's stages, in file order. */
struct stage_names {
    struct map known;
    uint32_t *name;
    size_t count, capacity;
};

/* Class of an event, by its category (categories.def). The first five happen on a device. */
enum event_class {
    CLASS_KERNEL,
    CLASS_MEMCPY,
    CLASS_MEMSET,
    CLASS_SYNC,              /* a wait on the device: no work */
    CLASS_DEVICE_ANNOTATION, /* a user annotation's shadow on a device: no work */
    CLASS_ANNOTATION,        /* user annotations: the stages of a Kineto trace */
    CLASS_OPERATOR,
    CLASS_API,   /* calls of a device's runtime or driver */
    CLASS_OTHER, /* this class and the following ones are kept only with `all_spans` */
    CLASS_PYTHON,
    CLASS_OVERHEAD, /* overhead of the profiler */
    NR_CLASSES
};
#define ON_DEVICE(event_class) ((event_class) <= CLASS_DEVICE_ANNOTATION)
#define IS_WORK(event_class) ((event_class) <= CLASS_MEMSET)

#define NO_ID UINT64_MAX
#define NO_PLACE UINT32_MAX
#define NO_THREAD UINT32_MAX
uint32_t *no_places(size_t count); /* returns an array of NO_PLACE; the caller frees it */

/* Added to TFI_RANGE_*: no record ends the range. Its end is its process's, or its thread's if records are lost. */
#define RANGE_UNFINISHED 0x80000000u
/* A later piece of a range that left its thread and came back (range_pieces.h): not counted as a call. */
#define RANGE_CONTINUED 0x40000000u

struct range_detail {
    uint64_t payload;
    uint32_t category;
    uint32_t color;
    uint32_t payload_type; /* 0: no payload */
};

struct ranges {
    struct table table;
    int64_t *start, *end;
    uint64_t *id;
    uint32_t *name, *thread, *domain, *flags, *depth;
    int64_t *cpu; /* processor time of its thread while it ran, in nanoseconds; of a piece: of the whole; -1: unknown */
    uint32_t *step;              /* the N of ProfilerStep#N, a range with the name `ProfilerStep*`; else NO_PLACE */
    struct range_detail *detail; /* only with `details` or `payloads` */
};

/* Entry and exit of each range that `ranges` holds in pieces. */
struct wholes {
    struct table table;
    int64_t *start, *end;
    uint32_t *range; /* index in `ranges` of the first piece */
    uint32_t *pieces;
};

/* Moments at which a range left a thread or resumed on one. process_finish cuts the ranges and empties this table. */
struct pauses {
    struct table table;
    int64_t *time;
    uint64_t *id;
    uint32_t *thread;
    bool *is_resume;
};

/* Range beginnings that wait for their end, which nearly always follows soon. process_finish empties this table. */
struct begins {
    struct table table; /* entries, including free ones */
    int64_t *time;
    uint64_t *id;
    uint32_t *name, *thread, *domain, *flags, *depth; /* in a free entry `thread` is the next free entry + 1 */
    bool *waits;
    struct range_detail *detail;
    struct map by_id;
    uint32_t free; /* first free entry + 1; 0: none */
    size_t *early; /* ranges whose end is in an earlier chunk than their beginning */
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
    uint32_t *func, *thread; /* func: index in process->func */
    int32_t *error;
    uint32_t *span;      /* index in process->spans if the device library recorded the call too; else NO_PLACE */
    uint64_t *first_arg; /* index in process->args, with one extra entry at the end; only with `details` */
};

struct messages {
    struct table table;
    int64_t *time;
    uint32_t *text, *level;
};

/* Operators and API calls of host threads, in file order. */
struct spans {
    struct table table;
    int64_t *start, *end;
    uint64_t *id; /* correlation id of a call, external id of an operator, or NO_ID */
    uint32_t *name, *thread;
    uint8_t *event_class;
    struct op_details details; /* with `operator_details` */
};

/* Memory blocks that were allocated (bytes above 0) or freed. CUDA's calls tell neither the size of what they free, which
 * is then 0, nor totals; their blocks have an ALLOCATOR_ below. */
struct blocks {
    struct table table;
    int64_t *time, *bytes;
    uint64_t *address, *allocated, *reserved; /* totals of the allocator afterwards */
    int64_t *device;
    uint32_t *thread, *allocator, *stack; /* stack: model/frames.h */
    uint64_t *other;   /* of BLOCK_MAPPED: the physical memory, or the unmapped length; of BLOCK_NONE: the stream */
    uint8_t *kind;     /* BLOCK_* */
    struct map untold; /* of a Kineto trace: those without totals, or with impossible ones */
    size_t earlier; /* of a snapshot: the first ones are older than its events; their time is that of the first event */
};
enum { DEVICE_HOST = -1, DEVICE_OTHER = -2 };
#define TOTAL_UNKNOWN UINT64_MAX
/* Activity of one allocator during one range. */
struct stage_memory {
    uint64_t range; /* its id */
    int64_t device; /* -1: the host */
    uint64_t allocated_after, reserved_after, allocated_peak, reserved_peak, allocated, freed;
};

/* A change of the recording state. */
struct switching {
    int64_t time;
    uint64_t step; /* step of the schedule */
    uint32_t state, activities, cause, cycle;
};
enum { RECORDING_OFF, RECORDING_WARMUP, RECORDING_ON };

/* A period in which another profiler owned the device; during loading, one edge of it. */
struct elsewhere {
    int64_t from, to;
    uint32_t who;
    bool begins;
};

/* The description of a stage's arguments, result or memory, or what the pipeline said of it. */
struct signature {
    int64_t time;
    uint64_t range; /* its id */
    uint32_t stage, text;
    uint32_t direction;
};
enum { SIGNATURE_ARGUMENTS, SIGNATURE_RESULT, SIGNATURE_MEMORY, SIGNATURE_DETAILS };

/* Details of device work in a trace of ours, beside times and lane. */
struct work_detail {
    uint64_t bytes, node;
    int64_t queued; /* ns on the axis; 0: unknown */
    uint32_t grid[3], block[3];
    uint32_t registers, static_shared, dynamic_shared;
    uint32_t context, graph; /* graph 0: not in a graph */
    uint32_t sync_event;
};

/* Work of devices, in file order. */
struct works {
    struct table table;
    int64_t *start, *end;
    uint64_t *correlation, *external; /* id of the launching call; id of the enclosing operator; NO_ID: unknown */
    uint32_t *name, *lane;            /* lane: index in process->lane */
    uint8_t *event_class;
    struct work_detail *detail; /* only of traces of ours, with `details` */
    size_t detail_capacity;
};

/* With `copied`: what is known of a copy or set. */
struct copied {
    uint32_t work;
    bool has_bytes;
    uint64_t bytes;
    double gbs; /* of a Kineto trace: 10^9 bytes per second, as its profiler computed it; 0: unknown */
};

/* With `filling`: how a kernel fills its device. */
struct filling {
    uint32_t work;
    double blocks;    /* of a trace of ours: in all; of a Kineto trace: per SM; NAN: unknown */
    double occupancy; /* achieved, in percent, as its profiler estimated it; NAN: unknown, or of a trace of ours */
    uint64_t threads, registers, shared; /* of a trace of ours: what a block takes */
};

/* With `counters`: a range over which CUPTI counted, as a rule one kernel. */
struct counter_range {
    int64_t start, end;
    uint32_t name;
    size_t first, count; /* its values in `counted` */
};

struct counted {
    uint32_t counter; /* its name */
    double value;
};

struct counter_ranges {
    struct counter_range *range;
    size_t count, capacity;
    struct counted *counted;
    size_t values, value_capacity;
};

/* With `waited`, of a Kineto trace: the event that a wait is for. */
struct waited {
    uint32_t work;
    int64_t stream;       /* in which the event was recorded; -1: unknown */
    uint64_t correlation; /* of the call that recorded it; NO_ID: unknown */
};

/* With `event_numbers`, of a Kineto trace: the number of each row's event in the file, from 0. */
struct event_numbers {
    uint32_t *range, *span, *work; /* by index in ranges, spans and works; NULL: not known */
    size_t range_capacity, span_capacity, work_capacity;
    bool has_first; /* event 0 has a duration and a category */
    int64_t first;  /* its start */
};

/* A call became a node of a CUDA graph. */
struct graph_node {
    uint64_t number; /* graph << 32 | node in the graph */
    int64_t time;
    uint32_t thread, op;     /* op: NAME_NONE: none or unknown. No thread: it was matched (model/replays) */
    uint32_t call;           /* of a matched one: the operator's call, in graphs.calls; NO_PLACE: none */
    bool by_order, is_given; /* the same: by kinds and order of calls without names; by the trace of a capture */
};

/* A graph got its nodes from another one. */
struct graph_source {
    int64_t time;
    uint32_t graph, source, relation; /* enum tfi_graph_relation */
};

struct graphs {
    struct graph_node *node;
    struct graph_source *source;
    size_t nodes, node_capacity, sources, source_capacity;
    uint64_t *node_of_work; /* by work, for the first `works` ones; 0: not a graph node */
    size_t works, work_capacity;
    struct map whole_of;  /* the executable graph, by the graph inside it */
    struct map kernel_of; /* of a Kineto trace, with `captures`: names of the kernels that calls launch, by span */
    uint32_t *matched;    /* the same: by work: index in `node`, NOT_*; NULL: no capture is known (model/replays) */
    struct graph_run {
        size_t work;
        uint32_t graph;
    } * run; /* launches of which only the whole graph is recorded */
    size_t runs, run_capacity;
    struct captured_ops *calls; /* NULL: none (model/replays/captured_ops.h) */
};

/* A stream of a device. */
struct lane {
    int64_t device, stream; /* -1: not known */
    bool has_stream;        /* the event's arguments name the stream, not only its row */
};

/* Times of a stage's work in a stream without a record of each work: sums of work whose records were left out, or times
 * of CUDA events around it if there was no CUPTI. */
struct stage_times {
    struct table table;
    uint64_t *range; /* id of the stage's range; 0: work in no stage */
    int64_t *start, *end;
    int64_t *busy; /* sum of the durations of the work; -1: by events, not known */
    uint32_t *lane;
};

/* Pairs of a forward operator and the backward one that autograd made of it; each entry is one end of the arrow. */
struct forwards {
    struct table table;
    uint64_t *id;
    int64_t *time;
    uint32_t *thread;
    bool *is_forward;
};

/* A device, as its driver describes it. */
struct device {
    uint32_t number, name, units, capability; /* capability: major * 100 + minor */
    uint64_t uuid[2], pci, memory;
    bool simulated;
};

/* Counters of a device at one moment. */
struct device_sample {
    int64_t time;
    uint64_t reasons;              /* clock_reasons.def */
    uint32_t device, known, flags; /* TFI_SAMPLE_*: the values that are known */
    uint32_t sm_mhz, memory_mhz, power_mw, busy, memory_busy;
    int32_t temperature;
};

/* Periods of threads that were sampled, in file order. Those of a thread follow each other in time. */
struct looks {
    struct table table;
    int64_t *start, *end;
    int64_t *cpu;                   /* processor time of the thread, in nanoseconds */
    uint32_t *tid, *stack;          /* stack: model/frames.h, as it stands in the file; NAME_NONE: none */
    uint32_t *call, *count, *flags; /* number of a system call + 1; looks in the period; TFI_SAMPLED_* */
};

/* A function, parsed from its description: "library\x1fclass\x1fname\x1fargument:TYPE,..." */
struct func {
    uint32_t string; /* id of its description in the file */
    char *library, *call_class, *name;
    unsigned args;
    char **arg;
    enum tfi_type *type;
};

struct thread {
    uint32_t serial;
    uint64_t tid;
    int64_t pid; /* pid of the thread if a file holds several processes; -1: that of the trace */
    uint32_t name;
    bool has_time;
    int64_t first, last;
};

/* A thread whose slot is in the .live file: what it is in, or was in when its process was killed. */
struct open_thread {
    uint32_t serial, tid;
    uint32_t name;
    uint32_t calls; /* in progress; the first TFI_SLOT_CALLS are in `call`, the outermost first */
    struct {
        int64_t start;
        uint32_t name;
    } call[TFI_SLOT_CALLS];
    int64_t stage_start; /* of the innermost stage; UNKNOWN_TIME: it is in no stage */
    uint32_t stage;
    int64_t collective_start; /* of the call of NCCL that it is in, as in process->collectives; UNKNOWN_TIME: in none */
};

/* The Python frames of a thread that made no record for TFI_HANG_S, as they were last read, or those of the last exception
 * in it that nothing caught. */
struct silence {
    uint32_t serial, tid;
    int64_t time, since; /* the thread made no record from `since` to `time` */
    uint32_t stack;      /* frames as they stand in the file; NAME_NONE: none could be read */
    uint32_t reading;    /* enum tfi_reading */
    uint32_t exception;  /* name of its type; NAME_NONE: unknown, or the frames are of no exception */
    bool aborted;        /* they were read because the process called abort() */
};

/* A communicator of NCCL that the process made. */
struct communicator {
    uint32_t name;       /* its hash, as in struct collective */
    int64_t rank, ranks; /* of this process in it, and its size; UNKNOWN_NUMBER */
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
    bool lost; /* false: an explanation, not a loss */
};

struct process {
    size_t input;
    char *path;
    struct stream_way way;                                   /* how to open it, and read it if it is JSON */
    bool is_of_reader;                                       /* recorded by this user, on this host, since its boot */
    const char *kind;                                        /* "tfr", "live", "kineto", "dftracer" */
    int64_t rank, world, pid;                                /* -1: not known */
    char *host, *command, *directory, *clock_name, *version; /* NULL: not known */
    char *names_asked, *stages_asked; /* values of ENABLE_PROFILER_NAMES and TFI_STAGES; NULL: not set */
    char *activities;                 /* a list of words as in TFI_ACTIVITIES; NULL: the default */
    bool is_late;                     /* the library was not preloaded: its wrappers got no calls */
    const char *device_word;          /* torch's word for its devices; NULL: CUDA */
    struct pairs *metadata;           /* keys without the prefix "meta." */
    struct reveals reveals;
    char *ended; /* the reason, "running" or "killed"; NULL: unknown */
    bool complete, has_time;
    int64_t first, last;   /* first and last moment of its records */
    int64_t earliest;      /* of a Kineto trace: the first moment of any event, also of arrows and marks */
    int64_t profile_start; /* if has_profile_start: the moment from which torch counts the times of its profile */
    bool has_profile_start;
    unsigned time_unit;   /* of a dftracer trace: of the times in the file (read/dftracer.h) */
    struct doubts health; /* of a Kineto trace */
    bool has_device_work; /* of a Kineto trace, also if its works are not loaded */
    bool has_cost;
    struct clock clock;
    uint64_t own_cost_ns, events, lost;
    struct packed_block block; /* of a process from a file of summaries (.tfs) */
    int64_t read_at; /* nanoseconds of this host's CLOCK_REALTIME, before the .live file was read; 0: there is none */
    enum trace_life life;
    bool is_life_known;               /* the process could be looked up: it is of this host and of its present boot */
    bool has_text_thread;             /* some thread's number is a text in the file, even if it reads as a number */
    bool has_float_ts, has_float_dur; /* some ts or dur of an event with dur and category has a point or an exponent */
    struct ring ring;                 /* of a trace that was kept small */

    /* Tables: each has a row in needs/tables.def, which says who may read it. */
    struct count *kinds;
    size_t kind_count, kind_capacity;
    struct loss *losses;
    size_t loss_count, loss_capacity;
    struct thread *thread;
    size_t threads, thread_capacity;
    struct map thread_of;           /* index by serial */
    struct stage_names stage_names; /* with `stage_names` */
    struct open_thread *open;       /* with `open` */
    size_t opens;
    struct communicator *communicator; /* with `open` */
    size_t communicators, communicator_capacity;
    struct silence *silence; /* with `open`: the last ones of each thread */
    size_t silences, silence_capacity;
    struct category *category;
    size_t categories, category_capacity;
    struct map category_of; /* index by domain and category */
    struct func *func;
    size_t funcs, func_capacity;
    struct map func_of; /* index by string id */
    struct ranges ranges;
    struct begins begins;
    struct lost_ends lost_ends;
    struct wholes wholes;
    struct pauses pauses;
    struct marks marks;
    struct calls calls;
    struct ios ios;
    struct messages messages;
    struct spans spans;
    struct map
        uncorrelated;   /* of a Kineto trace: calls without a correlation id, by external id, as indices in spans */
    uint32_t *streamed; /* indices in spans of operators whose arguments name a stream, as Triton's do */
    size_t streamed_count, streamed_capacity;
    struct python_call {
        uint64_t id, parent; /* of Kineto: "Python id", "Python parent id" */
        uint32_t span;
    } * python_call; /* of a Kineto trace, with `all_spans`; only while it is loaded */
    size_t python_calls, python_call_capacity;
    int64_t rounding_ns; /* of a Kineto trace: so much later than its parent may a child end, since times are rounded */
    struct map folded;   /* folded names of stages, by name (model/ranges/step_ranges.h) */
    struct map full_name;    /* the names of such ranges, by index in ranges */
    struct map range_of_id;  /* of a Kineto trace, with `all_spans`: annotations by external id */
    struct bits unlinked;    /* the same: calls without an operator, by index in spans */
    struct map range_inputs; /* index in range_input, for ranges with inputs from the framework */
    struct op_detail *range_input;
    size_t range_input_count, range_input_capacity;
    struct works works;
    struct map described; /* works of a Kineto trace whose arguments describe a collective */
    struct event_numbers numbers;
    struct copied *copied; /* by work */
    size_t copied_count, copied_capacity;
    struct filling *filling; /* by work */
    size_t fillings, filling_capacity;
    struct counter_ranges counters;
    struct waited *waited; /* by work */
    size_t waited_count, waited_capacity;
    struct map arrows; /* of a Kineto trace: the ids of calls at which an arrow to work begins */
    struct graphs graphs;
    struct forwards forwards;
    struct collectives collectives; /* with `collectives` */
    struct stage_times stage_times;
    struct tables_in_file in_file;
    struct trace *trace;            /* with `traces`, of a trace of ours: its file, which stays open */
    struct blocks blocks, ooms;     /* ooms: refused allocations */
    struct blocks grants;           /* with `grants`: device memory, mappings and reserved addresses of CUDA's calls */
    struct tensors tensors;         /* with `tensors` */
    struct memory_segment *segment; /* of a snapshot; with `memory` */
    size_t segments, segment_capacity;
    struct memory_row *memory_row; /* of torch's memory timeline, in file order; with `all_blocks` */
    size_t memory_rows, memory_row_capacity;
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
    struct map device_of;         /* index by number */
    struct device_sample *sample; /* sorted by time; with `samples` */
    size_t samples, sample_capacity;
    struct looks looks;     /* with `looks` */
    struct machine machine; /* with `machine` */
    struct startup startup; /* with `startup` */
    uint64_t *args;
    size_t arg_count, arg_capacity;
};

struct model {
    struct names names;
    struct process *process;
    size_t processes, capacity;
    int64_t start; /* time of the first record of all inputs; --from and --to count from it */
};

/* ---- filling the model ---- */
void process_init(struct process *process, const char *path, const char *kind);
struct thread *process_thread(struct process *process, uint32_t serial);
void process_count(struct process *process, uint32_t kind, const char *name, uint64_t count);
void process_lose(struct process *process, const char *cause, uint64_t count, bool lost);
uint32_t process_func(struct process *process, uint32_t string, const char *text, size_t length);
void func_free(struct func *func);
void ranges_reserve(struct ranges *ranges, size_t more, bool details);
/* Returns an entry for a beginning. The caller fills its columns, except for the id. */
size_t begins_add(struct begins *begins, uint64_t id, bool details);
/* Completes the last range of `process->ranges` from its beginning, or remembers it until that is read. */
void begins_meet(struct process *process, bool details);
void marks_reserve(struct marks *marks, size_t more, bool details);
void calls_reserve(struct calls *calls, size_t more, bool details);
void messages_reserve(struct messages *messages, size_t more);
void looks_reserve(struct looks *looks, size_t more);
void spans_reserve(struct spans *spans, size_t more);
void works_reserve(struct works *works, size_t more);
bool selects_stages(const struct process *process); /* only details of selected stages were recorded */
void stage_times_reserve(struct stage_times *times, size_t more);
void forwards_reserve(struct forwards *forwards, size_t more);
uint32_t process_lane(struct process *process, int64_t device, int64_t stream, bool has_stream);
void pauses_reserve(struct pauses *pauses, size_t more);
void wholes_reserve(struct wholes *wholes, size_t more);
void blocks_reserve(struct blocks *blocks, size_t more);
/* Inputs of a range, as the framework gave them; NULL if it gave none. The key is the range's id. Ranges of a Kineto
 * trace have no ids, so their index is the key. */
void range_inputs_add(struct process *process, uint64_t key, const struct op_detail *inputs);
const struct op_detail *range_inputs(const struct process *process, size_t range);
/* Returns the detail of the last work; NULL unless `details`. */
struct work_detail *works_detail(struct works *works, bool details);
/* Adds what is known of a copy or set, in the order of works. */
void process_copied(struct process *process, struct copied copied);
void calls_free(struct calls *calls);
/* Called after loading: matches beginnings with ends, cuts ranges, and converts ticks to nanoseconds. */
void process_finish(struct process *process);
/* Frees all events and tables, and keeps what describes the process as a whole. */
void process_forget(struct process *process);
void process_free(struct process *process);

void model_init(struct model *model);
void model_free(struct model *model);

/* ---- reading the model ---- */
const char *model_name(const struct model *model, uint32_t name);
const struct thread *find_thread(const struct process *process, uint32_t serial); /* NULL if absent */
const struct device *find_device(const struct process *process, int64_t number);  /* NULL if absent */
/* Writes the UUID as NVIDIA's tools do. */
#define DEVICE_UUID 48
void device_uuid(const struct device *device, char text[DEVICE_UUID]);
/* Returns the base of the file's times, in nanoseconds since 1970: 0 unless a Kineto trace has one. */
int64_t kineto_base(const struct process *process);
const char *find_category(const struct model *model, const struct process *process, uint32_t domain, uint32_t category);

#endif
