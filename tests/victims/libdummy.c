/* libdummy.c - implements dummy.h. */
#include "dummy.h"

#include <errno.h>
#include <time.h>

long dummy_add(long x)
{
    __asm__ volatile("");
    return x + 1;
}

int dummy_fail(int error, int result)
{
    if (error) errno = error;
    return result;
}

void dummy_store(uint64_t *out, uint64_t x)
{
    *out = x;
}

long dummy_nested(long x, int depth)
{
    return depth ? dummy_nested(dummy_add(x), depth - 1) : x;
}

int dummy_sleep(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    return nanosleep(&t, NULL);
}

const char *dummy_many(int a, int64_t b, const char *c, double *d, size_t e, uint8_t f)
{
    (void)a, (void)b, (void)d, (void)e, (void)f;
    return c;
}

long dummy_call(long (*f)(long), long x)
{
    return f(x) + 1;
}
