/* background.c - runs the recorder's only thread, which does the jobs that tfinject.c names, one piece at a time.
 *
 * The first closed chunk, or a job that needs it, starts the thread, which blocks all signals. The fork handler ends
 * it, so that the process has no second thread of ours at the fork; the next closed chunk starts it again.
 */
#include "record/background.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/process.h"
#include "base/sys.h"
#include "record/thread.h"

#define LONGEST_MS 60000u

static const struct tfi_job *const *jobs;
static unsigned nr_jobs;

static struct {
    struct tfi_lock lock; /* held while starting or stopping the thread */
    pthread_t thread;
    bool running; /* started and not joined */
    uint32_t stop;
    uint32_t forking;
    uint32_t signal; /* futex: counts calls of tfi_background_signal() */
    uint64_t cpu_ns;
} background;

void tfi_background_init(const struct tfi_job *const *all, unsigned count)
{
    jobs = all;
    nr_jobs = count;
}

void tfi_background_restart(void)
{
    background.lock = (struct tfi_lock){0};
    background.stop = background.forking = 0;
    background.running = false;
    background.cpu_ns = 0;
}

uint64_t tfi_background_cpu_ns(void)
{
    return background.cpu_ns;
}

static bool work(void)
{
    for (unsigned i = 0; i < nr_jobs; i++)
        if (jobs[i]->work()) return true;
    return false;
}

static void sleep_until(uint32_t seen)
{
    unsigned ms = LONGEST_MS;
    for (unsigned i = 0; i < nr_jobs; i++)
        if (jobs[i]->wait) ms = jobs[i]->wait(ms);
    tfi_futex_wait(&background.signal, seen, ms);
}

static void *run(void *unused)
{
    struct timespec cpu;
    (void)unused;
    tfi_inside = 1;
    prctl(PR_SET_NAME, "tfinject", 0, 0, 0);
    tfi_register_barrier();
    for (;;) {
        uint32_t seen = __atomic_load_n(&background.signal, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&background.stop, __ATOMIC_ACQUIRE)) return NULL;
        if (work()) continue;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
        background.cpu_ns = (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec;
        sleep_until(seen);
    }
}

static bool create(void)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 512u << 10);
    bool ok = pthread_create(&background.thread, &attributes, run, NULL) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}

bool tfi_background_start(void)
{
    if (__atomic_load_n(&background.forking, __ATOMIC_ACQUIRE)) return false;
    bool stopping = __atomic_load_n(&background.stop, __ATOMIC_ACQUIRE);
    if (__atomic_load_n(&background.running, __ATOMIC_ACQUIRE) && !stopping) return true;
    if (tfi_getpid() != tfi_trace_pid) return false; /* a child's thread would keep its parent from ending it */
    if (!tfi_lock_within(&background.lock, 0)) return false;
    /* A thread that did not end in time for a fork, because a write hung, must be gone before the next one starts. */
    if (background.running && stopping) background.running = pthread_tryjoin_np(background.thread, NULL) != 0;
    if (!background.running && !background.forking) {
        background.stop = 0;
        __atomic_store_n(&background.running, create(), __ATOMIC_RELEASE);
    }
    bool ok = background.running && !background.stop;
    tfi_unlock(&background.lock);
    return ok;
}

void tfi_background_signal(void)
{
    __atomic_add_fetch(&background.signal, 1, __ATOMIC_RELEASE);
    tfi_futex_wake(&background.signal);
}

bool tfi_background_stop(unsigned ms)
{
    struct timespec end;
    bool ended = true;
    if (!tfi_lock_within(&background.lock, ms)) return false;
    if (background.running) {
        __atomic_store_n(&background.stop, 1, __ATOMIC_RELEASE);
        tfi_background_signal();
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += ms / 1000;
        end.tv_nsec += (long)(ms % 1000) * 1000000;
        if (end.tv_nsec >= 1000000000) {
            end.tv_sec++;
            end.tv_nsec -= 1000000000;
        }
        ended = pthread_timedjoin_np(background.thread, NULL, &end) == 0;
        __atomic_store_n(&background.running, !ended, __ATOMIC_RELEASE);
    }
    tfi_unlock(&background.lock);
    return ended;
}

bool tfi_background_is_calling(void)
{
    for (unsigned i = 0; i < nr_jobs; i++)
        if (jobs[i]->calling && jobs[i]->calling()) return true;
    return false;
}

void tfi_background_before_fork(void)
{
    __atomic_store_n(&background.forking, 1, __ATOMIC_SEQ_CST);
    tfi_background_stop(50);
}

void tfi_background_after_fork(void)
{
    __atomic_store_n(&background.forking, 0, __ATOMIC_RELEASE);
}
