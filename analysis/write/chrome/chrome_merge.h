/* chrome_merge.h - writes the traces of several processes into one Chrome trace, one process after the other.
 *
 * Nothing but descriptions of processes stays in memory: a Kineto trace passes event by event, a trace of ours must be
 * loaded while it is written. Pids, ids of arrows, correlation ids and ids of operators are unique in the file. The
 * member `inputs`, behind the events, has the members of each input, the pids of its rows and the shift of its clock.
 */
#ifndef TFA_CHROME_MERGE_H
#define TFA_CHROME_MERGE_H

#include "ask/ranks/one_clock.h"
#include "write/event.h"

struct merged_process {
    const struct process *process;
    struct process_clock clock;
    struct text pids; /* of its rows, as JSON values with commas between them */
    uint64_t events;  /* written, without descriptions of rows */
    uint64_t invalid; /* events left out: they are not valid JSON */
    struct merged_member {
        char *key, *value;
        size_t length;
    } * member; /* of a Kineto trace: the members beside its events */
    size_t members, member_capacity;
};

struct merged {
    struct out *out;
    int64_t base;    /* the file's time 0, in nanoseconds of the common clock */
    uint64_t events; /* written, with descriptions of rows */
    uint64_t ids;    /* all ids below this are in use */
    struct map pids; /* pids in use */
    struct merged_process *one;
    size_t count;
    size_t member_bytes; /* in memory */
    uint64_t lost_members;
};

/* Place of a process's rows: below those of earlier processes. */
enum { ROWS_OF_PROCESS = 8192, ROW_DEVICES = 1024 };

struct selection;
/* Writes the head. `chosen` and `clock` list the same processes; `order` has places in both, in the order of writing. */
void merged_begin(struct merged *file, struct out *out, const char *artefact, const struct selection *chosen,
                  const struct one_clock *clock, const size_t *order);
/* Ends the events, and writes the inputs. */
void merged_end(struct merged *file, const struct selection *chosen, const struct one_clock *clock);
void merged_free(struct merged *file);

/* ---- rows of one Kineto trace: kineto_merge.c ---- */
/* Returns a receiver that writes events with the ids, the rows and the times of the merged file, and keeps members for
 * merged_end. Its `end` frees it. */
struct event_taker rewriting_taker(struct merged *file, size_t place);

#endif
