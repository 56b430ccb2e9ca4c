/* schema.h - the description of the record kinds that goes into each trace; build/schema.c has it, from records.def. */
#ifndef TFI_SCHEMA_H
#define TFI_SCHEMA_H

#include <stddef.h>
#include <stdint.h>

extern const char tfi_schema[];
extern const size_t tfi_schema_bytes;

/* The same, deflated: a trace of a process that does little would else consist of it. */
extern const uint8_t tfi_schema_deflated[];
extern const size_t tfi_schema_deflated_bytes;

#endif
