/* values.h - prints single values of a trace by their type. */
#ifndef TFA_VALUES_H
#define TFA_VALUES_H

#include "model/model.h"
#include "write/emit.h"

/* The context that a value's meaning may depend on. */
struct meaning {
    const struct process *process; /* with `traces` */
    uint64_t time;                 /* time of the record, in ticks */
    bool is_end;                   /* durations end at `time`; otherwise they begin there */
    uint64_t payload_type;         /* NVTX payload type */
    uint64_t *bad_stacks;          /* counter of invalid call stacks */
};

/* Emits a value under its name, with the unit of its type (duration_us, memory_bytes, start_ns). */
void emit_typed(struct emit *e, const struct meaning *meaning, const char *key, enum tfi_type type, bool is_signed,
                uint64_t value);
/* Emits the words of clock event reasons as a list; a bit without a word is `bit_N`. */
void emit_reasons(struct emit *e, const char *key, uint64_t reasons);
/* Returns the word of a bit of clock event reasons, or writes `bit_N` into `room`. */
const char *reason_word(unsigned bit, char room[16]);
/* Emits an NVTX payload: a number of its type, or its bits if the type is unknown. */
void emit_payload(struct emit *e, const char *key, uint64_t bits, uint64_t type);

#endif
