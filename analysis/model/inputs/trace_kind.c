/* trace_kind.c - tells whose trace a process was read from. */
#include "model/inputs/trace_kind.h"

#include <string.h>

#include "model/model.h"

bool is_of_kineto(const struct process *process)
{
    return strcmp(process->kind, "kineto") == 0;
}

bool is_of_snapshot(const struct process *process)
{
    return strcmp(process->kind, "snapshot") == 0;
}

bool is_of_dftracer(const struct process *process)
{
    return strcmp(process->kind, "dftracer") == 0;
}

bool is_of_others(const struct process *process)
{
    return is_of_kineto(process) || is_of_dftracer(process);
}
