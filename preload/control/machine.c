/* machine.c - finds the facts of the machine that a process runs on.
 *
 * Only the waking thread is here, and it may have a small stack: the buffers are static. Everything is read from the kernel:
 * libc's functions for it allocate. A limit of a cgroup is the smallest of its own and of those above it. In a container
 * the kernel may name a path that is not visible; the groups above it that are visible count then.
 */
#include "control/machine.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/files.h"
#include "base/fmt.h"
#include "base/tfi.h"

#define CGROUPS "/sys/fs/cgroup"
#define MOST_PROCESSORS 8192u
#define MOST_GPUS 64u
#define NONE UINT64_MAX
#define UNLIMITED (UINT64_C(1) << 62) /* version 1 has a number this large where there is no limit */

static void add_number(struct tfi_text *text, const char *key, uint64_t value)
{
    tfi_text_add(text, "machine.%s%c%lu%c", key, 0, (unsigned long)value, 0);
}

static void add_word(struct tfi_text *text, const char *key, const char *value)
{
    tfi_text_add(text, "machine.%s%c%s%c", key, 0, value, 0);
}

/* ---- processors ---- */

/* Counts the processors of a list such as "0-3,8". */
static uint64_t count_list(const char *list)
{
    uint64_t count = 0;
    char *end;
    for (const char *at = list; *at >= '0' && *at <= '9'; at = *end == ',' ? end + 1 : end) {
        uint64_t first = strtoul(at, &end, 10), last = first;
        if (*end == '-') last = strtoul(end + 1, &end, 10);
        if (last >= first && last < MOST_PROCESSORS) count += last - first + 1;
    }
    return count;
}

static void add_processors(struct tfi_text *text)
{
    static char list[4096];
    if (tfi_read_file("/sys/devices/system/cpu/online", list, sizeof list) > 0)
        add_number(text, "processors", count_list(list));
}

/* Adds the processors that the process may use, as a list and as a count. */
static void add_affinity(struct tfi_text *text)
{
    static unsigned char mask[MOST_PROCESSORS / 8];
    static char list[2048];
    struct tfi_text to = {list, sizeof list - 1, 0, 0};
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    uint64_t count = 0;
    unsigned first = 0;
    bool inside = false;
    if (bytes <= 0) return;
    for (unsigned i = 0; i <= (unsigned)bytes * 8; i++) {
        bool may = i < (unsigned)bytes * 8 && (mask[i / 8] >> i % 8 & 1);
        count += may;
        if (may && !inside) first = i;
        if (!may && inside) {
            tfi_text_add(&to, "%s%u", to.used ? "," : "", first);
            if (i - first > 1) tfi_text_add(&to, "-%u", i - 1);
        }
        inside = may;
    }
    list[to.used] = 0;
    add_word(text, "affinity", list);
    add_number(text, "usable_processors", count);
}

/* ---- the cgroup ---- */

/* A directory of the hierarchy that has a controller. */
struct group {
    char path[TFI_PATH_BYTES];
    size_t root; /* length of the part that is its mount point */
    bool is_v2;
};

/* True if a list of controllers, as between the colons of a line of /proc/self/cgroup, has one. */
static bool has_controller(const char *list, size_t length, const char *controller)
{
    size_t size = strlen(controller);
    for (const char *at = list; at + size <= list + length; at++) {
        bool starts = at == list || at[-1] == ',', ends = at + size == list + length || at[size] == ',';
        if (starts && ends && memcmp(at, controller, size) == 0) return true;
    }
    return false;
}

/* Finds this process's group of a controller; the kernel's text is in `lines`. */
static bool find_group(const char *lines, const char *controller, struct group *group)
{
    const char *own = NULL, *common = NULL;
    for (const char *line = lines; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        const char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path) break;
        if (has_controller(list + 1, (size_t)(path - list - 1), controller)) own = path + 1;
        if (path == list + 1) common = path + 1;
    }
    const char *path = own ? own : common;
    if (!path) return false;
    group->is_v2 = !own;
    if (own) tfi_fmt(group->path, sizeof group->path, CGROUPS "/%s", controller);
    else tfi_fmt(group->path, sizeof group->path, CGROUPS);
    group->root = strlen(group->path);
    size_t length = strcspn(path, "\n");
    if (length == 1 || group->root + length >= sizeof group->path) return true;
    memcpy(group->path + group->root, path, length);
    group->path[group->root + length] = 0;
    return true;
}

/* Goes to the group above; false at the mount point. */
static bool go_up(struct group *group)
{
    char *slash = strrchr(group->path, '/');
    if (!slash || (size_t)(slash - group->path) < group->root) return false;
    *slash = 0;
    return true;
}

