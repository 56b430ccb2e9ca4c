/* layout.c - reads single fields of CUPTI's records, and walks through a buffer of them.
 *
 * A record is read by the offsets of layout.def, never beyond the size it has in the library's version; a newer
 * record is read as far as that prefix. CUPTI itself walks through a buffer, because it knows the sizes of kinds that
 * we don't. Once it may no longer be called, the sizes of the table are used. Any thread.
 */
#include "cupti/layout.h"

#include <cupti.h>

#include "base/process.h"
#include "record/strings.h"

#define AT(structure, record, field, offset, type)                                                                     \
    _Static_assert(offsetof(structure, field) == (offset), #record "." #field);                                        \
    _Static_assert(sizeof(((structure *)0)->field) == sizeof(type), #record "." #field);
#define SIZE(kind, since, bytes)
#include "cupti/layout.def"
#undef AT
#undef SIZE
_Static_assert(sizeof(CUpti_ActivityKernel9) == 208, "kernel records of 12.x");
#if CUPTI_API_VERSION >= 130000
_Static_assert(sizeof(CUpti_ActivityKernel10) == 216, "kernel records of 13.0");
#endif
#if CUPTI_API_VERSION >= 130100
_Static_assert(sizeof(CUpti_ActivityKernel11) == 224, "kernel records of 13.1");
#endif

#define AT(structure, record, field, offset, type)
#define SIZE(kind, since, bytes) {kind, bytes, since},
static const struct {
    uint16_t kind, bytes;
    uint32_t since;
} sizes[] = {
#include "cupti/layout.def"
};
#undef AT
#undef SIZE

#define KINDS 64u
static struct {
    uint32_t version;
    uint16_t bytes[KINDS]; /* of the library's version */
} layout;

uint32_t tfi_record_bytes(uint32_t kind, uint32_t version)
{
    uint32_t bytes = 0;
    for (size_t i = 0; i < TFI_COUNT(sizes); i++)
        if (sizes[i].kind == kind && sizes[i].since <= version) bytes = sizes[i].bytes;
    return bytes;
}

/* Any thread may fill the table: all store the same values. */
uint32_t tfi_record_size(uint32_t kind)
{
    if (kind >= KINDS) return 0;
    if (TFI_UNLIKELY(layout.version != tfi_cupti_api.version)) {
        for (uint32_t k = 0; k < KINDS; k++) layout.bytes[k] = (uint16_t)tfi_record_bytes(k, tfi_cupti_api.version);
        layout.version = tfi_cupti_api.version;
    }
    return layout.bytes[kind];
}

uint32_t tfi_record_kind(const void *record)
{
    uint32_t kind;
    memcpy(&kind, record, sizeof kind);
    return kind;
}

uint32_t tfi_record_call(const void *record)
{
    uint32_t bytes_ = tfi_record_size(TFI_CUPTI_RUNTIME);
    return GET32(record, api, cbid);
}

uint32_t tfi_record_thread(const void *record)
{
    uint32_t bytes_ = tfi_record_size(TFI_CUPTI_RUNTIME);
    return GET32(record, api, threadId);
}

uint32_t tfi_record_overhead_thread(const void *record)
{
    enum { OBJECT_THREAD = 2 };
    uint32_t bytes_ = tfi_record_size(TFI_CUPTI_OVERHEAD);
    uint64_t process_and_thread = GET(record, overhead, objectId);
    return GET32(record, overhead, objectKind) == OBJECT_THREAD ? (uint32_t)(process_and_thread >> 32) : 0;
}

uint64_t tfi_record_start(const void *record)
{
    uint32_t kind = tfi_record_kind(record), bytes_ = tfi_record_size(kind);
    switch (kind) {
    case TFI_CUPTI_KERNEL:
    case TFI_CUPTI_CONCURRENT_KERNEL: return tfi_cupti_clock_ns(GET(record, kernel, start));
    case TFI_CUPTI_MEMCPY:
    case TFI_CUPTI_MEMCPY2: return tfi_cupti_clock_ns(GET(record, memcpy, start));
    case TFI_CUPTI_MEMSET: return tfi_cupti_clock_ns(GET(record, memset, start));
    case TFI_CUPTI_SYNCHRONIZATION: return tfi_cupti_clock_ns(GET(record, sync, start));
    case TFI_CUPTI_OVERHEAD: return tfi_cupti_clock_ns(GET(record, overhead, start));
    case TFI_CUPTI_RUNTIME:
    case TFI_CUPTI_DRIVER: return tfi_cupti_clock_ns(GET(record, api, start));
    default: return 0;
    }
}

uint32_t tfi_record_correlation(const void *record)
{
    uint32_t kind = tfi_record_kind(record), bytes_ = tfi_record_size(kind);
    switch (kind) {
    case TFI_CUPTI_KERNEL:
    case TFI_CUPTI_CONCURRENT_KERNEL: return GET32(record, kernel, correlationId);
    case TFI_CUPTI_MEMCPY: return GET32(record, memcpy, correlationId);
    case TFI_CUPTI_MEMCPY2: return GET32(record, memcpy2, correlationId);
    case TFI_CUPTI_MEMSET: return GET32(record, memset, correlationId);
    case TFI_CUPTI_SYNCHRONIZATION: return GET32(record, sync, correlationId);
    case TFI_CUPTI_EXTERNAL_CORRELATION: return GET32(record, external, correlationId);
    case TFI_CUPTI_GRAPH_TRACE: return GET32(record, graph, correlationId);
    case TFI_CUPTI_RUNTIME:
    case TFI_CUPTI_DRIVER: return GET32(record, api, correlationId);
    default: return 0;
    }
}

/* ---- walking ---- */

/* Finds the next record by the sizes of our own table. */
static bool next_by_table(uint8_t *buffer, size_t valid, void **record, bool *whole)
{
    uint8_t *at = buffer;
    if (*record) at = (uint8_t *)*record + tfi_record_size(tfi_record_kind(*record));
    if (at == buffer + valid) return false;
    *whole = false;
    if (at < buffer || (size_t)(buffer + valid - at) < 8) return false;
    uint32_t bytes = tfi_record_size(tfi_record_kind(at));
    if (!bytes || bytes > (size_t)(buffer + valid - at)) return false;
    *whole = true;
    *record = at;
    return true;
}

bool tfi_record_next(uint8_t *buffer, size_t valid, void **record, bool *whole)
{
    enum { MAX_LIMIT_REACHED = 12 };
    *whole = true;
    if (!buffer || !valid) return false;
    if (__atomic_load_n(&tfi_cupti->quiet, __ATOMIC_ACQUIRE)) return next_by_table(buffer, valid, record, whole);
    void *before = *record;
    int result = tfi_cupti_api.ActivityGetNextRecord(buffer, valid, record);
    if (result != 0) {
        *whole = result == MAX_LIMIT_REACHED;
        return false;
    }
    uint8_t *at = *record;
    uint32_t bytes = at ? tfi_record_size(tfi_record_kind(at)) : 0;
    *whole = at && at != before && at >= buffer && at + (bytes ? bytes : 8) <= buffer + valid;
    return *whole;
}

uint32_t tfi_record_count(uint8_t *buffer, size_t valid)
{
    void *record = NULL;
    bool whole;
    uint32_t count = 0;
    while (tfi_record_next(buffer, valid, &record, &whole)) count++;
    return count;
}

static bool is_kernel(uint32_t kind)
{
    return kind == TFI_CUPTI_CONCURRENT_KERNEL || kind == TFI_CUPTI_KERNEL;
}

/* Runs in callbacks of CUPTI, without the token. */
void tfi_records_intern(uint8_t *buffer, size_t valid)
{
    void *record = NULL;
    bool whole;
    while (tfi_record_next(buffer, valid, &record, &whole)) {
        uint32_t kind = tfi_record_kind(record), bytes_ = tfi_record_size(kind);
        if (!is_kernel(kind) || !bytes_) continue;
        const char *name = (const char *)(uintptr_t)GET(record, kernel, name);
        uint64_t number = name ? tfi_string(name, strnlen(name, TFI_STRING_MAX)) : 0;
        memcpy((char *)record + AT_kernel_name, &number, sizeof number);
    }
}
