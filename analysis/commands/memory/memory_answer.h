/* memory_answer.h - what the layouts of `memory` share while they answer about one process. */
#ifndef TFA_MEMORY_ANSWER_H
#define TFA_MEMORY_ANSWER_H

#include "ask/memory/assign.h"
#include "ask/memory/pictures.h"
#include "commands/session.h"

/* The answer about one process. */
struct memory_answer {
    struct session *session;
    const struct process *process;
    struct scope *scope;
    const struct choice *choice;
    bool attributed; /* blocks have their stages */
    struct memory_reading reading;
    struct memory_walk changes;
    uint64_t rows, shown; /* of all processes; shown: those that --top lets through */
    uint64_t sums[4];     /* totals, by layout */
    bool lacks_blocks;    /* those outside the selected stages are in no trace */
    bool lacks_totals;    /* so that the largest of all is unknown */
    struct pictures pictures;
    struct assigned assigned;
    struct assigned_walk *walk; /* NULL: the categories of blocks are unknown */
    struct assigned_walk walks;
};

/* Counts a row; returns false if --top leaves it out. */
bool memory_row_begin(struct memory_answer *a);
void memory_emit_process(struct memory_answer *a);
void memory_emit_moment(struct memory_answer *a, int64_t time, bool is_older);
void memory_emit_pool(struct memory_answer *a, uint32_t pool);

/* ---- memory_holders.c ---- */
void memory_answer_leaks(struct memory_answer *a);
void memory_answer_refused(struct memory_answer *a);

/* ---- memory_segments.c ---- */
void memory_answer_segments(struct memory_answer *a);

#endif
