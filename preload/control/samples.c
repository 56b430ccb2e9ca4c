/* samples.c - samples the process over time: its threads, its memory and that of its cgroup.
 *
 * The first sample is taken at wake, the last one at the end, and between them the background thread takes one each second
 * while it runs: nothing on the program's path.
 */
#include "control/samples.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/files.h"
#include "base/process.h"
#include "base/sys.h"
#include "control/machine.h"
#include "record/background.h"
#include "record/clock.h"
#include "record/thread.h"
#include "record/worker.h"
#include "record/writer.h"

#define INTERVAL_MS 1000u
#define LOCK_MS 500u

/* Numbers of fields in /proc/self/stat; see proc(5). */
enum { FIELD_STATE = 3, FIELD_THREADS = 20, FIELD_PAGES = 24 };

static struct tfi_lock lock;             /* of all below */
static char cgroup[TFI_PATH_BYTES + 64]; /* the file that has its memory; empty: none */
static struct tfi_thread lane;
static uint32_t gen;  /* of the trace */
static uint64_t next; /* tfi_monotonic_ms() of the next sample; 0: none */

/* Parses the fields of /proc/self/stat that are wanted; false if they are not there. */
static bool parse(char *text, size_t bytes, struct tfi_rec_process_sample *sample)
{
    static uint64_t page;
    char *at = memrchr(text, ')', bytes);
    if (!page) page = getauxval(AT_PAGESZ);
    for (int field = FIELD_STATE - 1; at && field < FIELD_PAGES; field++) {
        at = strchr(at, ' ');
        if (at) at++;
        if (at && field + 1 == FIELD_THREADS) sample->threads = (uint32_t)strtoul(at, NULL, 10);
    }
    if (at) sample->resident = strtoul(at, NULL, 10) * page;
    return at != NULL;
}

static bool read_sample(struct tfi_rec_process_sample *sample)
{
    static char text[1024];
    ssize_t bytes = tfi_read_file("/proc/self/stat", text, sizeof text);
    sample->time = tfi_ticks();
    if (bytes <= 0 || !parse(text, (size_t)bytes, sample)) return false;
    uint32_t own = tfi_workers_alive();
    sample->threads -= own < sample->threads ? own : 0;
    bytes = *cgroup ? tfi_read_file(cgroup, text, sizeof text) : -1;
    sample->cgroup = bytes > 0 ? strtoul(text, NULL, 10) : 0;
    return true;
}

static void take_sample(struct tfi_thread *to)
{
    struct tfi_rec_process_sample sample = {0};
    if (read_sample(&sample))
        TFI_WRITE(to, process_sample, .threads = sample.threads, .time = sample.time, .resident = sample.resident,
                  .cgroup = sample.cgroup);
    __atomic_store_n(&next, tfi_monotonic_ms() + INTERVAL_MS, __ATOMIC_RELAXED);
}

static bool work(void)
{
    uint64_t due = __atomic_load_n(&next, __ATOMIC_RELAXED);
    if (!due || tfi_monotonic_ms() < due || !tfi_lock_within(&lock, 0)) return false;
    tfi_lane_open(&lane, gen);
    take_sample(&lane);
    tfi_unlock(&lock);
    return false;
}

static unsigned wait_at_most(unsigned most)
{
    uint64_t due = __atomic_load_n(&next, __ATOMIC_RELAXED);
    return due ? tfi_job_wait(due, most) : most;
}

const struct tfi_job tfi_samples_job = {.work = work, .wait = wait_at_most};

/* ---- the life of the process ---- */

void tfi_samples_awake(struct tfi_thread *t)
{
    if (!tfi_lock_within(&lock, 0)) return;
    gen = t->gen;
    if (!tfi_machine_cgroup_memory(cgroup, sizeof cgroup)) *cgroup = 0;
    take_sample(t);
    tfi_unlock(&lock);
}

bool tfi_samples_finish(void)
{
    if (!tfi_lock_within(&lock, LOCK_MS)) return false;
    struct tfi_rec_process_sample last = {.rec = {TFI_KIND_process_sample, sizeof last}};
    bool is_read = next && read_sample(&last);
    __atomic_store_n(&next, 0, __ATOMIC_RELAXED);
    tfi_lane_close(&lane);
    if (is_read) tfi_writer_append_last(&last, sizeof last); /* the lane's chunk would start the background thread */
    tfi_unlock(&lock);
    return true;
}

void tfi_samples_restart(void)
{
    lock = (struct tfi_lock){0};
    lane.gen = 0;
    next = 0;
}
