/* memory_holders.c - reports who holds memory: what is never freed, and what was in use when a request was refused. */
#include <math.h>

#include "ask/memory/holders.h"
#include "ask/stages/stage_at.h"
#include "commands/memory/memory_answer.h"
#include "commands/memory/memory_values.h"

/* ---- leaks ---- */

void memory_answer_leaks(struct memory_answer *a)
{
    struct emit *e = &a->session->emit;
    struct holders rows;
    a->reading.by_kind = true;
    memory_walk_init(&a->changes, &a->reading);
    memory_leaks(&rows, a->choice, &a->changes);
    for (size_t i = 0; i < rows.count; i++) {
        const struct holder *row = &rows.holder[i];
        a->sums[0] += row->outliving_blocks;
        a->sums[1] += row->outliving_bytes;
        a->sums[2] += row->unfreed_blocks;
        a->sums[3] += row->unfreed_bytes;
        if (!memory_row_begin(a)) continue;
        emit_stage(e, names_get(&a->session->model.names, row->stage));
        memory_emit_process(a);
        memory_emit_pool(a, row->pool);
        emit_memory_kind(e, a->changes.pool[row->pool].kind);
        emit_count(e, "blocks", row->blocks);
        emit_bytes(e, "bytes", row->bytes);
        emit_count(e, "outliving_blocks", row->outliving_blocks);
        emit_bytes(e, "outliving_bytes", row->outliving_bytes);
        emit_count(e, "leaked_blocks", row->unfreed_blocks);
        emit_bytes(e, "leaked_bytes", row->unfreed_bytes);
        emit_frames(e, &a->session->model.names, row->stack);
        emit_row_end(e);
    }
    memory_walk_free(&a->changes);
    holders_free(&rows);
}

/* ---- refused requests ---- */

/* A trace may have any number of stacks. Text and sorted rows are held in memory as a whole. */
enum { MOST_HOLDERS = 10000 /* of one request, without --top */ };

static void emit_request(struct memory_answer *a, const struct refusal *refusal, uint32_t stage)
{
    const struct blocks *b = &a->process->ooms;
    const struct model *model = &a->session->model;
    struct emit *e = &a->session->emit;
    emit_row(e);
    memory_emit_process(a);
    memory_emit_moment(a, b->time[refusal->request], false);
    emit_memory_device(e, refusal->device);
    emit_name(e, &model->names, "allocator", b->allocator[refusal->request]);
    if (b->bytes[refusal->request] > 0) emit_bytes(e, "requested_bytes", (uint64_t)b->bytes[refusal->request]);
    else emit_null(e, "requested_bytes");
    emit_bytes(e, "allocated_bytes", refusal->in_use);
    emit_total_bytes(e, "reserved_bytes", b->reserved[refusal->request]);
    emit_total_bytes(e, "device_free_bytes", is_of_snapshot(a->process) ? b->other[refusal->request] : TOTAL_UNKNOWN);
    emit_name(e, &model->names, "requesting_stage", stage);
}

static void emit_holder(struct memory_answer *a, const struct refusal *refusal, const struct holder *holder)
{
    struct emit *e = &a->session->emit;
    emit_stage(e, names_get(&a->session->model.names, holder->stage));
    emit_count(e, "blocks", holder->blocks);
    emit_bytes(e, "bytes", holder->bytes);
    emit_pct(e, "pct", refusal->in_use ? 100.0 * (double)holder->bytes / (double)refusal->in_use : NAN);
    emit_frames(e, &a->session->model.names, holder->stack);
    emit_row_end(e);
}

/* Emits the memory beyond the known blocks: it is older than the recording, or was not recorded. */
static void emit_unknown(struct memory_answer *a, const struct refusal *refusal)
{
    struct emit *e = &a->session->emit;
    uint64_t bytes = refusal->in_use > refusal->known ? refusal->in_use - refusal->known : 0;
    emit_null(e, "stage");
    emit_null(e, "blocks");
    emit_bytes(e, "bytes", bytes);
    emit_pct(e, "pct", refusal->in_use ? 100.0 * (double)bytes / (double)refusal->in_use : NAN);
    emit_null(e, "stack");
    emit_row_end(e);
}

void memory_answer_refused(struct memory_answer *a)
{
    const struct blocks *b = &a->process->ooms;
    uint64_t asked = a->session->options.top, top = asked ? asked : MOST_HOLDERS, left = 0;
    struct refusals refusals;
    memory_walk_init(&a->changes, &a->reading);
    memory_refusals(&refusals, a->choice, &a->changes);
    for (size_t i = 0; i < refusals.count; i++) {
        const struct refusal *refusal = &refusals.refusal[i];
        uint32_t at = stage_at(&a->scope->attribution.finder, b->thread[refusal->request], b->time[refusal->request]);
        uint32_t stage = at == NO_PLACE ? a->choice->outside : a->process->ranges.name[at];
        for (size_t k = 0; k < refusal->holders && k < top; k++) {
            emit_request(a, refusal, stage);
            emit_holder(a, refusal, &refusal->holder[k]);
        }
        bool has_unknown = a->choice->outside_wanted && (refusal->known < refusal->in_use || !refusal->holders);
        if (has_unknown) {
            emit_request(a, refusal, stage);
            emit_unknown(a, refusal);
        }
        a->rows += refusal->holders + has_unknown;
        left += !asked && refusal->holders > top ? refusal->holders - top : 0;
    }
    if (left)
        complain(a->process->path,
                 "%llu smaller holders of refused requests have no row: the %d largest of each do; --top N shows N",
                 (unsigned long long)left, MOST_HOLDERS);
    a->sums[0] += refusals.all;
    a->sums[1] += refusals.count;
    memory_walk_free(&a->changes);
    refusals_free(&refusals);
}
