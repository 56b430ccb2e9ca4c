/* background.c - runs the recorder's background thread, which does the jobs that tfinject.c names, one piece at a time.
 *
 * The first closed chunk, or a job that needs it, starts the thread (worker.c). The fork handler ends it; the next
 * closed chunk starts it again, or the next clock record if a job needs it all the time. It wakes once a second to see
 * whether the program still has a thread, and otherwise ends the process.
 */
#include "record/background.h"

#include "base/sys.h"
#include "record/worker.h"

#define LONGEST_MS 1000u

static const struct tfi_job *const *jobs;
static unsigned nr_jobs;
static bool kept; /* a job needs the thread all the time */

static void loop(struct tfi_worker *self);
static struct tfi_worker background = {.loop = loop};

void tfi_background_init(const struct tfi_job *const *all, unsigned count)
{
    jobs = all;
    nr_jobs = count;
}

void tfi_background_restart(void)
{
    tfi_worker_restart(&background);
    kept = false;
}

static bool work(void)
{
    for (unsigned i = 0; i < nr_jobs; i++)
        if (jobs[i]->work()) return true;
    return false;
}

static unsigned longest_sleep(void)
{
    unsigned ms = LONGEST_MS;
    for (unsigned i = 0; i < nr_jobs; i++)
        if (jobs[i]->wait) ms = jobs[i]->wait(ms);
    return ms;
}

unsigned tfi_job_wait(uint64_t next, unsigned most)
{
    uint64_t now = tfi_monotonic_ms();
    return next > now + most ? most : next > now ? (unsigned)(next - now) : 1;
}

static void loop(struct tfi_worker *self)
{
    int status;
    for (;;) {
        uint32_t seen = tfi_worker_signals(self);
        if (tfi_worker_must_stop(self)) return;
        if (work()) continue;
        if (tfi_worker_is_left_alone(self, &status)) {
            tfi_worker_end_process(self, status);
            return;
        }
        tfi_worker_sleep(self, seen, longest_sleep());
    }
}

bool tfi_background_start(void)
{
    return tfi_worker_start(&background);
}

void tfi_background_keep(void)
{
    __atomic_store_n(&kept, true, __ATOMIC_RELAXED);
    tfi_background_start();
}

void tfi_background_again(void)
{
    if (__atomic_load_n(&kept, __ATOMIC_RELAXED)) tfi_background_start();
}

void tfi_background_signal(void)
{
    tfi_worker_signal(&background);
}

bool tfi_background_stop(unsigned ms)
{
    return tfi_worker_stop(&background, ms);
}

bool tfi_background_is_calling(void)
{
    for (unsigned i = 0; i < nr_jobs; i++)
        if (jobs[i]->calling && jobs[i]->calling()) return true;
    return false;
}

void tfi_background_before_fork(void)
{
    tfi_worker_before_fork(&background, 50);
}

void tfi_background_after_fork(void)
{
    tfi_worker_after_fork(&background);
}
