/* layout.h - offsets of the fields of CUPTI's records, and functions that read them. */
#ifndef TFI_CUPTI_LAYOUT_H
#define TFI_CUPTI_LAYOUT_H

#include <string.h>

#include "cupti/client.h"

/* Defines AT_kernel_start, WIDTH_kernel_start and so on. */
#define AT(structure, record, field, offset, type)                                                                     \
    AT_##record##_##field = (offset), WIDTH_##record##_##field = sizeof(type),
#define SIZE(kind, since, bytes)
enum {
#include "cupti/layout.def"
};
#undef AT
#undef SIZE

/* Size in bytes of a record of that kind in the loaded library's version, 0 if unknown. Any thread. */
uint32_t tfi_record_size(uint32_t kind);

/* Reads a field of a record of `bytes` bytes; 0 if the field lies beyond them. */
static inline uint64_t tfi_record_field(const void *record, uint32_t bytes, uint32_t offset, uint32_t width)
{
    uint64_t value = 0;
    if (width > sizeof value) width = sizeof value;
    if (offset + width <= bytes) memcpy(&value, (const char *)record + offset, width);
    return value;
}

#define GET(record, name, field) tfi_record_field(record, bytes_, AT_##name##_##field, WIDTH_##name##_##field)
#define GET32(record, name, field) ((uint32_t)GET(record, name, field))

#endif
