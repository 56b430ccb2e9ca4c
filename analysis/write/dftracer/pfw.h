/* pfw.h - writes a trace in dftracer's format: one event in a line, with hashes for files and hosts. */
#ifndef TFA_PFW_H
#define TFA_PFW_H

#include "model/model.h"
#include "write/out.h"
#include "write/event.h"
#include "read/json/clean.h"

/* The file. */
struct pfw {
    struct out *out; /* open */
    const struct process *process;
    struct clock_shift shift; /* moves the times of the process that is written */
    uint64_t id;              /* of the next line */
    uint64_t events, left_out;
    char host[17];      /* hash of the process's host */
    struct names texts; /* texts that have a hash in the file */
    struct map hashed;  /* index in `hash`, by the name of a text */
    uint64_t *hash;
    size_t hashes, hash_capacity;
    struct map taken;                    /* hashes in use */
    struct text category;                /* of the current event, if it is not its own */
    struct out args;                     /* of the current event, if they must become strict JSON */
    struct event_values arguments, said; /* of an event of a file, and what its program told dftracer of it */
    struct strict strict;
    struct map pair_of; /* index in `half`, by the id of a pair that began */
    struct half {
        int64_t start;
        char *args; /* NULL: none, or the pair is complete */
    } * half;
    size_t halves, half_capacity;
};

void pfw_open(struct pfw *file, struct out *out);
struct event_taker pfw_taker(struct pfw *file);
void pfw_close(struct pfw *file);

#endif
