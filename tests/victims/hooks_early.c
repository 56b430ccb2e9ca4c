/* hooks_early.c - linked with libhooks.so, whose constructor runs before the profiler's and its destructor after it. */
#include <stdio.h>

#include "dummy.h"

long hooks_add(long x);

int main(void)
{
    return !(hooks_add(1) == 2 && dummy_add(2) == 3 && puts("main") >= 0 && fflush(stdout) == 0);
}
