/* hooks_again.c - hooks_again COUNT SEED exit|kill: makes calls, most of them similar to earlier ones, and prints each.
 *
 * Prints "function result errno arguments" of every call but the first, which only wakes the process.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dummy.h"

static const int errors[] = {0, 0, 0, 0, 0, 22, 11, 65535, 65536, -1};

static uint64_t any(unsigned below)
{
    return (uint64_t)(rand() / 7) % below;
}

static void one(void)
{
    int error = errors[any(10)], a = (int)any(2), result = (int)any(2), f = (int)any(2);
    int64_t b = any(9) ? 7 : -(int64_t)any(1u << 30) * 9000000000;
    size_t e = any(9) ? 4096 : any(1u << 30);
    const char *c = (const char *)(uintptr_t)(any(9) ? 0x1000 : any(1u << 30));
    double *d = (double *)(uintptr_t)(any(4) ? 0x2000 : any(3));
    errno = 77;
    if (any(4) == 0) {
        dummy_fail(error, result);
        printf("dummy_fail %d %d %d %d\n", result, error ? error : 77, error, result);
    } else if (any(5) == 0) {
        dummy_add((long)b);
        printf("dummy_add %" PRId64 " 77 %" PRId64 "\n", b + 1, b);
    } else {
        errno = error;
        dummy_many(a, b, c, d, e, (uint8_t)f);
        printf("dummy_many %" PRIdPTR " %d %d %" PRId64 " %" PRIdPTR " %" PRIdPTR " %zu %d\n", (intptr_t)c, error, a, b,
               (intptr_t)c, (intptr_t)d, e, f);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    srand((unsigned)atoi(argv[2]));
    dummy_add(1);
    for (long i = 0, count = atol(argv[1]); i < count; i++) one();
    fflush(stdout);
    if (strcmp(argv[3], "kill") == 0) raise(SIGKILL);
    return 0;
}
