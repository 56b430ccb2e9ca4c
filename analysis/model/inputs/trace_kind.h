/* trace_kind.h - tells whose trace a process was read from. */
#ifndef TFA_TRACE_KIND_H
#define TFA_TRACE_KIND_H

#include <stdbool.h>

struct process;

/* Tell whether the process was read from a PyTorch trace, from a dftracer one, or from a memory snapshot of torch. */
bool is_of_kineto(const struct process *process);
bool is_of_dftracer(const struct process *process);
bool is_of_snapshot(const struct process *process);
/* Tells whether it is a PyTorch or dftracer trace: exports read its file again, event by event, with its own times. */
bool is_of_others(const struct process *process);

#endif
