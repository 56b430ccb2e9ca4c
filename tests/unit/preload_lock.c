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

enum { TRAP = 0x100, AFTER_ALL = 1000 };

static volatile long steps_left;

static void jump_at_last(int number)
{
    (void)number;
    if (steps_left-- == 0) siglongjmp(back, 1);
}

static __attribute__((noinline)) void take_and_release_in_steps(void)
{
    __asm__ volatile("pushfq\n orq $0x100, (%%rsp)\n popfq" ::: "memory", "cc");
    if (tfi_lock_quick(&lock)) tfi_unlock_quick(&lock);
    __asm__ volatile("pushfq\n andq $~0x100, (%%rsp)\n popfq" ::: "memory", "cc");
}

/* Returns 0 if the lock can be taken at once, by this thread, after a jump that follows `steps` instructions; 1 if not; 2 if
 * there are fewer instructions. */
static int jump_after(long steps)
{
    steps_left = steps;
    if (!sigsetjmp(back, 1)) {
        take_and_release_in_steps();
        return 2;
    }
    something_else();
    uint64_t start = tfi_monotonic_ns();
    return tfi_lock_quick(&lock) && tfi_monotonic_ns() - start < 500000000 && (tfi_unlock_quick(&lock), !lock.word) ? 0
                                                                                                                    : 1;
}

/* A jump after each instruction, also between the one that takes the lock and the one that notes who holds it. */
START_TEST(test_a_jump_at_any_place_of_a_quick_lock)
{
    int status = 0;
    long steps = 0;
    signal(SIGTRAP, jump_at_last);
    while (!status && steps < AFTER_ALL) {
        pid_t child = fork();
        if (child == 0) {
            if (tfi_lock_quick(&lock)) tfi_unlock_quick(&lock); /* the first call finds out what the later ones know */
            _exit(jump_after(steps));
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        steps++;
    }
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 2, "status %d after %ld steps", status, steps);
    ck_assert_int_gt(steps, 20);
}
END_TEST

static void *hold_for_ever(void *unused)
{
    if (tfi_lock_within(&lock, 0)) pause();
    return unused;
}

/* A handler that jumps out of each wait in vain does not make the next one wait as well. */
START_TEST(test_a_jump_out_of_a_wait_in_vain)
{
    pthread_t thread;
    signal(SIGUSR1, jump);
    ck_assert_int_eq(pthread_create(&thread, NULL, hold_for_ever, NULL), 0);
    while (!__atomic_load_n(&lock.word, __ATOMIC_ACQUIRE)) sched_yield();
    for (volatile int i = 0; i < 2; i++) {
        volatile uint64_t start = tfi_monotonic_ns();
        tfi_signals_off();
        raise(SIGUSR1);
        if (!sigsetjmp(back, 0)) {
            ck_assert(!tfi_lock(&lock));
            tfi_signals_on();
        }
        ck_assert_uint_lt(tfi_monotonic_ns() - start, i ? 500000000 : 5000000000);
    }
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("lock");
    tcase_add_test(tcase, test_a_jump_at_any_place_of_a_quick_lock);
    tcase_add_test(tcase, test_a_jump_out_of_a_wait_in_vain);
    tcase_add_loop_test(tcase, test_child, 0, 2);
    tcase_add_test(tcase, test_one_at_a_time);
    tcase_add_test(tcase, test_both_ways);
    tcase_add_test(tcase, test_a_jump_out_of_a_quick_lock);
    return unit_run(tcase);
}
