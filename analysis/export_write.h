/* export_write.h - what the files share that write our own traces as Chrome traces: export_tfr.c, export_device.c and
 * export_ops.c. */
#ifndef TFA_EXPORT_WRITE_H
#define TFA_EXPORT_WRITE_H

#include "choice.h"
#include "export_tfr.h"
#include "stage_at.h"

struct export
{
    const struct tfr_export *asked;
    const struct session *session;
    struct emit e;
    const struct process *process;
    int64_t pid; /* in the file: no two processes share one */
    int64_t base, from, to;
    bool *crosses;      /* by range: must not be drawn as a box */
    uint32_t *launcher; /* by span: the operator that made this launch, a place in spans, or NO_PLACE */
    struct attribution attribution;
    bool whole;                 /* all of the process is asked for, not only what lies in some stages */
    struct stage_finder finder; /* unless it is whole */
    struct stage_paths paths;   /* over those that are asked for, unless it is whole */
    struct choice choice;       /* steps, cycles, devices and streams */
    struct map pids;            /* that are taken, devices' ones too */
    int64_t *device_pid;        /* of the process's devices, by place in `device` */
    struct map device_of;       /* places in `device_pid` */
    size_t devices;
    uint64_t events, pairs, arrows;
    uint64_t operators, forwards, indexes; /* numbers given out: ids of operators, of arrows between them, `Ev Idx` */
    struct map json;                       /* texts: 1 if they are JSON */
};

/* ---- export_tfr.c ---- */
/* Some stage of those asked for was open there: this one, or one around it. */
bool is_inside(const struct export *x, uint32_t stage, int64_t time);
/* What lies there on a thread is to be written. */
bool is_wanted(const struct export *x, uint32_t thread, int64_t start, int64_t end);
/* The same of a call, which --device and --stream choose by what it launched; `span`: its place in spans, or NO_PLACE. */
bool is_wanted_call(const struct export *x, uint32_t thread, int64_t start, int64_t end, uint32_t span);
/* A record launched at that time is to be written; device work and the calls that launched it are asked otherwise. */
bool is_chosen(const struct export *x, int64_t launched);
uint32_t tid_of(const struct export *x, uint32_t serial);
int64_t free_pid(struct export *x, int64_t pid);
void begin_event(struct export *x, const char *phase);
void end_event(struct export *x);
void put_place(struct export *x, int64_t pid, uint64_t tid, int64_t time);
void put_metadata(struct export *x, const char *name, int64_t pid, uint64_t tid, const char *key, const char *text,
                  int64_t number);

/* ---- export_device.c ---- */
/* The `deviceProperties` of the file: of all processes' devices. */
void put_device_properties(struct export *x);
/* Which devices the process has, and their rows. */
void put_devices(struct export *x);
/* Calls that only the device library's records tell of. */
void put_spans(struct export *x);
/* Kernels, copies, sets and waits, and the arrows from their launches. */
void put_works(struct export *x);

/* ---- export_ops.c ---- */
/* Arguments of an operator, or a range, as Kineto names them; those that are not known are left out. */
void put_inputs(struct export *x, const struct op_detail *inputs);
void put_operators(struct export *x);
/* Which calls operators launched work with. */
void find_launchers(struct export *x);
/* Of what an operator launched; NO_PLACE: of none. */
void put_external_id(struct export *x, uint32_t operator);
/* Arrows from forward operators to backward ones. */
void put_forwards(struct export *x);
void put_blocks(struct export *x);
/* Stages that left their threads, from entry to exit. */
void put_wholes(struct export *x);
/* What was said about the run, as members of the file: JSON where it is some. */
void put_given(struct export *x, const struct pairs *metadata);
void put_distributed(struct export *x, const struct process *process, int64_t rank);

#endif
