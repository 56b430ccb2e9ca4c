/* preload_background.c - a fork waits for a background thread that only lacks a processor, and not for one that hangs. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
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

int main(void)
{
    TCase *tcase = tcase_create("background");
    tcase_set_timeout(tcase, 100);
    tcase_add_test(tcase, test_busy);
    tcase_add_test(tcase, test_hanging);
    return unit_run(tcase);
}
