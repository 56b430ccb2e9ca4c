/* preload_background.c - how long others wait for a background thread that lacks a processor, hangs or is stopped. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/bare_thread.h"
#include "base/process.h"
#include "base/sys.h"
#include "record/background.h"
#include "record/thread.h"
#include "unit.h"

enum { BUSY_MS = 150 }; /* several times as long as a fork waits for a thread that hangs */

static pthread_barrier_t begun;
static uint32_t released;
static bool hangs, ended;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Runs on the background thread. */
static bool work(void)
{
    if (ended) return false;
    pthread_barrier_wait(&begun);
    if (hangs)
        while (!__atomic_load_n(&released, __ATOMIC_ACQUIRE)) tfi_futex_wait(&released, 0, 1000000);
    else
        for (double until = now_ms() + BUSY_MS; now_ms() < until;) continue;
    __atomic_store_n(&ended, true, __ATOMIC_RELEASE);
    return true;
}

static const struct tfi_job job = {.work = work}, *const jobs[] = {&job};

static void begin(bool that_hangs)
{
    hangs = that_hangs;
    ck_assert_int_eq(pthread_barrier_init(&begun, NULL, 2), 0);
    tfi_trace_pid = tfi_getpid();
    tfi_thread_variables_constructor();
    tfi_background_init(jobs, 1, NULL, 0);
    ck_assert(tfi_background_start());
    pthread_barrier_wait(&begun);
}

/* A Python program would otherwise be told at os.fork() that it has several threads. */
START_TEST(test_busy)
{
    begin(false);
    errno = EDOM;
    tfi_background_before_fork();
    ck_assert_int_eq(errno, EDOM);
    ck_assert(__atomic_load_n(&ended, __ATOMIC_ACQUIRE));
    ck_assert(!tfi_background_start());
    tfi_background_after_fork();
    ck_assert(tfi_background_start());
    ck_assert(tfi_background_stop(60000));
}
END_TEST

/* The end of a trace waits for a thread that runs, longer than for one that hangs. */
START_TEST(test_end)
{
    begin(_i == 1);
    ck_assert_int_eq(tfi_background_stop(BUSY_MS / 3), !hangs);
    ck_assert_int_eq(__atomic_load_n(&ended, __ATOMIC_ACQUIRE), !hangs);
    __atomic_store_n(&released, 1, __ATOMIC_RELEASE);
    tfi_futex_wake(&released);
    ck_assert(tfi_background_stop(60000));
}
END_TEST

/* The thread is still in its system call when the fork goes on, and ends later. */
START_TEST(test_hanging)
{
    begin(true);
    tfi_background_before_fork();
    ck_assert(!__atomic_load_n(&ended, __ATOMIC_ACQUIRE));
    __atomic_store_n(&released, 1, __ATOMIC_RELEASE);
    tfi_futex_wake(&released);
    ck_assert(tfi_background_stop(60000));
    tfi_background_after_fork();
    ck_assert(tfi_background_start());
    ck_assert(tfi_background_stop(60000));
}
END_TEST

/* ---- patience ---- */

/* A wait whose slices last three times as long as they should has as many of them all the same. */
START_TEST(test_slow_slices)
{
    struct tfi_patience patience = TFI_PATIENCE(100), none = TFI_PATIENCE(0);
    struct timespec slow = {.tv_nsec = 3 * TFI_SLICE_NS};
    int slices = 0;
    for (uint64_t ns; (ns = tfi_patience_slice(&patience)); slices++) {
        ck_assert_uint_le(ns, TFI_SLICE_NS);
        nanosleep(&slow, NULL);
    }
    ck_assert_int_eq(slices, 10);
    ck_assert_uint_eq(tfi_patience_slice(&patience), 0);
    ck_assert_uint_eq(tfi_patience_slice(&none), 0);
}
END_TEST

/* Slices that end at once take off their own time only, and the wait ends nevertheless. */
START_TEST(test_short_slices)
{
    struct tfi_patience patience = TFI_PATIENCE(30);
    long slices = 0;
    uint64_t begin = tfi_monotonic_ns();
    while (tfi_patience_slice(&patience)) slices++;
    ck_assert_uint_ge(tfi_monotonic_ns() - begin, 30000000);
    ck_assert_int_ge(slices, 3);
}
END_TEST

enum { LIMIT_MS = 1000 };

static uint32_t working, waiting;

static void set(uint32_t *word)
{
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    tfi_futex_wake(word);
}

static void wait_for(uint32_t *word)
{
    while (!__atomic_load_n(word, __ATOMIC_ACQUIRE)) tfi_futex_wait(word, 0, 1000000);
}

/* Runs on the background thread: stops the process once its main thread waits for this one. */
static bool stop_process(void)
{
    if (ended) return false;
    set(&working);
    wait_for(&waiting);
    tfi_futex_wait(&released, 0, 5); /* the main thread is in its wait by then; if not, the test cannot fail */
    kill(tfi_getpid(), SIGSTOP);
    tfi_futex_wait(&released, 0, 50); /* as long as the end of a trace may take */
    ended = true;
    return false;
}

static const struct tfi_job stopping_job = {.work = stop_process}, *const stopping_jobs[] = {&stopping_job};

static int stopped_child(void)
{
    tfi_trace_pid = tfi_getpid();
    tfi_thread_variables_constructor();
    tfi_background_init(stopping_jobs, 1, NULL, 0);
    if (!tfi_background_start()) return 2;
    wait_for(&working);
    set(&waiting);
    return tfi_background_stop(LIMIT_MS) ? 0 : 1;
}

/* The time in which the process is stopped does not count. */
START_TEST(test_stopped)
{
    struct timespec longer = {.tv_sec = 1, .tv_nsec = 500000000};
    int status;
    pid_t child = fork();
    if (child == 0) _exit(stopped_child());
    ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
    ck_assert(WIFSTOPPED(status));
    nanosleep(&longer, NULL);
    ck_assert_int_eq(kill(child, SIGCONT), 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("background");
    tcase_set_timeout(tcase, 100);
    tcase_add_test(tcase, test_busy);
    tcase_add_test(tcase, test_hanging);
    tcase_add_loop_test(tcase, test_end, 0, 2);
    tcase_add_test(tcase, test_slow_slices);
    tcase_add_test(tcase, test_short_slices);
    tcase_add_test(tcase, test_stopped);
    return unit_run(tcase);
}
