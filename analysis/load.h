/* load.h - what the files share that turn the records of our traces into the model: load_tfr.c, load_threads.c, load_ops.c
 * and load_device.c.
 *
 * A function takes a group, all records of one kind in a chunk, and asks for the columns it needs before it keeps anything.
 */
#ifndef TFA_LOAD_H
#define TFA_LOAD_H

#include "model.h"
#include "stacks.h"

/* When a thread lived, in ticks. Device libraries know threads by the low half of pthread_self(), which is used again. */
struct lifetime {
    uint32_t pthread, serial;
    uint64_t start, end;
};

struct lifetimes {
    struct lifetime *life;
    size_t count, capacity;
    struct map end_of; /* place + 1 in `end`, by serial */
    uint64_t *end;
    size_t ends, end_capacity;
};

struct sync_place {
    uint32_t work, context;
    int64_t stream;
};

/* An operator with a sequence number: a forward one, or a backward one that names the thread of its forward one. */
struct op_link {
    int64_t sequence, time;
    uint32_t span, thread; /* thread: of the forward operator */
    bool is_backward;
};

struct load {
    struct trace *trace;
    struct names *names;
    struct process *process;
    struct reader reader;
    unsigned want;
    const struct piece *piece;
    struct group *group;
    uint64_t *zeros; /* as many as the largest group had records */
    size_t zero_capacity;
    uint64_t drops[TFI_MAX_DROPS];
    struct map name_of_tid; /* strings */
    struct lifetimes lifetimes;
    struct map shown;    /* names of kernels by their strings */
    struct map stack_of; /* call stacks by their strings */
    struct shown_frames shown_frames;
    uint64_t bad_stacks;     /* those that make no sense, wholly or in part */
    struct sync_place *sync; /* waits: their device is known by their context, once all is read */
    size_t syncs, sync_capacity;
    struct map device_of; /* by context */
    struct op_link *link;
    size_t links, link_capacity;
    uint64_t last_clock; /* ticks */
    uint64_t unknown;    /* records of kinds that not even the file describes */
    uint64_t budget;     /* records a file of this size can hold */
};

/* A column of the group at hand; zeros if the file has none. */
const uint64_t *load_column(struct load *load, unsigned own);
/* Records of the group that can be used: none once a column of it was found to make no sense. */
uint32_t load_rows(const struct load *load);
uint32_t load_name(struct load *load, uint64_t string);
/* NULL unless details are wanted. */
const uint64_t *load_detail_column(struct load *load, unsigned own);
uint32_t load_func(struct load *load, uint64_t string);

/* ---- load_threads.c ---- */
/* All is read. */
void lifetimes_sort(struct lifetimes *lifetimes);
/* The serial of the thread that was alive then, 0 if none is known. */
uint32_t lifetimes_find(const struct lifetimes *lifetimes, uint32_t pthread, uint64_t time);
void lifetimes_free(struct lifetimes *lifetimes);
void load_threads(struct load *load);
void load_thread_ends(struct load *load);
void load_thread_names(struct load *load);
/* Gives threads the names that records of the kind thread_name have for them; after the last chunk. */
void load_name_threads(struct load *load);

/* ---- load_ops.c ---- */
void load_operators(struct load *load);
/* What torch's ranges were given, of the group of range_begin at hand; `id` is its column. Traces of before
   ranges had inputs have no such columns. */
void load_range_inputs(struct load *load, const uint64_t *id);
void load_blocks(struct load *load);
void load_ooms(struct load *load);
void load_stage_memory(struct load *load);
void load_pauses(struct load *load);
void load_resumes(struct load *load);
void load_signatures(struct load *load);
void load_metadata(struct load *load);
void load_switchings(struct load *load);
void load_elsewheres(struct load *load); /* elsewhere.c */
void load_elsewheres_end(struct load *load);
/* All is read: forward operators and backward ones find each other. */
void load_operators_end(struct load *load);
void load_switchings_end(struct load *load);

/* ---- load_device.c ---- */
void load_device(struct load *load);
void load_correlations(struct load *load);
void load_kernels(struct load *load);
void load_copies(struct load *load);
void load_sets(struct load *load);
void load_syncs(struct load *load);
void load_graph_launches(struct load *load);
void load_stage_devices(struct load *load);
/* All is read: threads of calls are known now. */
void load_devices_end(struct load *load, struct notes *notes);

/* ---- load_graphs.c ---- */
void load_graph_nodes(struct load *load);
void load_graph_sources(struct load *load);
/* The last work ran as a node; graph 0: it did not. */
void load_graph_work(struct load *load, size_t work, uint64_t graph, uint64_t node);

#endif
