/* torch.h - reads libtorch's RecordFunction: its ranges become stages and its operators records. */
#ifndef TFI_TORCH_H
#define TFI_TORCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tfi_text;
struct tfi_thread;

/* Offsets and values of one libtorch release; see layout.def. */
struct tfi_torch_layout {
    uint16_t scope, sequence, inputs, outputs, forward, async;
    uint16_t none, tensor, real, complex, integer, boolean, list;
    uint16_t elements, element_type, kind, kind_tensor, number;
    uint16_t storage, dims, sizes, type, keys, flags, policy, symbolic;
    uint64_t unstrided;
    uint16_t data, bytes;
    uint16_t object, capsule, slots, group_rank, group_size;
    uint16_t info_name, info_description, info_rank, info_size, info_collective, info_in, info_out, info_type,
        info_in_splits, info_out_splits, info_start, info_stride, info_members, info_async, info_sequence;
    uint16_t thread, handle, keywords, described, offset, numel, device, string, tuple, arguments, returns;
    bool old_strings; /* the release's wheels have the old layout of std::string */
};

/* Way in which the inputs of an operator are read. */
enum tfi_torch_how {
    TFI_TORCH_NONE,     /* not read */
    TFI_TORCH_DIRECT,   /* from libtorch's structures */
    TFI_TORCH_EXPORTED, /* by the functions libtorch exports: shapes and types only */
};

/* The inputs of one operator: string numbers of the texts in Kineto's form, 0 for a missing one. */
struct tfi_torch_inputs {
    uint32_t shapes;
    uint32_t types;
    uint32_t concrete;
    uint32_t strides;
    uint64_t flops;
};

/* A collective of torch.distributed, as its operator or the range of its backend's work tells it. */
struct tfi_torch_collective {
    uint32_t name;               /* string, if libtorch describes the collective; 0: the operator is its name */
    uint32_t group, description; /* strings; 0: unknown */
    uint32_t members;            /* string: the group's global ranks as a list; 0: unknown */
    int64_t sequence;            /* number of the collective in its group; -1: unknown */
    int64_t in, out;             /* elements of this rank's two buffers; -1: unknown */
    uint64_t tensor;             /* address of the first tensor that the rank puts in; 0: none */
    uint32_t tensors;            /* number of the tensors that it puts in */
    int32_t type;                /* of their elements: at::ScalarType; -1: unknown */
    int32_t rank;                /* of this process in the group; -1: unknown */
    uint32_t ranks;              /* size of the group; 0: unknown */
    int32_t peer;                /* root or peer; -1: none */
};

/* The same inputs as texts. */
enum { TFI_TORCH_SHAPES, TFI_TORCH_TYPES, TFI_TORCH_CONCRETE, TFI_TORCH_STRIDES, TFI_TORCH_TEXTS };

/* ---- torch.c ---- */

/* True if operators are recorded, or their recording may be switched on. */
bool tfi_torch_operators(void);

/* Finds libtorch in this process, which has that version ("2.15.0+cu132"), and adds callbacks for every range, and
 * for operators if they are recorded. Nothing is recorded before tfi_torch_use(). Returns NULL, or the reason for
 * a failure. */
const char *tfi_torch_attach(const char *version);

/* Starts a trial: the inputs of this thread's operators are described for tfi_torch_seen(), in this way; false if
 * the way is not available. */
bool tfi_torch_try(enum tfi_torch_how how);

/* Returns the name of the first range or operator this thread began since the last call, then a line for each of
 * TFI_TORCH_TEXTS; "" if there was none. */
const char *tfi_torch_seen(void);

/* Starts recording: ranges, and operators with inputs read in this way. */
void tfi_torch_use(enum tfi_torch_how how);

/* Removes all callbacks. */
void tfi_torch_detach(void);

/* True once Python's import of torch has ended: operators and blocks of the import itself are no work of the job. */
bool tfi_torch_imported(void);

/* Forgets the state of a parent process or of an earlier trace; called at wake. */
void tfi_torch_restart(void);

/* ---- inputs.c ---- */

struct tfi_torch_cache;

/* Finds libtorch's functions in an open library and the layout of a version; false if there is no layout. */
bool tfi_torch_inputs_init(void *library, const char *version);

/* Makes the cache of one thread; NULL if there is no memory. */
struct tfi_torch_cache *tfi_torch_cache_new(void);

/* Describes the inputs of a RecordFunction; `name` is the string number of its name, `text` the name. Only inside
 * tfi_enter(). */
void tfi_torch_inputs(struct tfi_torch_cache *cache, enum tfi_torch_how how, const void *function, uint32_t name,
                      const char *text, struct tfi_torch_inputs *inputs);

/* Returns the modules of TorchScript that the calling thread is in, as a string of the trace; 0 if it is in none. */
uint32_t tfi_torch_modules(struct tfi_torch_cache *cache);

