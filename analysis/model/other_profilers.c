/* other_profilers.c - pairs the records of another profiler taking and leaving the device into periods.
 *
 * A period without an end lasts to the end of the process. Records may come from anywhere, so a record that repeats
 * the current state is ignored.
 */
#include "model/other_profilers.h"

void elsewheres_pair(struct process *process)
{
    size_t count = 0;
    bool open = false;
    for (size_t i = 0; i < process->elsewheres; i++) {
        struct elsewhere record = process->elsewhere[i];
        if (record.begins == open) continue;
        open = record.begins;
        if (open) {
            record.to = INT64_MAX;
            process->elsewhere[count++] = record;
        } else {
            process->elsewhere[count - 1].to = record.from;
        }
    }
    process->elsewheres = count;
}

uint32_t elsewhere_between(const struct process *process, int64_t start, int64_t end)
{
    size_t low = 0, high = process->elsewheres;
    while (low < high) { /* the first period that ends after the start */
        size_t middle = (low + high) / 2;
        if (process->elsewhere[middle].to > start) high = middle;
        else low = middle + 1;
    }
    return low < process->elsewheres && process->elsewhere[low].from < end ? process->elsewhere[low].who : NAME_NONE;
}
