/* export_write.h - the state of an export of .tfr traces, and the functions by which its files share the work. */
#ifndef TFA_EXPORT_WRITE_H
#define TFA_EXPORT_WRITE_H

#include "ask/choice.h"
#include "ask/scope.h"
#include "write/emit.h"
#include "write/export/export_tfr.h"
#include "write/work_rows.h"

struct export
{
    const struct tfr_export *asked;
    const struct selection *chosen;
    struct out *out;            /* the file; NULL: events are taken */
    struct event_values values; /* of the current event, if events are taken */
    struct emit e;              /* writes to `out` or makes `values` */
    const struct process *process;
    struct text
        *taken;    /* of a merged file: receives the pids of the process; NULL: the file is of this process alone */
    int64_t place; /* of a merged file: place of the process in the order of rows */
    int64_t pid;   /* pid in the file, unique per process */
    int64_t base, from, to;
    struct tfr_shared *shared; /* of the process */
    const struct scope *scope; /* shared->scope */
    bool whole;                /* the whole process is written, not only some stages */
    struct stage_paths paths;  /* set unless `whole`: links over the chosen stages */
    struct map pids;           /* pids in use, including those of devices */
    int64_t *device_pid;       /* pids of the process's devices */
    struct map device_of;      /* index into `device_pid` by device number */
    size_t devices;
    uint64_t events, pairs, arrows;
    uint64_t operators, forwards, indexes; /* next numbers: ids of operators, ids of arrows between them, `Ev Idx` */
    struct work_rows rows;                 /* rows of overlapping work */
    uint64_t pythons;                      /* the last `Python id` */
    uint64_t calls, most;                  /* added to correlation ids, and the largest one written */
    struct map json;                       /* by text: 1 if it is JSON */
};

/* ---- export_wanted.c ---- */
/* True if this stage is chosen, or a stage around it that was open at `time`. */
bool is_inside(const struct export *x, uint32_t stage, int64_t time);
/* A stage counts as inside itself, even with zero length. */
bool wants_range(const struct export *x, size_t i);
/* True if an event at this time on this thread is to be written. */
bool is_wanted(const struct export *x, uint32_t thread, int64_t start, int64_t end);
/* The same for a call. --device and --stream choose it by the work it launched. `span`: its index in spans, or
 * NO_PLACE. */
bool is_wanted_call(const struct export *x, uint32_t thread, int64_t start, int64_t end, uint32_t span);
/* True if a record launched at that time is to be written. Device work, and calls that launched some, have rules of
 * their own. */
bool is_chosen(const struct export *x, int64_t launched);

/* ---- export_event.c ---- */
uint32_t tid_of(const struct export *x, uint32_t serial);
/* True if the file has this process alone. */
bool is_alone(const struct export *x);
int64_t free_pid(struct export *x, int64_t pid);
void put_correlation(struct export *x, uint64_t id);
/* Returns the name of a range. A step's name has its number and is built in `*step`; the caller frees its text. */
const struct name *range_name(const struct export *x, size_t range, struct name *step);
void begin_event(struct export *x, const char *phase);
void end_event(struct export *x);
void put_place(struct export *x, int64_t pid, uint64_t tid, int64_t time);
void put_metadata(struct export *x, const char *name, int64_t pid, uint64_t tid, const char *key, const char *text,
                  int64_t number);

/* ---- range_crossings.c ---- */
/* Finds the ranges that cross another range, a call or an operator of their thread, and give way to it. */
void find_crossings(struct tfr_shared *shared);

/* ---- export_device.c ---- */
/* Writes the file's `deviceProperties`, for the devices of all processes. */
void put_device_properties(struct export *x);
/* Writes the descriptions of the process's devices and their rows. */
void put_devices(struct export *x);
/* Writes calls that only the device library recorded. */
void put_spans(struct export *x);
/* Writes kernels, copies, sets and waits, and the arrows from their launches. */
void put_works(struct export *x);
/* Writes the samples of devices as counters. */
void put_samples(struct export *x);

/* ---- event_waits.c ---- */
/* Finds the calls that recorded the events that others wait for. */
void find_event_waits(struct tfr_shared *shared);
/* Returns the correlation id of a call; NO_ID: it has none. */
uint64_t id_of_call(const struct tfr_shared *shared, uint32_t call);
/* Returns the name by which readers of Kineto's traces find the record of an event that is waited for: that of the runtime.
 * NULL: the call has it, or nothing waits for what it recorded. The caller frees it. */
char *name_of_record(const struct tfr_shared *shared, uint32_t call);

/* ---- export_python.c ---- */
/* Writes Python functions and modules. */
void put_python(struct export *x);

/* ---- export_samples.c ---- */
/* Writes sampled stacks of Python. */
void put_stack_samples(struct export *x);

/* ---- export_ops.c ---- */
bool wants_operator(const struct export *x, size_t span);
/* Finds what the pipeline said of ranges. */
void find_details(struct tfr_shared *shared);
/* Writes it for one range, if there is any. */
void put_range_details(struct export *x, size_t range);
/* Writes the arguments of an operator or a range under Kineto's names. Unknown ones are left out. */
void put_inputs(struct export *x, const struct op_detail *inputs);
void put_operators(struct export *x);
/* Finds the operator around each launching call. */
void find_launchers(struct tfr_shared *shared);
/* Writes the external id of an event that operator `op` launched; nothing for NO_PLACE. */
void put_external_id(struct export *x, uint32_t op);
/* Writes arrows from forward operators to backward operators. */
void put_forwards(struct export *x);
void put_blocks(struct export *x);
/* Writes calls on files, with the names that dftracer gives their arguments. */
void put_ios(struct export *x);
/* Writes stages that left their threads, from entry to exit. */
void put_wholes(struct export *x);
/* Writes the run's metadata as members of the file; objects and lists stay JSON. */
void put_given(struct export *x, const struct pairs *metadata);
void put_distributed(struct export *x, const struct process *process, int64_t rank);

#endif
