/* kineto_keep.h - keeps the events of a Kineto trace in the tables of the model that questions need. */
#ifndef TFA_KINETO_KEEP_H
#define TFA_KINETO_KEEP_H

#include "model/kineto/kineto_comm.h"
#include "model/kineto/kineto_info.h"
#include "model/kineto/kineto_npu.h"
#include "model/kineto/kineto_rows.h"
#include "model/health/kineto_judge.h"
#include "model/health/kineto_rules.h"
#include "model/load/load_kineto.h"
#include "model/load/name_cache.h"

enum { CATEGORY_CACHE = 64, MOST_CATEGORIES = 4096 };

/* A category of the file. */
struct tally {
    char *name;
    size_t length;
    enum event_class event_class;
    bool is_pairs; /* arrows from forward to backward operators */
    bool is_npu;   /* tasks of an NPU, or arrows from operators to them */
    bool is_span;  /* an event of the profiler, not of the program */
    uint64_t count;
};

struct kineto_load {
    struct names *names;
    struct process *process;
    struct needs needs;
    struct tally *kind;
    size_t kinds, kind_capacity;
    struct names kind_names;             /* name numbers are indices in `kind` */
    uint32_t kind_cache[CATEGORY_CACHE]; /* index + 1 in `kind` */
    struct name_cache name_cache;
    struct threads_seen threads;
    struct kineto_info info;
    struct kineto_comm comm;
    struct npu_tasks npu;
    struct faults faults;
    const struct kineto_damage *damage; /* of the reading that is under way */
    uint64_t other_phase;               /* events of an unknown phase */
    uint32_t events;                    /* events before the current one */
    struct map demangled;               /* demangled kernel names, by the names in the file */
    struct kineto_judge judge;
    struct kineto_rules rules;
    struct kineto_rows rows;
    struct kineto_parts **parts; /* receives the processes of a file that holds several */
};

void keep_range(struct kineto_load *load, const struct kineto_event *event, uint32_t thread);
void keep_span(struct kineto_load *load, const struct kineto_event *event, uint32_t thread,
               enum event_class event_class);
void keep_work(struct kineto_load *load, const struct kineto_event *event, enum event_class event_class);
void keep_forward(struct kineto_load *load, const struct kineto_event *event, uint32_t thread);
/* Keeps a range over which CUPTI counted. */
void keep_counters(struct kineto_load *load, const struct kineto_event *event);

#endif