static ssize_t read_of(const struct group *group, const char *name, char *value, size_t size)
{
    static char path[TFI_PATH_BYTES + 64];
    tfi_fmt(path, sizeof path, "%s/%s", group->path, name);
    return tfi_read_file(path, value, size);
}

/* Returns the number in a file of a group; NONE if there is none ("max", "-1"). */
static uint64_t number_of(const struct group *group, const char *name)
{
    char value[64], *end;
    if (read_of(group, name, value, sizeof value) <= 0) return NONE;
    uint64_t number = strtoul(value, &end, 10);
    return end == value || value[0] == '-' || number >= UNLIMITED ? NONE : number;
}

/* Returns the processors that a group may use, in thousandths; NONE if it has no quota. */
static uint64_t quota_of(const struct group *group)
{
    char value[64], *end;
    uint64_t quota, period;
    if (group->is_v2) {
        if (read_of(group, "cpu.max", value, sizeof value) <= 0) return NONE;
        quota = strtoul(value, &end, 10);
        if (end == value) return NONE;
        period = strtoul(end, NULL, 10);
    } else {
        quota = number_of(group, "cpu.cfs_quota_us");
        period = number_of(group, "cpu.cfs_period_us");
    }
    return quota == NONE || period == NONE || !period ? NONE : quota * 1000 / period;
}

static uint64_t memory_limit_of(const struct group *group)
{
    return number_of(group, group->is_v2 ? "memory.max" : "memory.limit_in_bytes");
}

/* Returns the smallest limit of a group and those above it. */
static uint64_t smallest(struct group *group, uint64_t (*limit)(const struct group *group))
{
    uint64_t least = NONE;
    do {
        uint64_t here = limit(group);
        if (here < least) least = here;
    } while (go_up(group));
    return least;
}

static char lines[4096]; /* /proc/self/cgroup; also read for the samples that follow the header */
static struct group group;

static bool read_groups(void)
{
    if (tfi_read_file("/proc/self/cgroup", lines, sizeof lines) > 0) return true;
    *lines = 0;
    return false;
}

static void add_limits(struct tfi_text *text)
{
    uint64_t limit;
    if (!read_groups()) return;
    if (find_group(lines, "cpu", &group) && (limit = smallest(&group, quota_of)) != NONE)
        add_number(text, "quota_millis", limit);
    if (find_group(lines, "memory", &group) && (limit = smallest(&group, memory_limit_of)) != NONE)
        add_number(text, "memory_limit", limit);
}

bool tfi_machine_cgroup_memory(char *path, size_t size)
{
    if (!find_group(lines, "memory", &group)) return false;
    const char *name = group.is_v2 ? "memory.current" : "memory.usage_in_bytes";
    do {
        tfi_fmt(path, size, "%s/%s", group.path, name);
        if (syscall(SYS_access, path, R_OK) == 0) return true;
    } while (go_up(&group));
    return false;
}

/* ---- the rest ---- */

static void add_memory(struct tfi_text *text)
{
    static struct sysinfo machine;
    if (syscall(SYS_sysinfo, &machine) == 0) add_number(text, "memory", (uint64_t)machine.totalram * machine.mem_unit);
}

/* Counts NVIDIA's devices that a process here can open. */
static void add_gpus(struct tfi_text *text)
{
    char path[32];
    uint64_t count = 0;
    bool has_driver = syscall(SYS_faccessat, -1, "/dev/nvidiactl", 0) == 0;
    for (unsigned i = 0; i < MOST_GPUS && has_driver; i++) {
        tfi_fmt(path, sizeof path, "/dev/nvidia%u", i);
        count += syscall(SYS_faccessat, -1, path, 0) == 0;
    }
    add_number(text, "gpus", count);
}

/* Settings of thread counts and of visible devices. Their values are small; a long one is left out. */
static void add_environment(struct tfi_text *text)
{
    static const char *const names[] = {"OMP_NUM_THREADS",       "MKL_NUM_THREADS",        "OPENBLAS_NUM_THREADS",
                                        "NUMEXPR_NUM_THREADS",   "OMP_PROC_BIND",          "OMP_PLACES",
                                        "KMP_AFFINITY",          "TOKENIZERS_PARALLELISM", "CUDA_VISIBLE_DEVICES",
                                        "NVIDIA_VISIBLE_DEVICES"};
    for (size_t i = 0; i < TFI_COUNT(names); i++) {
        const char *value = getenv(names[i]);
        if (value && strlen(value) < 256) tfi_text_add(text, "env.%s%c%s%c", names[i], 0, value, 0);
    }
}

void tfi_machine_header(struct tfi_text *text)
{
    add_processors(text);
    add_affinity(text);
    add_limits(text);
    add_memory(text);
    add_gpus(text);
    add_environment(text);
}
