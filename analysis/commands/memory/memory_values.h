/* memory_values.h - the values of rows about memory, as all layouts print them. */
#ifndef TFA_MEMORY_VALUES_H
#define TFA_MEMORY_VALUES_H

#include "model/model.h"
#include "write/emit.h"

void emit_total_bytes(struct emit *e, const char *key, uint64_t bytes); /* TOTAL_UNKNOWN: null */
void emit_memory_device(struct emit *e, int64_t device);                /* DEVICE_OTHER: null */
void emit_memory_kind(struct emit *e, uint8_t kind);
/* Prints the frames, the innermost first; in text the innermost one only. */
void emit_frames(struct emit *e, const struct names *names, uint32_t stack);

#endif
