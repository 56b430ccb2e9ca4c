/* events.h - the events of a process whose starts and ends are the nodes of a critical path's graph. */
#ifndef TFA_CRITICAL_EVENTS_H
#define TFA_CRITICAL_EVENTS_H

#include "ask/critical/graph.h"
#include "model/model.h"

enum critical_source { FROM_SPAN, FROM_WORK, FROM_RANGE, FROM_CALL };

struct critical_event {
    int64_t start, end;
    uint32_t place; /* index in the process's spans, works, ranges or calls */
    uint8_t source; /* enum critical_source */
    bool loads;     /* it waits for a batch of a DataLoader */
    bool waits;     /* it waits for the device: its own time does not count */
    bool is_leaf;   /* no other event of its thread is inside; set by host_edges */
};

struct critical_events {
    struct critical_event *event;
    size_t count, capacity;
};

/* Returns the number of the event. */
uint32_t critical_event(struct critical_events *events, struct critical_event event);
int64_t critical_time(const struct critical_events *events, uint32_t node);

/* ---- the events of host threads ---- */

/* A row of a thread. Rows are nested by their times: a row that ends closes the one that was opened last. */
struct host_row {
    int64_t start, end;
    uint32_t thread; /* threads come in the order of these numbers */
    uint32_t event;  /* of two rows with equal times the one with the smaller number is outside */
};

struct host_rows {
    struct host_row *row;
    size_t count, capacity;
};

/* An event in no other event of its thread. */
struct host_top {
    uint32_t thread, event;
};

struct host_tops {
    struct host_top *top; /* by thread, in order */
    size_t count, capacity;
};

void host_row(struct host_rows *rows, struct host_row row);
/* Adds the edges between nested events. `tops` receives the outermost ones. */
void host_edges(struct critical_graph *graph, struct critical_events *events, struct host_rows *rows,
                struct host_tops *tops);

#endif
