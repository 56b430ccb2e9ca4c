/* hooks_rows.c - calls every function of tests/dummy.def once and prints "function result errno before after".
 *
 * before and after are CLOCK_MONOTONIC in nanoseconds, read just outside the call; errno is 77 before each call.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "dummy.h"

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

#define CALLED(name, expression)                                                                                       \
    do {                                                                                                               \
        long long before = now();                                                                                      \
        errno = 77;                                                                                                    \
        int64_t result = (int64_t)(intptr_t)(expression);                                                              \
        int error = errno;                                                                                             \
        printf("%s %" PRId64 " %d %lld %lld\n", name, result, error, before, now());                                   \
    } while (0)

static long half(long x)
{
    return x / 2;
}

int main(void)
{
    static double number;
    uint64_t out = 0;
    dummy_add(0); /* wakes the process before the readings below */
    CALLED("dummy_add", dummy_add(-9000000000));
    CALLED("dummy_fail", dummy_fail(23, -5));
    CALLED("dummy_store", (dummy_store(&out, UINT64_MAX), out == UINT64_MAX));
    CALLED("dummy_nested", dummy_nested(40, 2));
    CALLED("dummy_sleep", dummy_sleep(30));
    CALLED("dummy_many", dummy_many(-1, INT64_MIN, (char *)0x7f0123456789, &number, SIZE_MAX, 255));
    CALLED("dummy_call", dummy_call(half, 10));
    return 0;
}
