/* preload_lock.c - a lock that a thread of the parent holds is free in its child, and only there. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys.h"

static struct tfi_lock lock;
static long counter;

/* 0 if a child finds free what its parent holds, and can hold it itself. */
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
        tfi_lock(&lock);
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

int main(void)
{
    Suite *suite = suite_create("preload_lock");
    TCase *tcase = tcase_create("lock");
    tcase_add_loop_test(tcase, test_child, 0, 2);
    tcase_add_test(tcase, test_one_at_a_time);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
