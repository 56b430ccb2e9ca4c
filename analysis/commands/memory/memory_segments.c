/* memory_segments.c - reports what the segments of torch's allocator hold: in use, free, and free but not to be given back. */
#include <stdlib.h>

#include "commands/memory/memory_answer.h"
#include "commands/memory/memory_values.h"

/* The segments of one device, type, pool and stream. */
struct fragments {
    const struct memory_segment *segment; /* the first one */
    uint64_t segments, reserved, allocated, active, requested, largest_free, split, releasable;
};

static int by_group(const void *a, const void *b)
{
    const struct memory_segment *x = *(const struct memory_segment *const *)a,
                                *y = *(const struct memory_segment *const *)b;
    if (x->device != y->device) return by_number(x->device, y->device);
    if (x->is_small != y->is_small) return x->is_small ? 1 : -1;
    for (int i = 0; i < 2; i++)
        if (x->pool[i] != y->pool[i]) return x->pool[i] < y->pool[i] ? -1 : 1;
    if (x->stream != y->stream) return x->stream < y->stream ? -1 : 1;
    return 0;
}

/* torch calls free blocks of a segment that has others too an inactive split: empty_cache() gives none of them back. */
static void take_segment(struct fragments *f, const struct memory_segment *segment)
{
    f->segments++;
    f->reserved += segment->total;
    f->allocated += segment->allocated;
    f->active += segment->active;
    f->requested += segment->requested;
    f->largest_free = MAX(f->largest_free, segment->largest_free);
    if (segment->blocks > 1) f->split += segment->total - MIN(segment->total, segment->active);
    if (!segment->active) f->releasable += segment->total;
}

static void emit_fragments(struct memory_answer *a, const struct fragments *f)
{
    struct emit *e = &a->session->emit;
    uint64_t inactive = f->reserved - MIN(f->reserved, f->active);
    a->sums[0] += f->reserved;
    a->sums[1] += f->allocated;
    a->sums[2] += inactive;
    a->sums[3] += f->split;
    if (!memory_row_begin(a)) return;
    memory_emit_process(a);
    emit_memory_device(e, f->segment->device);
    emit_text(e, "segment_type", f->segment->is_small ? "small" : "large");
    emit_open(e, "pool", true);
    for (int i = 0; i < 2; i++) emit_count(e, NULL, f->segment->pool[i]);
    emit_close(e);
    emit_count(e, "stream", f->segment->stream);
    emit_count(e, "segments", f->segments);
    emit_bytes(e, "reserved_bytes", f->reserved);
    emit_bytes(e, "allocated_bytes", f->allocated);
    emit_bytes(e, "active_bytes", f->active);
    emit_bytes(e, "requested_bytes", f->requested);
    emit_bytes(e, "free_bytes", inactive);
    emit_bytes(e, "largest_free_bytes", f->largest_free);
    emit_bytes(e, "inactive_split_bytes", f->split);
    emit_bytes(e, "releasable_bytes", f->releasable);
    emit_row_end(e);
}

void memory_answer_segments(struct memory_answer *a)
{
    const struct process *p = a->process;
    const struct memory_segment **segment = mem_zero(p->segments, sizeof *segment);
    size_t count = 0;
    for (size_t i = 0; i < p->segments; i++)
        if (list_has(&a->choice->options->device, p->segment[i].device)) segment[count++] = &p->segment[i];
    if (count) qsort(segment, count, sizeof *segment, by_group);
    for (size_t i = 0; i < count;) {
        struct fragments fragments = {.segment = segment[i]};
        while (i < count && by_group(&segment[i], &fragments.segment) == 0) take_segment(&fragments, segment[i++]);
        emit_fragments(a, &fragments);
    }
    free(segment);
}
