/* torch.h - libtorch's RecordFunction: how its ranges become stages and its operators records. */
#ifndef TFI_TORCH_H
#define TFI_TORCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tfi_text;
struct tfi_thread;

/* Where things lie; see torch_layout.def. */
struct tfi_torch_layout {
    uint16_t scope, sequence, inputs, outputs, forward, async;
    uint16_t none, tensor, real, complex, integer, boolean, list;
    uint16_t elements, element_type, kind, kind_tensor, number;
    uint16_t storage, dims, sizes, type, keys, flags, policy, symbolic;
    uint64_t unstrided;
    uint16_t data, bytes;
};

/* How the inputs of an operator are read. */
enum tfi_torch_how {
    TFI_TORCH_NONE,     /* not at all */
    TFI_TORCH_DIRECT,   /* from libtorch's structures */
    TFI_TORCH_EXPORTED, /* by the functions libtorch exports: shapes and types only */
};

/* The inputs of one operator: string numbers of the texts Kineto writes, 0 where there is none. */
struct tfi_torch_inputs {
    uint32_t shapes;
    uint32_t types;
    uint32_t concrete;
    uint32_t strides;
    uint64_t flops;
};

/* The same as texts. */
enum { TFI_TORCH_SHAPES, TFI_TORCH_TYPES, TFI_TORCH_CONCRETE, TFI_TORCH_STRIDES, TFI_TORCH_TEXTS };

/* ---- torch.c ---- */

/* Whether operators are recorded, or recording them may be switched on. */
bool tfi_torch_operators(void);

/* Finds libtorch in this process, which is of that version ("2.15.0+cu132"), and puts callbacks in for every range, and
 * for operators where they are recorded. Nothing is recorded before tfi_torch_use(). Returns NULL, or why not. */
const char *tfi_torch_attach(const char *version);

/* The string of the operator that thread is in, which asks itself; 0 if it is in none. */
uint32_t tfi_torch_open_operator(const struct tfi_thread *thread);

/* From here on the inputs of operators that this thread runs are described for tfi_torch_seen(), in this way; false if
 * there is no such way. */
bool tfi_torch_try(enum tfi_torch_how how);

/* Name of the first range or operator this thread began since the last call, then a line for each of TFI_TORCH_TEXTS;
 * "" if there was none. */
const char *tfi_torch_seen(void);

/* Records from now on: ranges, and operators with inputs read in this way. */
void tfi_torch_use(enum tfi_torch_how how);

/* Takes all callbacks out. */
void tfi_torch_detach(void);

/* True once Python's import of torch has ended: what the import itself runs and allocates is no work of the job. */
bool tfi_torch_imported(void);

/* Forgets what belongs to an earlier life of this memory; at wake. */
void tfi_torch_restart(void);

/* ---- torch_inputs.c ---- */

struct tfi_torch_cache;

/* Finds libtorch's functions in an open library and the layout of a version; false if there is no layout. */
bool tfi_torch_inputs_init(void *library, uint32_t version);

/* A cache of one thread; NULL if there is no memory. */
struct tfi_torch_cache *tfi_torch_cache_new(void);

/* Describes the inputs of a RecordFunction; `name` is the number of its name's string, `text` the name. Only inside
 * tfi_enter(). */
void tfi_torch_inputs(struct tfi_torch_cache *cache, enum tfi_torch_how how, const void *function, uint32_t name,
                      const char *text, struct tfi_torch_inputs *inputs);

/* The RecordFunction's sequence number (-1 if none) and the logical thread of its forward operator (0 if none). */
int64_t tfi_torch_sequence(const void *function);
uint64_t tfi_torch_forward(const void *function);

/* Its scope, a number of libtorch's. */
uint16_t tfi_torch_scope(const void *function);
/* Whether it is said to be asynchronous: what runs meanwhile in its thread is not in it. */
bool tfi_torch_async(const void *function);

/* Storages of the tensors among its inputs, or after it among its outputs: pairs of address and bytes, as many as there
 * is room for. Returns how many values these are. */
uint32_t tfi_torch_storages(const void *function, bool outputs, uint64_t *blocks, uint32_t room);

/* ---- torch_texts.c ---- */

/* Finds libtorch's functions; false if one that the direct way needs is missing. */
bool tfi_torch_texts_init(void *library);

/* Whether libtorch exports what the other way needs. */
bool tfi_torch_exported(void);

/* Number of inputs, as libtorch counts them. */
size_t tfi_torch_count(const void *function);

/* Appends one of TFI_TORCH_TEXTS; nothing where there are no inputs, or this way does not know it. */
void tfi_torch_text(struct tfi_text *text, enum tfi_torch_how how, const void *function, int what);

/* All of them, each ended by a newline; reads only what it has found to be readable. */
void tfi_torch_inputs_text(enum tfi_torch_how how, const void *function, struct tfi_text *text);

/* Operations, as torch.profiler(with_flops=True) has them, by its own functions; 0 where they are not known. */
uint64_t tfi_torch_flops(const char *name, const void *function);

#endif
