/* execution.h - the starts and ends of libtorch's functions, read from a trace of ours, and the values they had. */
#ifndef TFA_EXECUTION_H
#define TFA_EXECUTION_H

#include "read/trace.h"

/* A start or an end. `string` is the number of a string: of a start the name, of an end the schema. */
struct function_edge {
    uint64_t time; /* ticks */
    uint64_t handle;
    int64_t sequence;
    size_t place, first; /* place: in file order; first: the first word of its values in executions.word */
    uint32_t string, count, thread, forward, scope, flags; /* thread, forward: numbers of libtorch */
    uint32_t modules; /* of an end: the number of a string, 0 if it ran outside TorchScript */
    bool is_end;
};

/* Sorted by time; those of one moment are in file order. An end has only its time, handle, values, schema and
 * modules. */
struct executions {
    struct function_edge *edge;
    size_t edges, capacity;
    uint64_t *word;
    size_t words, word_capacity;
    uint64_t bad_records; /* complete but invalid */
    uint64_t unread;      /* could not be read again */
};

/* Reads the whole trace once more. */
void executions_read(struct executions *executions, struct trace *trace);
void executions_free(struct executions *executions);

/* ---- values: see torch_values.def ---- */

struct words {
    const uint64_t *at, *end;
};

/* One value. Its parts, if it is a list or a tuple, follow it in the words; so does the value that a keyword names. */
struct torch_value {
    unsigned kind;    /* TFI_VALUE_* */
    bool is_known;    /* `payload` is a number's bits or a string's number */
    uint64_t payload; /* of a keyword the number of a string */
    uint32_t parts;
    uint64_t tensor, storage, offset, elements;
    unsigned type, device;
    int device_index; /* -1: none */
    bool has_storage;
    unsigned dims;
    const uint64_t *sizes, *strides; /* NULL: unknown */
};

/* Takes the next value from the words; false if there is no whole one. */
bool words_next(struct words *words, struct torch_value *value);

/* libtorch's names; a number that has none gets one that says so. */
const char *torch_kind_name(unsigned kind);
const char *torch_element_name(unsigned type);
const char *torch_device_name(unsigned device);
/* Returns the name of an element's type in at::ScalarType; NULL if it has none. */
const char *torch_scalar_name(uint64_t type);
/* Returns the bytes of an element, 0 if the type is unknown. */
unsigned torch_element_bytes(unsigned type);

#endif
