/* kineto_info.h - reads what a Kineto trace says about its process: rank, host, devices, threads and their names.
 *
 * The loader of dftracer's traces counts threads and faults here too.
 */
#ifndef TFA_KINETO_INFO_H
#define TFA_KINETO_INFO_H

#include "model/model.h"
#include "read/kineto.h"
#include "read/kineto_parts.h"

/* Threads by pid and tid; `table` is a hash table of index + 1. */
struct threads_seen {
    struct thread_seen {
        int64_t pid, tid;
        uint64_t events;
    } * seen;
    size_t count, capacity;
    uint32_t *table;
    size_t table_size;
    size_t last; /* index of the previous event's thread */
};
/* Returns the serial of an event's thread, and extends the thread's lifetime by the event. */
uint32_t threads_take(struct threads_seen *threads, struct process *process, struct names *names,
                      const struct kineto_event *event);
/* Sets the pid of the process: the one with most events. */
void threads_conclude(struct threads_seen *threads, struct process *process);
void threads_free(struct threads_seen *threads);

/* Why an event of another profiler is left out. */
enum event_fault { NO_TIME, NO_DURATION, NEGATIVE_DURATION, BAD_TIME, NO_FAULT };
struct faults {
    uint64_t count[NO_FAULT], place[NO_FAULT]; /* place: of the first one in the JSON, plus 1; 0: unknown */
};
/* Reports the events left out, by fault. */
void faults_conclude(const struct faults *faults, struct process *process, struct notes *notes);

struct kineto_info {
    int64_t base; /* nanoseconds since 1970 */
    bool bad_base;
    bool with_flops;     /* the profile counted operations; Kineto does not write the counts */
    int64_t rank, world; /* value + 1; 0: unknown */
    char *host;
    bool is_merge;      /* of our `merge` */
    struct text merged; /* its list of inputs, as it stands in the file, padded */
    bool is_part;       /* the file holds other processes too, and labels name them */
    struct text pairs;  /* keys and values, each with a zero, as pairs_parse reads them */
    struct label {
        int64_t pid, tid;
        bool is_process;
        char *text;
    } * label;
    size_t labels, label_capacity;
};
void info_take_member(struct kineto_info *info, struct slice key, struct slice value);
void info_take_event(struct kineto_info *info, const struct kineto_event *event);
/* Takes what a merge of several processes says of one of them. */
void info_take_part(struct kineto_info *info, const struct kineto_part *part);
/* Returns the name of the process with a pid, as the file has it; NULL if it has none. */
const char *info_process_name(const struct kineto_info *info, int64_t pid);
void info_conclude(struct kineto_info *info, struct names *names, struct process *process, struct notes *notes);
void info_free(struct kineto_info *info);

#endif
