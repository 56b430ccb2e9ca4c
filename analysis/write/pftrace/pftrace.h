/* pftrace.h - writes a trace for Perfetto as protobuf: TracePackets with TrackEvents. */
#ifndef TFA_PFTRACE_H
#define TFA_PFTRACE_H

#include "model/model.h"
#include "read/kineto.h"
#include "write/out.h"

/* A receiver of the events of an export, in the form of a Chrome trace. Times are those of the model. */
struct event_taker {
    void *context;
    void (*begin)(void *context, const struct process *process, int64_t pid); /* pid: of the process in the events */
    void (*event)(void *context, const struct kineto_event *event);
    void (*end)(void *context);
    /* Gets a member of a PyTorch trace beside its events; may be NULL. */
    void (*member)(void *context, struct slice key, struct slice value);
    bool only_kept; /* it gets no event that the loader counts as lost */
};

/* The file. */
struct pftrace {
    struct out *out; /* open */
    struct pf *pf;   /* the process that is written, if any */
    uint64_t tracks, flows, sequences;
    struct clock_shift shift; /* moves the times of the process that is written */
    struct map pids;          /* pids in use */
    uint64_t events, unknown; /* events written; events whose phase has no form in a Perfetto trace */
    bool failed;              /* already reported */
};

void pftrace_open(struct pftrace *file, struct out *out);
struct event_taker pftrace_taker(struct pftrace *file);
void pftrace_close(struct pftrace *file);

#endif