/* The RecordFunction's sequence number (-1 if none) and the logical thread of its forward operator (0 if none). */
int64_t tfi_torch_sequence(const void *function);
uint64_t tfi_torch_forward(const void *function);

/* The RecordFunction's scope, a number of libtorch's. */
uint16_t tfi_torch_scope(const void *function);
/* True if the RecordFunction is declared asynchronous: ranges that run meanwhile in its thread are not inside it. */
bool tfi_torch_async(const void *function);

/* Writes the storages of the tensors among the inputs or, in an end callback, among the outputs: pairs of address
 * and bytes, as many as there is room for. Returns the number of values written. */
uint32_t tfi_torch_storages(const void *function, bool outputs, uint64_t *blocks, uint32_t room);

/* ---- hierarchy.c ---- */

/* Finds libtorch's function in an open library, after tfi_torch_inputs_init(), and tries it. */
void tfi_torch_hierarchy_init(void *library);

/* Appends the modules of TorchScript that the calling thread is in; nothing if it is in none. */
void tfi_torch_hierarchy(struct tfi_text *text);

/* ---- execution.c ---- */

struct tfi_torch_execution;

/* Finds libtorch's functions in an open library, after tfi_torch_inputs_init(). */
void tfi_torch_execution_init(void *library);

/* True if TFI_TENSOR_ADDRESSES asks for records of execution, and the layout of this libtorch has what they need. */
bool tfi_torch_executes(void);

/* Write one record of a RecordFunction's start, with its inputs, and one of its end, with its outputs. `state` is the
 * calling thread's, made at the first use; `name` is the string of the function's name, `text` the name, `modules` the
 * string of the modules of TorchScript around it. Only by the direct way, inside tfi_enter() or with the guard set. The
 * first one returns false if nothing was written. */
bool tfi_torch_execution_begin(struct tfi_thread *t, struct tfi_torch_execution **state, const void *function,
                               uint32_t name, const char *text, uint16_t scope);
void tfi_torch_execution_end(struct tfi_thread *t, struct tfi_torch_execution **state, const void *function,
                             uint32_t modules);

/* Records the memory of an operator's tensors: role 1 inputs, 2 outputs. */
void tfi_torch_write_tensors(struct tfi_thread *t, uint32_t name, uint64_t start, const void *function, uint32_t role);

/* ---- collectives.c ---- */

/* Finds libtorch's functions on process groups in an open library. */
void tfi_torch_groups_init(void *library);

/* True for the name of an operator that calls a process group. */
bool tfi_torch_is_call(const char *name);

/* True for the name of a range that a backend of the host runs round the work of a collective. */
bool tfi_torch_is_work(const char *name);

/* Reads the collective of such an operator; false if its group is not understood. Only by the direct way and inside
 * tfi_enter(). */
bool tfi_torch_call(const void *function, const char *name, struct tfi_torch_collective *collective);

/* Returns libtorch's description of the collective that the calling thread is in, a torch::ParamCommsDebugInfo; NULL if
 * there is none, or if its layout is unknown. */
const char *tfi_torch_description(void);
/* True for the name of the operator that has one. */
bool tfi_torch_is_described(const char *name);

/* Reads the tensors of such a range. */
void tfi_torch_work(const void *function, struct tfi_torch_collective *collective);

/* ---- openmp.c ---- */

/* Finds the OpenMP library of an open library. */
void tfi_torch_openmp_init(void *library);
/* Records the calling thread's number of OpenMP threads if it is not `known`, and sets that. */
void tfi_torch_openmp(struct tfi_thread *t, uint32_t *known);

/* ---- streams.c ---- */

/* Finds libc10_cuda's functions. Called where no lock of torch is held. */
void tfi_torch_streams_init(void);

/* The handle of the calling thread's current stream of a CUDA device; 0: the default one, or unknown. Called only from the
 * report of a block that the thread has just got there. */
uint64_t tfi_torch_stream(int32_t device);

/* ---- texts.c ---- */

/* True if these bytes can be read, at most 512 of them; their address has to be a multiple of 8. */
bool tfi_torch_readable(const void *address, size_t bytes);

/* Finds libtorch's functions; false if one that the direct way needs is missing. */
bool tfi_torch_texts_init(void *library);

/* True if libtorch exports the functions that the other way needs. */
bool tfi_torch_exported(void);

/* Number of inputs as counted by libtorch. */
size_t tfi_torch_count(const void *function);

/* Appends one of TFI_TORCH_TEXTS; nothing if there are no inputs, or if this way does not know the text. */
void tfi_torch_text(struct tfi_text *text, enum tfi_torch_how how, const void *function, int what);

/* Appends all texts, each ended by a newline; reads only memory that it has found to be readable. */
void tfi_torch_inputs_text(enum tfi_torch_how how, const void *function, struct tfi_text *text);

/* Number of floating point operations, as in torch.profiler(with_flops=True) and by its own functions; 0 if
 * unknown. */
uint64_t tfi_torch_flops(const char *name, const void *function);

#endif
