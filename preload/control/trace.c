/* trace.c - gives the trace its place: the run directory of this process, and an unused name there. */
#include "control/trace.h"

#include <errno.h>

#include "base/fmt.h"
#include "base/process.h"
#include "base/sys.h"
#include "control/config.h"
#include "control/rank.h"
#include "record/writer.h"

struct tfi_dir tfi_trace_dir;
char tfi_trace_name[TFI_NAME_BYTES];

#define MOST (1u << 20) /* traces of one process */

static bool is_taken(const char *name)
{
    static const char *const endings[] = {".tfr", ".tfr.live", ".timing.json"};
    char full[TFI_NAME_BYTES];
    for (size_t i = 0; i < TFI_COUNT(endings); i++) {
        tfi_fmt(full, sizeof full, "%s%s", name, endings[i]);
        if (tfi_dir_has(&tfi_trace_dir, full)) return true;
    }
    return false;
}

/* Sets the name with a number; true if no file of a trace has it. */
static bool is_free(unsigned n)
{
    char number[16] = "";
    if (n > 1) tfi_fmt(number, sizeof number, ".%u", n);
    tfi_fmt(tfi_trace_name, sizeof tfi_trace_name, "rank%u.%s.%u%s", tfi_rank(), tfi_host(), (unsigned)tfi_trace_pid,
            number);
    return !is_taken(tfi_trace_name);
}

/* Returns a number after which names are free, as if they had been given without a gap: a process that executes one
 * program after the other looks at few names only. */
static unsigned first_free(void)
{
    unsigned taken = 0, free = 1;
    while (free < MOST && !is_free(free)) {
        taken = free;
        free *= 2;
    }
    while (free - taken > 1) {
        unsigned middle = taken + (free - taken) / 2;
        if (is_free(middle)) free = middle;
        else taken = middle;
    }
    return free;
}

/* Creates the trace's file. If the name is taken (exec keeps the pid), appends a number: nothing is overwritten. */
static bool create(void)
{
    char file[TFI_NAME_BYTES];
    for (unsigned n = first_free(); n < MOST; n++) {
        if (n > 1 && !is_free(n)) continue; /* the first one was looked at just now */
        tfi_fmt(file, sizeof file, "%s.tfr", tfi_trace_name);
        if (tfi_writer_open(&tfi_trace_dir, file, tfi_config.max_mb)) return true;
        if (errno != EEXIST) return false;
    }
    return false;
}

bool tfi_trace_create(void)
{
    tfi_trace_name[0] = 0;
    return tfi_run_dir_make(&tfi_trace_dir) && create();
}
