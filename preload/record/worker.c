/* worker.c - starts, wakes and ends threads of the library's own.
 *
 * A worker is a bare thread (base/bare_thread.c), which any hook may start, or, if it calls other libraries, a thread of
 * libc, which only hooks of functions may start that take libc's locks themselves. The latter is detached: to join it
 * would free memory, and a fork handler of an allocator may hold its lock.
 *
 * Such a thread blocks all signals. The fork handler ends it, so that the process has no second thread of ours at the
 * fork. A thread that hangs in a call cannot be ended: it sees the request when the call returns, and no second one is
 * started before it is gone. A fork therefore waits for a thread that lacks a processor, and not for one that hangs.
 *
 * The threads are counted, so that one of them can find out that the program's own threads have all ended: the process
 * would never end otherwise, nor take a signal.
 */
#include "record/worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/files.h"
#include "base/fmt.h"
#include "base/last_thread.h"
#include "base/process.h"
#include "record/thread.h"

#define LONGEST_FORK_MS 2000u /* a fork waits no longer for a thread without a processor */
#define LONGEST_END_MS 10000u /* nor does the end of a trace */

#define LONGEST_HOLD_MS 1000u

#define LOOK_NS 500000000u /* between two looks for the program's threads */

bool (*tfi_libc_thread_start)(void *(*run)(void *), void *data);

static uint64_t cpu_ns; /* of all workers */
static uint32_t alive;  /* workers that run; never more than there are */
static pid_t alive_in;  /* the process that they run in */
static uint32_t made;   /* workers that were started and have not ended: never fewer than there are */
static pid_t made_in;
static uint64_t held_until; /* milliseconds: no worker is started before; 0: each may be */
static pid_t held_in;       /* the process that this holds for */

void tfi_worker_restart(struct tfi_worker *worker)
{
    *worker = (struct tfi_worker){.loop = worker->loop,
                                  .calls_others = worker->calls_others,
                                  .is_idle = worker->is_idle,
                                  .asleep_in = worker->asleep_in,
                                  .signal = worker->signal,
                                  .bare.memory = worker->bare.memory};
}

uint64_t tfi_workers_cpu_ns(void)
{
    return __atomic_load_n(&cpu_ns, __ATOMIC_RELAXED);
}

uint32_t tfi_workers_alive(void)
{
    return __atomic_load_n(&made_in, __ATOMIC_ACQUIRE) == tfi_getpid() ? __atomic_load_n(&made, __ATOMIC_ACQUIRE) : 0;
}

void tfi_workers_cpu_restart(void)
{
    __atomic_store_n(&cpu_ns, 0, __ATOMIC_RELAXED);
}

bool tfi_worker_must_stop(struct tfi_worker *worker)
{
    return __atomic_load_n(&worker->stop, __ATOMIC_ACQUIRE);
}

uint32_t tfi_worker_signals(struct tfi_worker *worker)
{
    return __atomic_load_n(&worker->signal, __ATOMIC_ACQUIRE);
}

static void count_cpu(struct tfi_worker *worker)
{
    uint64_t now = tfi_own_cpu_ns();
    __atomic_add_fetch(&cpu_ns, now - worker->cpu_ns, __ATOMIC_RELAXED);
    worker->cpu_ns = now;
}

void tfi_worker_sleep_ns(struct tfi_worker *worker, uint32_t seen, uint64_t ns)
{
    count_cpu(worker);
    tfi_futex_wait_ns(&worker->signal, seen, ns);
}

void tfi_worker_sleep(struct tfi_worker *worker, uint32_t seen, unsigned ms)
{
    tfi_worker_sleep_ns(worker, seen, ms * (uint64_t)1000000);
}

/* A forked child has none of its parent's workers. Its first worker runs alone when it counts itself, because the
 * background thread starts the others. */
static void count_in(void)
{
    pid_t pid = tfi_getpid();
    if (__atomic_exchange_n(&alive_in, pid, __ATOMIC_ACQ_REL) != pid) __atomic_store_n(&alive, 0, __ATOMIC_RELEASE);
    __atomic_add_fetch(&alive, 1, __ATOMIC_ACQ_REL);
}

