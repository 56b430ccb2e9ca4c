/* process_start.h - what a process did to start: its interpreter, its imports, the models it loaded, what it compiled. */
#ifndef TFA_MODEL_STARTUP_H
#define TFA_MODEL_STARTUP_H

#include <stddef.h>
#include <stdint.h>

/* With `startup`. Pieces of one thread may lie in each other: `depth` counts those around one. */
struct startup_piece {
    int64_t start, end;
    int64_t own; /* its time without the pieces inside it */
    uint32_t name, what, depth, tid;
};

/* A phase of compilation: torch.compile, Inductor, Triton. Phases of one thread lie in each other. */
struct compile_phase {
    int64_t start, end;
    uint32_t name, id, frame, reason; /* id: frame/attempt; frame: function and place; reason: of a recompilation */
    uint32_t thread;                  /* serial */
};

struct startup {
    struct startup_piece *piece; /* sorted by start, the outer one first */
    size_t pieces, piece_capacity;
    struct compile_phase *phase; /* likewise */
    size_t phases, phase_capacity;
};

void startup_sort(struct startup *startup);
void startup_free(struct startup *startup);

#endif
