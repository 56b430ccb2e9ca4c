/* exact_parts.h - the parts of a critical path by the exact rules: threads, device work, and waits. */
#ifndef TFA_CRITICAL_EXACT_PARTS_H
#define TFA_CRITICAL_EXACT_PARTS_H

#include "ask/choice.h"
#include "ask/critical/critical.h"

/* A piece of work that must end before another one begins, or before a call ends. */
struct critical_after {
    uint32_t after, work; /* after: a work's index or an event's number */
};

struct critical_afters {
    struct critical_after *one;
    size_t count, capacity;
};

struct exact {
    struct critical_path *path;
    const struct process *process;
    const struct names *names;
    const struct attribution *attribution;
    struct interval window;
    const struct choice *choice;
    uint32_t *event_of_span, *event_of_call, *event_of_work; /* NO_PLACE: not in the window */
    struct host_rows rows;
    struct host_tops tops;
    bool *known;                         /* by event: it is known what this call waits for */
    struct critical_afters works, hosts; /* what each work waits for, and each event of the host */
};

/* ---- exact_follow.c ---- */
/* Finds what calls and works wait for, by our own calls. */
void exact_follow(struct exact *x);
/* ---- exact_waits.c ---- */
/* Finds it where exact_follow did not: by the profiler's waits, or by the times. */
void exact_waits(struct exact *x);
/* Returns when a work was launched; its own start if that is unknown. */
int64_t exact_launched(const struct exact *x, uint32_t work);
/* Notes that a call of the host waits for a work; NO_PLACE: for none that is known. The call has waited if the work
 * ended after the call's start. */
void exact_host_waits(struct exact *x, uint32_t event, uint32_t work);
void exact_after(struct critical_afters *afters, uint32_t after, uint32_t work);
/* ---- exact_threads.c ---- */
/* Joins the outermost events of the threads. */
void exact_threads(struct exact *x);
/* ---- exact_peers.c ---- */
/* Finds the times in which the host is in a collective and computes nothing, after host_edges. */
void exact_peers(struct exact *x);
/* ---- exact_works.c ---- */
/* Adds the edges between works, and between works and calls. */
void exact_works(struct exact *x);

#endif
