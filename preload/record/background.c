/* background.c - runs the library's two threads, which do the jobs that tfinject.c names, one piece at a time.
 *
 * The background thread packs and appends chunks, and does all else that only needs this library. The first closed
 * chunk, or a job that needs it, starts it (worker.c), in any hook. The calling thread does the jobs that call other
 * libraries, such as CUPTI. Only hooks of their functions start it, because that takes locks of libc.
 * The fork handler ends both. After the fork it starts the background thread again if a job needs it all the time, and
 * otherwise the next closed chunk does. It does not start the calling thread, because an allocator's handler may still hold
 * a lock: the next call of its libraries does, and the next clock record if a job needs the thread all the time.
 * Each wakes once a second to see whether the program still has a thread, and otherwise ends the process.
 */
#include "record/background.h"

#include "base/sys.h"
#include "record/worker.h"

#define LONGEST_MS 1000u
#define FORK_MS 50u

/* A thread and its jobs. */
struct crew {
    struct tfi_worker worker; /* the first member: its loop finds the crew */
    const struct tfi_job *const *jobs;
    unsigned nr_jobs;
    bool kept; /* a job needs the thread all the time */
};

static void loop(struct tfi_worker *self);
static struct crew background = {.worker = {.loop = loop}}, caller = {.worker = {.loop = loop, .calls_others = true}};

void tfi_background_init(const struct tfi_job *const *own, unsigned nr_own, const struct tfi_job *const *calling,
                         unsigned nr_calling)
{
    background.jobs = own;
    background.nr_jobs = nr_own;
    caller.jobs = calling;
    caller.nr_jobs = nr_calling;
}

void tfi_background_restart(void)
{
    tfi_worker_restart(&background.worker);
    tfi_worker_restart(&caller.worker);
    background.kept = caller.kept = false;
}

static bool work(const struct crew *crew)
{
    for (unsigned i = 0; i < crew->nr_jobs; i++)
        if (crew->jobs[i]->work()) return true;
    return false;
}

static void end_jobs(const struct crew *crew)
{
    for (unsigned i = 0; i < crew->nr_jobs; i++)
        if (crew->jobs[i]->last) crew->jobs[i]->last();
}

static unsigned longest_sleep(const struct crew *crew)
{
    unsigned ms = LONGEST_MS;
    for (unsigned i = 0; i < crew->nr_jobs; i++)
        if (crew->jobs[i]->wait) ms = crew->jobs[i]->wait(ms);
    return ms;
}

unsigned tfi_job_wait(uint64_t next, unsigned most)
{
    uint64_t now = tfi_monotonic_ms();
    return next > now + most ? most : next > now ? (unsigned)(next - now) : 1;
}

static void loop(struct tfi_worker *self)
{
    const struct crew *crew = (const struct crew *)self;
    int status;
    for (;;) {
        uint32_t seen = tfi_worker_signals(self);
        if (tfi_worker_must_stop(self)) {
            end_jobs(crew);
            return;
        }
        if (work(crew)) continue;
        if (tfi_worker_is_left_alone(self, &status)) {
            tfi_worker_end_process(self, status);
            return;
        }
        tfi_worker_sleep(self, seen, longest_sleep(crew));
    }
}

static bool start(struct crew *crew)
{
    return tfi_worker_start(&crew->worker);
}

static void keep_crew(struct crew *crew)
{
    __atomic_store_n(&crew->kept, true, __ATOMIC_RELAXED);
}

static void start_if_kept(struct crew *crew)
{
    if (__atomic_load_n(&crew->kept, __ATOMIC_RELAXED)) start(crew);
}

/* ---- the background thread ---- */

bool tfi_background_start(void)
{
    return start(&background);
}

void tfi_background_keep(void)
{
    keep_crew(&background);
    start(&background);
}

static void start_bare_again(void)
{
    start_if_kept(&background);
    for (unsigned i = 0; i < background.nr_jobs; i++)
        if (background.jobs[i]->again) background.jobs[i]->again();
}

/* The calling thread is kept only where NVML is asked for. */
void tfi_background_again(void)
{
    start_if_kept(&caller);
    start_bare_again();
}

void tfi_background_signal(void)
{
    tfi_worker_signal(&background.worker);
}

bool tfi_background_stop(unsigned ms)
{
    return tfi_worker_end(&background.worker, ms);
}

/* ---- the calling thread ---- */

bool tfi_caller_start(void)
{
    return start(&caller);
}

void tfi_caller_keep(void)
{
    keep_crew(&caller);
    start(&caller);
}

void tfi_caller_signal(void)
{
    tfi_worker_signal(&caller.worker);
}

bool tfi_caller_stop(unsigned ms)
{
    return tfi_worker_end(&caller.worker, ms);
}

bool tfi_caller_is_calling(void)
{
    for (unsigned i = 0; i < caller.nr_jobs; i++)
        if (caller.jobs[i]->calling && caller.jobs[i]->calling()) return true;
    return false;
}

/* ---- fork ---- */

void tfi_background_before_fork(void)
{
    tfi_worker_before_fork(&caller.worker, FORK_MS);
    tfi_worker_before_fork(&background.worker, FORK_MS);
}

void tfi_background_after_fork(void)
{
    tfi_worker_after_fork(&caller.worker);
    tfi_worker_after_fork(&background.worker);
    start_bare_again();
}
