/* replayed.h - gives the work of replayed graphs to the operators in the trace of the capture (model/replays).
 *
 * torch gives it to whatever launched the graph. Only the trace of another run, which the user gave or laid beside this
 * one, changes that. An operator of a capture is then called once in each replay. It has no host time, and the operators
 * around it include its work. */
#ifndef TFA_OPS_REPLAYED_H
#define TFA_OPS_REPLAYED_H

#include "ask/ops/addition.h"

struct replayed_ops {
    struct op_rows *rows;
    const struct process *process;
    struct map seen; /* calls of operators, by launch and operator */
};

/* Counts the replayed work of a process. */
void replayed_ops_count(struct op_rows *rows, const struct process *process);
/* True if the work belongs to an operator of another trace. */
bool is_of_capture(const struct process *process, size_t work);
/* Adds the work to that operator and to those around it. `work` has the time and its place in the order; its name and
 * its key are not read. */
void replayed_ops_add(struct replayed_ops *replayed, size_t number, const struct addition *work, size_t process);
void replayed_ops_free(struct replayed_ops *replayed);

#endif
