/* kineto_parts.h - the processes that one trace holds, and to which of them an event belongs.
 *
 * A first reading of the file finds them (model/kineto/kineto_rows.h); later readings go by them and change nothing, so
 * that any number of threads may ask. Ids are unique in a process, never in such a file.
 */
#ifndef TFA_READ_KINETO_PARTS_H
#define TFA_READ_KINETO_PARTS_H

#include "base/util.h"
#include "read/kineto.h"

#define PART_ALL UINT32_MAX  /* of a reading: the events of all processes */
#define PART_OPEN UINT32_MAX /* of a row: each event decides for itself */

/* A row of the file, by its pid as it stands there. */
struct kineto_row {
    int64_t pid;
    char *text;      /* of a pid that is a text and no number; else NULL */
    size_t length;   /* of the text */
    size_t label;    /* bytes of the text that name the process, as "[TP00] " and "rank 1: " do */
    bool has_number; /* `number` is the pid that the process's own trace has */
    int64_t number;
    uint32_t part;     /* PART_OPEN: see kineto_part */
    uint32_t fallback; /* of an open row, if the event does not tell */
};

struct kineto_part {
    int64_t rank, pid;   /* -1: unknown */
    bool is_guessed;     /* the rank is the part's place in the file */
    char *host;          /* NULL: unknown */
    struct text members; /* of our merge: a JSON object with the members of the process's own trace, padded */
};

/* A call that launched work, for works whose row does not name their process. */
struct kineto_launch {
    uint64_t correlation;
    int64_t start;
    uint32_t part;
};

struct kineto_parts {
    struct kineto_row *row;
    size_t rows, row_capacity;
    struct map row_of; /* by hash of the pid; a clash takes the next key */
    struct kineto_part *part;
    size_t count, capacity;
    struct kineto_launch *launch; /* sorted by correlation id and start */
    size_t launches, launch_capacity;
    bool has_limits; /* of times, as in struct stream_way */
    int64_t not_before, not_after;
    bool has_ranks; /* events name their rank, as TraceLens's merges do */
};

/* True if the event is of the row. */
bool is_row_of_text(const struct kineto_row *row, struct slice pid);
static inline bool is_row_of(const struct kineto_row *row, const struct kineto_event *event)
{
    return event->has & HAS_PID ? !row->text && row->pid == event->pid : is_row_of_text(row, event->pid_text);
}
/* Returns the row of an event; NULL if it is unknown. */
struct kineto_row *parts_row(const struct kineto_parts *parts, const struct kineto_event *event);
/* The same, and adds it. */
struct kineto_row *parts_add_row(struct kineto_parts *parts, const struct kineto_event *event);
/* Returns the number of an event's process, and gives the event the pid that it has in the process's own trace. */
uint32_t kineto_part(const struct kineto_parts *parts, struct kineto_event *event);
/* Returns the part of the call that launched a work; PART_OPEN if there is none. */
uint32_t parts_launcher(const struct kineto_parts *parts, uint64_t correlation, int64_t time);
/* Returns the bytes of the label at the start of a text: "[TP00-DP01] ", "rank 3: ", "rank0 "; 0 without one. Sets
 * `rank` to the number behind "rank", else to -1. */
size_t rank_label(struct slice text, int64_t *rank);
/* Returns the rank that TraceLens wrote into the arguments of an event of its merges; -1 if there is none. */
int64_t argument_rank(const struct kineto_event *event);
void parts_free(struct kineto_parts *parts);

#endif