static void run(void *data)
{
    struct tfi_worker *worker = data;
    tfi_inside = 1;
    count_in();
    __atomic_store_n(&worker->tid, tfi_gettid(), __ATOMIC_RELEASE);
    syscall(SYS_prctl, PR_SET_NAME, "tfinject", 0, 0, 0);
    tfi_register_barrier();
    worker->cpu_ns = 0;
    worker->loop(worker);
    __atomic_sub_fetch(&alive, 1, __ATOMIC_ACQ_REL);
    __atomic_sub_fetch(&made, 1, __ATOMIC_ACQ_REL);
}

static void *run_of_libc(void *data)
{
    struct tfi_worker *worker = data;
    run(worker);
    __atomic_store_n(&worker->ended, 1, __ATOMIC_RELEASE);
    tfi_futex_wake(&worker->ended);
    return NULL;
}

bool tfi_worker_is_left_alone(struct tfi_worker *worker, int *status)
{
    uint64_t now = tfi_monotonic_ns();
    if (now < worker->next_look) return false;
    worker->next_look = now + LOOK_NS;
    uint32_t own = __atomic_load_n(&alive, __ATOMIC_ACQUIRE);
    return (worker->calls_others || worker->is_idle || own == 1) && tfi_program_has_ended(own, status);
}

/* A thread that ends by pthread_exit leaves the status 0. libc counts the ends of that kind, of all threads that it knows:
 * if it saw all others end so, it calls exit() when this one returns from run(). A worker that hangs would prevent that. */
void tfi_worker_end_process(struct tfi_worker *worker, int status)
{
    tfi_inside = 0;
    tfi_finish("_exit");
    tfi_inside = 1;
    if (!worker->calls_others || status || __atomic_load_n(&alive, __ATOMIC_ACQUIRE) > 1) tfi_end_with(status);
    pthread_sigmask(SIG_SETMASK, &worker->mask, NULL); /* handlers of exit() expect the program's */
}

static bool create_of_libc(struct tfi_worker *worker)
{
    sigset_t all;
    sigfillset(&all);
    __atomic_store_n(&worker->ended, 0, __ATOMIC_RELEASE);
    pthread_sigmask(SIG_SETMASK, &all, &worker->mask);
    bool ok = tfi_libc_thread_start(run_of_libc, worker);
    pthread_sigmask(SIG_SETMASK, &worker->mask, NULL);
    return ok;
}

static bool create(struct tfi_worker *worker)
{
    pid_t pid = tfi_getpid();
    if (__atomic_exchange_n(&made_in, pid, __ATOMIC_ACQ_REL) != pid) __atomic_store_n(&made, 0, __ATOMIC_RELEASE);
    __atomic_add_fetch(&made, 1, __ATOMIC_ACQ_REL);
    bool done = worker->calls_others ? create_of_libc(worker) : tfi_bare_thread_start(&worker->bare, run, worker);
    if (!done) __atomic_sub_fetch(&made, 1, __ATOMIC_ACQ_REL);
    return done;
}

/* True if the thread has ended, which it has at most `ms` milliseconds for. */
static bool has_ended(struct tfi_worker *worker, unsigned ms)
{
    struct tfi_patience patience = TFI_PATIENCE(ms);
    uint64_t slice;
    if (!worker->calls_others) return tfi_bare_thread_wait(&worker->bare, ms);
    while (!__atomic_load_n(&worker->ended, __ATOMIC_ACQUIRE)) {
        if (!(slice = tfi_patience_slice(&patience))) return false;
        tfi_futex_wait_ns(&worker->ended, 0, slice);
    }
    return true;
}

void tfi_workers_hold(void)
{
    __atomic_store_n(&held_in, tfi_getpid(), __ATOMIC_RELAXED);
    __atomic_store_n(&held_until, tfi_monotonic_ms() + LONGEST_HOLD_MS, __ATOMIC_RELEASE);
}

void tfi_workers_release(void)
{
    __atomic_store_n(&held_until, 0, __ATOMIC_RELEASE);
}

static bool is_held(void)
{
    uint64_t until = __atomic_load_n(&held_until, __ATOMIC_ACQUIRE);
    return until && __atomic_load_n(&held_in, __ATOMIC_RELAXED) == tfi_getpid() && tfi_monotonic_ms() < until;
}

