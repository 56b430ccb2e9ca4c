/* nccl_script.c - SIMNCCL_SCRIPT: ranks that come late, never, or with another operation, and what the plugin is told.
 *
 * A line is `rank function sequence fault`; the first that matches counts. Rank and sequence are numbers or *, function
 * is a glob (AllReduce). The fault is one of `delay MS` (the call first waits that long), `lose` (the rank's kernel and
 * its later ones in the communicator never meet the other ranks) and `mismatch` (the rank comes with another count).
 * `rank function sequence plan ALGORITHM PROTOCOL CHANNELS WARPS` is what the profiler plugin is told; RING LL 1 3 where
 * no such line matches. `newest N` is the newest version of the plugin that this NCCL knows, 3 to 6 (6).
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
    struct choice choice; /* of `plan` */
};
static struct line lines[MAX_LINES];
static size_t nr_lines;
static int newest = 6;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    const char *path = getenv("SIMNCCL_SCRIPT");
    FILE *f = path && *path ? fopen(path, "re") : NULL;
    char text[256];
    if (path && *path && !f) simnccl_say("simnccl: the script %s can't be read\n", path);
    while (f && nr_lines < MAX_LINES && fgets(text, sizeof text, f)) {
        struct line *l = &lines[nr_lines];
        struct choice *c = &l->choice;
        if (sscanf(text, "newest %d", &newest) == 1) continue;
        int n = sscanf(text, "%15s %31s %23s %15s %lf", l->rank, l->function, l->sequence, l->fault, &l->ms);
        if (n >= 4 && strcmp(l->fault, "plan") == 0)
            n = sscanf(text, "%*s %*s %*s %*s %31s %31s %d %d", c->algorithm, c->protocol, &c->channels, &c->warps);
        if (n >= 4) nr_lines++;
        else if (n > 0) simnccl_say("simnccl: a line of the script is not understood: %s", text);
    }
    if (f) fclose(f);
}

static bool is(const char *pattern, uint64_t number)
{
    return strcmp(pattern, "*") == 0 || strtoull(pattern, NULL, 10) == number;
}

static bool matches(const struct line *l, const struct task *task)
{
    return is(l->rank, (uint64_t)task->comm->rank) && is(l->sequence, task->sequence) &&
           fnmatch(l->function, simnccl_name(task->function), 0) == 0;
}

enum fault simnccl_fault(const struct task *task, uint64_t *delay)
{
    pthread_once(&once, load);
    for (size_t i = 0; i < nr_lines; i++) {
        const struct line *l = &lines[i];
        if (strcmp(l->fault, "plan") == 0 || !matches(l, task)) continue;
        *delay = (uint64_t)(l->ms * 1e6);
        if (strcmp(l->fault, "delay") == 0) return FAULT_DELAY;
        return strcmp(l->fault, "lose") == 0 ? FAULT_LOSE : FAULT_MISMATCH;
    }
    return FAULT_NONE;
}

void simnccl_choice(const struct task *task, struct choice *choice)
{
    pthread_once(&once, load);
    *choice = (struct choice){"RING", "LL", 1, 3};
    for (size_t i = 0; i < nr_lines; i++) {
        if (strcmp(lines[i].fault, "plan") != 0 || !matches(&lines[i], task)) continue;
        *choice = lines[i].choice;
        return;
    }
}

int simnccl_newest_plugin(void)
{
    pthread_once(&once, load);
    return newest;
}
