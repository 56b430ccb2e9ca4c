/* cupti_worker.c - a simulated CUPTI: flushes, and CUPTI's own thread.
 *
 * The thread runs only if a switch needs it: a flush period, late buffers, or callbacks from the thread alone.
 */
#include <errno.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "cupti_sim.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake, served;
static uint64_t asked, answered;
static unsigned how;
static uint32_t period;
static bool started, nudged;
static __thread bool am_worker;

bool sim_is_worker(void)
{
    return am_worker;
}

static bool by_thread(void)
{
    return sim_nasty(NASTY_thread) != 0;
}

/* Needs the lock. Waits for a request, or until the period is over. */
static void rest(void)
{
    uint32_t ms = sim_nasty(NASTY_late) ? 1 : period;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (asked == answered && !nudged)
        if (!ms) pthread_cond_wait(&wake, &lock);
        else if (pthread_cond_timedwait(&wake, &lock, &until) == ETIMEDOUT) return;
}

static void *work(void *unused)
{
    am_worker = true;
    pthread_mutex_lock(&lock);
    for (;;) {
        rest();
        uint64_t ticket = asked;
        unsigned now = ticket != answered ? how : 0;
        how = 0;
        nudged = false;
        pthread_mutex_unlock(&lock);
        sim_internal_call();
        sim_drain(DRAIN_WAIT | now);
        pthread_mutex_lock(&lock);
        answered = ticket;
        pthread_cond_broadcast(&served);
    }
    return unused;
}

void sim_worker_start(void)
{
    if (!by_thread() && !sim_nasty(NASTY_late) && !period) return;
    pthread_mutex_lock(&lock);
    if (!started) {
        pthread_t thread;
        pthread_condattr_t attr;
        sigset_t all, old;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&wake, &attr);
        pthread_cond_init(&served, NULL);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        started = pthread_create(&thread, NULL, work, NULL) == 0;
        if (started) pthread_detach(thread);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    if (started) pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
}

void sim_worker_nudge(void)
{
    pthread_mutex_lock(&lock);
    nudged = true;
    if (started) pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
}

static uint64_t load(const uint64_t *count)
{
    return __atomic_load_n(count, __ATOMIC_RELAXED);
}

void sim_flush_period(uint32_t ms)
{
    pthread_mutex_lock(&lock);
    period = ms;
    pthread_mutex_unlock(&lock);
    sim_worker_start();
}

static void ask_worker(unsigned flags)
{
    sim_worker_start();
    pthread_mutex_lock(&lock);
    how |= flags;
    uint64_t ticket = ++asked;
    pthread_cond_signal(&wake);
    while (answered < ticket) pthread_cond_wait(&served, &lock);
    pthread_mutex_unlock(&lock);
}

void sim_worker_call(void)
{
    uint64_t held = load(&sim_counts.requested) - load(&sim_counts.refused) - load(&sim_counts.returned);
    if (sim_in_callback()) return;
    if (!held && sim_queue_length(false)) ask_worker(0);
    else if (sim_queue_length(false) > 64) sim_worker_nudge();
}

CUptiResult sim_flush(bool forced)
{
    int (*ended)(void) = NULL;
    if (sim_nasty(NASTY_ended)) *(void **)&ended = sim_driver("simgpu_ended");
    if (ended && ended()) return CUPTI_ERROR_NOT_INITIALIZED;
    if (!sim_registered()) return CUPTI_ERROR_INVALID_OPERATION;
    if (sim_in_callback()) {
        sim_say("simcupti: FlushAll in a buffer callback; the real one hangs here\n");
        return CUPTI_ERROR_INVALID_OPERATION;
    }
    unsigned flags = DRAIN_FLUSH | (forced ? DRAIN_FORCED : 0);
    uint64_t start = sim_stamp(sim_monotonic()), before = load(&sim_counts.returned);
    sim_trap_flush(forced);
    if (by_thread()) ask_worker(flags);
    else sim_drain(DRAIN_WAIT | flags);
    while (sim_nasty(NASTY_block) && __atomic_load_n(&sim_counts.requested, __ATOMIC_RELAXED) == 0) pause();
    if (load(&sim_counts.returned) != before && sim_wants(CUPTI_ACTIVITY_KIND_OVERHEAD, 0)) {
        struct sim_item *item = sim_item(ITEM_OVERHEAD, CUPTI_ACTIVITY_KIND_OVERHEAD, (uint64_t)pthread_self());
        CUpti_ActivityOverhead3 *o = &item->overhead;
        o->kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
        o->overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH;
        o->objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
        o->objectId.pt.processId = (uint32_t)getpid();
        o->objectId.pt.threadId = sim_thread_id((uint64_t)pthread_self(), (uint32_t)gettid());
        o->start = start;
        o->end = sim_stamp(sim_monotonic());
        sim_queue(item);
    }
    return CUPTI_SUCCESS;
}
