/* definitions.c - keeps the rows that later rows need to be understood: threads, devices, graphs.
 *
 * Such a row outlives the part of the trace that it lies in. The rows lie one behind the other in a fixed room, each with
 * the number of its part. A thread that has ended needs its row only while its records are there. Its last chunks may be
 * appended after its end, so the row stays until the room fills. All calls come under the writer's lock.
 */
#include "flight/definitions.h"

#include <string.h>

#include "base/process.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "record/thread.h"
#include "tfi_trace.h"

struct kept {
    uint64_t part;
    uint64_t ended; /* of a thread: the part with its end; 0: it runs */
    uint8_t row[];
};

static uint8_t *room;
static size_t used;

void tfi_definitions_begin(void)
{
    if (!room) room = tfi_map(TFI_DEFINITIONS_BYTES);
    used = 0;
}

static bool is_definition(uint16_t kind)
{
    switch (kind) {
    case TFI_KIND_thread:
    case TFI_KIND_thread_name:
    case TFI_KIND_thread_pool:
    case TFI_KIND_message:
    case TFI_KIND_rank:
    case TFI_KIND_category:
    case TFI_KIND_metadata:
    case TFI_KIND_recording:
    case TFI_KIND_device:
    case TFI_KIND_graph_node:
    case TFI_KIND_graph_source:
    case TFI_KIND_elsewhere:
    case TFI_KIND_descriptor: return true;
    default: return false;
    }
}

static const struct tfi_rec *row_of(const struct kept *kept)
{
    return (const struct tfi_rec *)kept->row;
}

static size_t size_of(const struct kept *kept)
{
    return sizeof *kept + row_of(kept)->size;
}

static void keep_row(const struct tfi_rec *row, uint64_t part)
{
    struct kept *to = (struct kept *)(room + used);
    if (sizeof *to + row->size > TFI_DEFINITIONS_BYTES - used) {
        tfi_count_drop(TFI_DROP_RING, 1);
        return;
    }
    *to = (struct kept){.part = part};
    memcpy(to->row, row, row->size);
    used += size_of(to);
}

static void note_end(uint32_t serial, uint64_t part)
{
    for (size_t at = 0; at < used;) {
        struct kept *kept = (struct kept *)(room + at);
        const struct tfi_rec_thread *thread = (const struct tfi_rec_thread *)kept->row;
        if (thread->rec.kind == TFI_KIND_thread && thread->serial == serial) kept->ended = part;
        at += size_of(kept);
    }
}

void tfi_definitions_note(const void *rows, size_t bytes, uint64_t part)
{
    const uint8_t *at = rows, *end = at + bytes;
    while (room && (size_t)(end - at) >= sizeof(struct tfi_rec)) {
        const struct tfi_rec *row = (const struct tfi_rec *)at;
        if (row->size < sizeof *row || row->size > end - at) return;
        if (is_definition(row->kind)) keep_row(row, part);
        else if (row->kind == TFI_KIND_thread_end)
            note_end(((const struct tfi_rec_thread_end *)(const void *)row)->serial, part);
        at += row->size;
    }
}

void tfi_definitions_forget(uint64_t first)
{
    size_t to = 0;
    if (used < TFI_DEFINITIONS_BYTES / 4) return;
    for (size_t at = 0; at < used;) {
        const struct kept *kept = (const struct kept *)(room + at);
        size_t bytes = size_of(kept);
        bool over = kept->ended && kept->ended < first;
        if (!over) memmove(room + to, kept, bytes);
        if (!over) to += bytes;
        at += bytes;
    }
    used = to;
}

size_t tfi_definitions_copy(uint8_t *to, bool (*is_gone)(uint64_t part), uint32_t *count)
{
    size_t bytes = 0;
    *count = 0;
    for (size_t at = 0; at < used;) {
        const struct kept *kept = (const struct kept *)(room + at);
        at += size_of(kept);
        if (!is_gone(kept->part)) continue;
        memcpy(to + bytes, kept->row, row_of(kept)->size);
        bytes += row_of(kept)->size;
        ++*count;
    }
    return bytes;
}
