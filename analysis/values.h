/* values.h - values of a trace by what they mean, for commands that show them one by one. */
#ifndef TFA_VALUES_H
#define TFA_VALUES_H

#include "emit.h"
#include "model.h"

/* What a value's meaning may depend on. */
struct meaning {
    const struct process *process;
    const struct strings *strings;
    uint64_t time;         /* ticks: the moment of the record */
    bool is_end;           /* its durations end there; otherwise they begin there */
    uint64_t payload_type; /* of NVTX */
    uint64_t *bad_stacks;  /* counted there: call stacks that make no sense */
};

/* Emits a value under its name, with the unit its type asks for (duration_us, memory_bytes, start_ns). */
void emit_typed(struct emit *e, const struct meaning *meaning, const char *key, enum tfi_type type, bool is_signed,
                uint64_t value);
/* An NVTX payload: a number of its type, or its bits. */
void emit_payload(struct emit *e, const char *key, uint64_t bits, uint64_t type);

#endif
