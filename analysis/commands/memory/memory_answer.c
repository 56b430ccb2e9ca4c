/* memory_answer.c - prints what rows of several layouts of `memory` have in common. */
#include "commands/memory/memory_answer.h"

#include "commands/memory/memory_values.h"

bool memory_row_begin(struct memory_answer *a)
{
    a->rows++;
    if (a->session->options.top && a->shown >= a->session->options.top) return false;
    a->shown++;
    emit_row(&a->session->emit);
    return true;
}

void memory_emit_process(struct memory_answer *a)
{
    emit_known(&a->session->emit, "rank", a->process->rank);
    emit_known(&a->session->emit, "pid", a->process->pid);
}

/* The time of what is older than the recording, and of a snapshot that tells none, is unknown. */
void memory_emit_moment(struct memory_answer *a, int64_t time, bool is_older)
{
    struct emit *e = &a->session->emit;
    if (is_older || !a->process->has_time) emit_null(e, "time_us");
    else emit_us(e, "time_us", time - a->session->model.start);
}

void memory_emit_pool(struct memory_answer *a, uint32_t pool)
{
    emit_memory_device(&a->session->emit, a->changes.pool[pool].device);
    emit_name(&a->session->emit, &a->session->model.names, "allocator", a->changes.pool[pool].allocator);
}
