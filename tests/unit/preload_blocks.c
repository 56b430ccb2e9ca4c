/* preload_blocks.c - sizes of blocks by address: many at once, from many threads, reused addresses, forks. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/block_sizes.h"
#include "unit.h"

static struct tfi_blocks blocks;

enum { MANY = 300000, THREADS = 4, ROUNDS = 20000 };

/* Returns addresses as an allocator does: multiples of 64, close together. */
static uint64_t address_of(uint64_t i)
{
    return 0x7f0000000000u + i * 64;
}

START_TEST(test_one)
{
    ck_assert_uint_eq(tfi_block_take(&blocks, 4096), 0);
    ck_assert(tfi_block_put(&blocks, 4096, 10));
    ck_assert(tfi_block_known(&blocks, 4096) && !tfi_block_known(&blocks, 4160));
    ck_assert(tfi_block_put(&blocks, 4096, 20));
    ck_assert_uint_eq(tfi_block_take(&blocks, 4096), 20);
    ck_assert_uint_eq(tfi_block_take(&blocks, 4096), 0);
    ck_assert(!tfi_block_known(&blocks, 4096));
}
END_TEST

/* Puts more blocks than several levels hold. Each is found in any level, and its place is free afterwards. */
START_TEST(test_many)
{
    uint64_t wrong = 0;
    for (int round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < MANY; i++) wrong += !tfi_block_put(&blocks, address_of(i), i + 1);
        for (uint64_t i = 0; i < MANY; i++) wrong += tfi_block_take(&blocks, address_of(i)) != i + 1;
        for (uint64_t i = 0; i < MANY; i++) wrong += tfi_block_known(&blocks, address_of(i));
    }
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

static void *give_and_take(void *number)
{
    uint64_t base = (uint64_t)(uintptr_t)number * 1000000, wrong = 0;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        wrong += !tfi_block_put(&blocks, address_of(base + i), base + i + 1);
        if (i % 3) wrong += tfi_block_take(&blocks, address_of(base + i)) != base + i + 1;
    }
    for (uint64_t i = 0; i < ROUNDS; i += 3) wrong += tfi_block_take(&blocks, address_of(base + i)) != base + i + 1;
    return (void *)(uintptr_t)wrong;
}

START_TEST(test_threads)
{
    pthread_t thread[THREADS];
    void *wrong;
    for (uintptr_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, give_and_take, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], &wrong);
        ck_assert_ptr_null(wrong);
    }
}
END_TEST

/* A child has its parent's blocks, whatever the other threads did during the fork. */
START_TEST(test_fork)
{
    pthread_t thread;
    int status;
    void *wrong;
    ck_assert(tfi_block_put(&blocks, 64, 7));
    ck_assert_int_eq(pthread_create(&thread, NULL, give_and_take, (void *)1), 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) _exit(give_and_take((void *)9) != NULL || tfi_block_take(&blocks, 64) != 7);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(status, 0);
    }
    pthread_join(thread, &wrong);
    ck_assert_uint_eq(tfi_block_take(&blocks, 64), 7);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("blocks");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, test_one);
    tcase_add_test(tests, test_many);
    tcase_add_test(tests, test_threads);
    tcase_add_test(tests, test_fork);
    return unit_run(tests);
}
