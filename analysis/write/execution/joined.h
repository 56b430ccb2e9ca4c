/* joined.h - writes an execution trace of PyTorch again, with the times and the device work of its functions. */
#ifndef TFA_JOINED_H
#define TFA_JOINED_H

#include "ask/execution/functions.h"
#include "model/model.h"
#include "read/trace.h"
#include "write/out.h"

struct joined_counts {
    uint64_t nodes;     /* of functions, so with an rf_id */
    uint64_t joined;    /* of these: have times now */
    uint64_t repeated;  /* of these: an earlier node has their rf_id, and the device work */
    uint64_t unmatched; /* no function of the trace has their rf_id */
    uint64_t misnamed;  /* the function with their rf_id has another name */
    uint64_t timed;     /* had times before, and are unchanged */
    uint64_t bad;       /* items of the list that are no nodes */
    uint64_t works;     /* nodes of device work */
    uint64_t bare;      /* of these: without the inputs, outputs and attributes of their function */
};

struct joining {
    const struct names *names;
    const struct process *process;
    const struct functions *functions;
    int64_t base;           /* taken from all times */
    struct execution_span { /* of the ids in the file */
        int64_t largest;
        int64_t pid;
    } span;
};

/* Reads the file once: learns what the writing has to know, and whether it is usable. */
bool joined_look(const char *path, struct joining *joining, struct notes *notes);
/* Reads it again, and writes it. */
bool joined_write(struct out *out, const char *path, const struct joining *joining, struct joined_counts *counts);

#endif