bool tfi_worker_start(struct tfi_worker *worker)
{
    if (__atomic_load_n(&worker->forking, __ATOMIC_ACQUIRE)) return false;
    bool stopping = __atomic_load_n(&worker->stop, __ATOMIC_ACQUIRE);
    if (__atomic_load_n(&worker->running, __ATOMIC_ACQUIRE) && !stopping) return true;
    pid_t pid = tfi_getpid(); /* a child's thread would keep its parent from ending it */
    if (pid != tfi_trace_pid && pid != worker->asleep_in) return false;
    if (!tfi_lock_within(&worker->lock, 0)) return false;
    /* A thread that did not end in time for a fork, because a call hung, must be gone before the next one starts. */
    if (worker->running && stopping) worker->running = !has_ended(worker, 0);
    if (!worker->running && !worker->forking && !is_held()) {
        worker->stop = 0;
        worker->tid = 0;
        __atomic_store_n(&worker->running, create(worker), __ATOMIC_RELEASE);
    }
    bool ok = worker->running && !worker->stop;
    tfi_unlock(&worker->lock);
    return ok;
}

void tfi_worker_signal(struct tfi_worker *worker)
{
    __atomic_add_fetch(&worker->signal, 1, __ATOMIC_RELEASE);
    tfi_futex_wake(&worker->signal);
}

bool tfi_worker_stop(struct tfi_worker *worker, unsigned ms)
{
    bool ended = true;
    if (!tfi_lock_within(&worker->lock, ms)) return false;
    bool self = worker->running && worker->tid == tfi_gettid(); /* it ends the process, and does nothing more after */
    if (worker->running && !self) {
        __atomic_store_n(&worker->stop, 1, __ATOMIC_RELEASE);
        tfi_worker_signal(worker);
        ended = has_ended(worker, ms);
        __atomic_store_n(&worker->running, !ended, __ATOMIC_RELEASE);
    }
    tfi_unlock(&worker->lock);
    return ended;
}

/* True if the thread has not begun yet, runs, or waits for a processor: it will notice `stop`. */
static bool is_runnable(struct tfi_worker *worker)
{
    char path[48], text[512];
    pid_t tid = __atomic_load_n(&worker->tid, __ATOMIC_ACQUIRE);
    if (!tid) return true;
    tfi_fmt(path, sizeof path, "/proc/self/task/%d/stat", tid);
    ssize_t bytes = tfi_read_file(path, text, sizeof text);
    const char *name_end = bytes > 0 ? memrchr(text, ')', (size_t)bytes) : NULL;
    return name_end && strncmp(name_end, ") R", 3) == 0;
}

bool tfi_worker_end(struct tfi_worker *worker, unsigned ms)
{
    bool ended;
    for (unsigned waited = ms; !(ended = tfi_worker_stop(worker, ms)) && waited < LONGEST_END_MS; waited += ms)
        if (!ms || !is_runnable(worker)) break;
    return ended;
}

/* The kernel counts a thread that has ended among those of the process for a moment, and longer where it lacks a processor. */
static void wait_until_gone(struct tfi_worker *worker)
{
    enum { PAUSES = 50 };
    uint32_t nothing = 0;
    uint64_t end = tfi_monotonic_ms() + LONGEST_FORK_MS;
    for (int i = 0; worker->tid && syscall(SYS_tgkill, tfi_getpid(), worker->tid, 0) == 0; i++) {
        if (i >= PAUSES && (!is_runnable(worker) || tfi_monotonic_ms() > end)) break;
        tfi_futex_wait_ns(&nothing, 0, i < PAUSES / 2 ? 50000 : 1000000);
    }
    worker->tid = 0;
}

bool tfi_worker_before_fork(struct tfi_worker *worker, unsigned ms)
{
    int error = errno;
    unsigned hangs = 0; /* how often in a row the thread was found waiting for something else than a processor */
    bool ended;
    __atomic_store_n(&worker->forking, 1, __ATOMIC_SEQ_CST);
    for (unsigned waited = 0; !(ended = tfi_worker_stop(worker, ms)) && ms && hangs < 2 && waited < LONGEST_FORK_MS;
         waited += ms)
        hangs = is_runnable(worker) ? 0 : hangs + 1;
    if (ended) wait_until_gone(worker);
    errno = error;
    return ended;
}

void tfi_worker_after_fork(struct tfi_worker *worker)
{
    __atomic_store_n(&worker->forking, 0, __ATOMIC_RELEASE);
}
