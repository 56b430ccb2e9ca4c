/* preload_lock.c - locks in forked children, among threads, and after a jump out of the function that holds one. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sys.h"
#include "unit.h"

static struct tfi_lock lock;
static long counter;

/* Returns 0 if a lock that the parent holds is free in the child and the child can take it. */
static int in_child(void)
{
    bool first = tfi_lock_within(&lock, 0), second = tfi_lock_within(&lock, 0);
    tfi_unlock(&lock);
    return first && !second && tfi_lock_within(&lock, 0) ? 0 : 1;
}

START_TEST(test_child)
{
    int status = -1;
    ck_assert(tfi_lock_within(&lock, 0));
    ck_assert(!tfi_lock_within(&lock, 0));
    pid_t child = _i ? (pid_t)syscall(SYS_fork) : fork();
    if (child == 0) _exit(in_child());
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert(!tfi_lock_within(&lock, 1));
    tfi_unlock(&lock);
    ck_assert(tfi_lock_within(&lock, 0));
    tfi_unlock(&lock);
}
END_TEST

static void *count(void *unused)
{
    for (int i = 0; i < 100000; i++) {
        if (!tfi_lock(&lock)) continue;
        counter++;
        tfi_unlock(&lock);
    }
    return unused;
}

START_TEST(test_one_at_a_time)
{
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) ck_assert_int_eq(pthread_create(&thread[i], NULL, count, NULL), 0);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    ck_assert_int_eq(counter, 400000);
    ck_assert_uint_eq(lock.word, 0);
}
END_TEST

static void *count_quick(void *unused)
{
    for (int i = 0; i < 100000; i++) {
        if (!tfi_lock_quick(&lock)) continue;
        counter++;
        tfi_unlock_quick(&lock);
    }
    return unused;
}

/* Both ways of taking one lock exclude each other. */
START_TEST(test_both_ways)
{
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, i % 2 ? count : count_quick, NULL), 0);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    ck_assert_int_eq(counter, 400000);
    ck_assert_uint_eq(lock.word, 0);
}
END_TEST

static sigjmp_buf back;

static void jump(int number)
{
    (void)number;
    siglongjmp(back, 1);
}

static __attribute__((noinline)) void hold_and_be_left(void)
{
    if (tfi_lock_quick(&lock)) raise(SIGUSR1);
    tfi_unlock_quick(&lock);
}

static __attribute__((noinline)) void something_else(void)
{
    volatile char room[4096];
    for (size_t i = 0; i < sizeof room; i++) room[i] = 1;
}

/* The next caller takes the lock over without waiting. From then on its holder blocks signals. */
START_TEST(test_a_jump_out_of_a_quick_lock)
{
    sigset_t mask;
    signal(SIGUSR1, jump);
    if (!sigsetjmp(back, 1)) hold_and_be_left();
    something_else();
    ck_assert_uint_ne(lock.word, 0);
    uint64_t start = tfi_monotonic_ns();
    ck_assert(tfi_lock_quick(&lock));
    ck_assert_uint_lt(tfi_monotonic_ns() - start, 500000000);
    tfi_unlock_quick(&lock);
    ck_assert_uint_eq(lock.word, 0);
    ck_assert(tfi_lock_quick(&lock));
    sigprocmask(SIG_BLOCK, NULL, &mask);
    ck_assert(sigismember(&mask, SIGUSR1));
    tfi_unlock_quick(&lock);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    ck_assert(!sigismember(&mask, SIGUSR1));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("lock");
    tcase_add_loop_test(tcase, test_child, 0, 2);
    tcase_add_test(tcase, test_one_at_a_time);
    tcase_add_test(tcase, test_both_ways);
    tcase_add_test(tcase, test_a_jump_out_of_a_quick_lock);
    return unit_run(tcase);
}
