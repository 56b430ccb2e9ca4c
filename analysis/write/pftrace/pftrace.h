/* pftrace.h - writes a trace for Perfetto as protobuf: TracePackets with TrackEvents. */
#ifndef TFA_PFTRACE_H
#define TFA_PFTRACE_H

#include "model/model.h"
#include "write/event.h"
#include "write/out.h"

/* The file. */
struct pftrace {
    struct out *out; /* open */
    struct pf *pf;   /* the process that is written, if any */
    uint64_t tracks, flows, sequences;
    struct clock_shift shift;      /* moves the times of the process that is written */
    struct map pids;               /* pids in use */
    uint64_t events, unknown;      /* events written; events whose phase has no form in a Perfetto trace */
    struct event_values arguments; /* of the current event, if it is of a file */
    bool failed;                   /* already reported */
};

void pftrace_open(struct pftrace *file, struct out *out);
struct event_taker pftrace_taker(struct pftrace *file);
void pftrace_close(struct pftrace *file);

#endif
