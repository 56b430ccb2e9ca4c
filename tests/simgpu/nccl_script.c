/* nccl_script.c - the faults in SIMNCCL_SCRIPT: ranks that come late, never, or with another operation.
 *
 * A line is `rank function sequence fault`; the first that matches counts. Rank and sequence are numbers or *, function
 * is a glob (AllReduce). The fault is one of `delay MS` (the call first waits that long), `lose` (the rank's kernel and
 * its later ones in the communicator never meet the other ranks) and `mismatch` (the rank comes with another count).
 */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_sim.h"

#define MAX_LINES 64

struct line {
    char rank[16], function[32], sequence[24], fault[16];
    double ms;
};
static struct line lines[MAX_LINES];
static size_t nr_lines;

static void load(void)
{
    const char *path = getenv("SIMNCCL_SCRIPT");
    FILE *f = path && *path ? fopen(path, "re") : NULL;
    char text[256];
    if (path && *path && !f) simnccl_say("simnccl: the script %s can't be read\n", path);
    while (f && nr_lines < MAX_LINES && fgets(text, sizeof text, f)) {
        struct line *l = &lines[nr_lines];
        int n = sscanf(text, "%15s %31s %23s %15s %lf", l->rank, l->function, l->sequence, l->fault, &l->ms);
        if (n >= 4) nr_lines++;
        else if (n > 0) simnccl_say("simnccl: a line of the script is not understood: %s", text);
    }
    if (f) fclose(f);
}

static bool is(const char *pattern, uint64_t number)
{
    return strcmp(pattern, "*") == 0 || strtoull(pattern, NULL, 10) == number;
}

enum fault simnccl_fault(const struct task *task, uint64_t *delay)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    for (size_t i = 0; i < nr_lines; i++) {
        const struct line *l = &lines[i];
        if (!is(l->rank, (uint64_t)task->comm->rank) || !is(l->sequence, task->sequence)) continue;
        if (fnmatch(l->function, simnccl_name(task->function), 0) != 0) continue;
        *delay = (uint64_t)(l->ms * 1e6);
        if (strcmp(l->fault, "delay") == 0) return FAULT_DELAY;
        return strcmp(l->fault, "lose") == 0 ? FAULT_LOSE : FAULT_MISMATCH;
    }
    return FAULT_NONE;
}
