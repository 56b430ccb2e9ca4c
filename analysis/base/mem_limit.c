/* mem_limit.c - sets the memory limit of this program with setrlimit. */
#include "base/mem_limit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include "base/file_in.h"
#include "pattern.h"

/* gcc reports a sanitizer with a macro, clang with __has_feature. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SANITIZED = true };
#elif defined __has_feature
enum { SANITIZED = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) };
#else
enum { SANITIZED = false };
#endif

/* Returns the memory limit of the control group in bytes, UINT64_MAX without one. */
static uint64_t group_limit(void)
{
    char text[4096], number[64];
    uint64_t limit;
    char *at = file_of_proc("/proc/self/cgroup", text, sizeof text) ? strstr(text, "0::/") : NULL;
    if (!at) return UINT64_MAX;
    at[3 + strcspn(at + 3, "\n")] = 0;
    char *path = string_format("/sys/fs/cgroup%s/memory.max", at + 3);
    size_t length = file_of_proc(path, number, sizeof number);
    free(path);
    number[length ? length - 1 : 0] = 0; /* the newline */
    return length && tfi_whole_number(number, 0, UINT64_MAX, &limit) ? limit : UINT64_MAX;
}

/* A lower limit that the user set stays. Sanitizer builds get no limit: their tables need more than any. */
void mem_limit(double share, uint64_t most)
{
    static struct rlimit before;
    static bool known;
    struct sysinfo info;
    known = known || getrlimit(RLIMIT_DATA, &before) == 0;
    if (SANITIZED || !known || sysinfo(&info) != 0) return;
    uint64_t there = ((uint64_t)info.totalram + info.totalswap) * info.mem_unit, group = group_limit();
    struct rlimit limit = before;
    limit.rlim_cur = MIN(before.rlim_cur, (rlim_t)(share * (double)MIN(most, MIN(there, group))));
    setrlimit(RLIMIT_DATA, &limit);
}
