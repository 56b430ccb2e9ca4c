/* load_startup.c - loads what a process did to start: pieces, and phases of compilation. */
#include "model/load/load.h"

void load_startup(struct load *load)
{
    struct startup *s = &load->process->startup;
    const uint64_t *name = load_column(load, COL_startup_name), *time = load_column(load, COL_startup_time);
    const uint64_t *duration = load_column(load, COL_startup_duration), *own = load_column(load, COL_startup_own);
    const uint64_t *what = load_column(load, COL_startup_what), *depth = load_column(load, COL_startup_depth);
    const uint64_t *tid = load_column(load, COL_startup_tid);
    s->piece = mem_grow(s->piece, &s->piece_capacity, s->pieces + load_rows(load), sizeof *s->piece);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        struct startup_piece *piece = &s->piece[s->pieces++];
        *piece = (struct startup_piece){.start = (int64_t)time[i],
                                        .end = load_end(time[i], duration[i]),
                                        .name = load_name(load, name[i]),
                                        .what = (uint32_t)what[i],
                                        .depth = (uint32_t)depth[i],
                                        .tid = (uint32_t)tid[i]};
        piece->own = load_end(time[i], own[i]); /* an end until the times are converted */
    }
}

static uint32_t name_or_none(struct load *load, uint64_t string)
{
    return string ? load_name(load, string) : NAME_NONE;
}

void load_compile(struct load *load)
{
    struct startup *s = &load->process->startup;
    const uint64_t *name = load_column(load, COL_compile_name), *time = load_column(load, COL_compile_time);
    const uint64_t *duration = load_column(load, COL_compile_duration), *id = load_column(load, COL_compile_id);
    const uint64_t *frame = load_column(load, COL_compile_frame), *reason = load_column(load, COL_compile_reason);
    s->phase = mem_grow(s->phase, &s->phase_capacity, s->phases + load_rows(load), sizeof *s->phase);
    for (uint32_t i = 0; i < load_rows(load); i++)
        s->phase[s->phases++] = (struct compile_phase){.start = (int64_t)time[i],
                                                       .end = load_end(time[i], duration[i]),
                                                       .name = load_name(load, name[i]),
                                                       .id = name_or_none(load, id[i]),
                                                       .frame = name_or_none(load, frame[i]),
                                                       .reason = name_or_none(load, reason[i]),
                                                       .thread = load->piece->thread};
}
