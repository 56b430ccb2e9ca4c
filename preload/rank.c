/* rank.c - rank, host and run directory.
 *
 * All processes of a job write into one directory. The first preloaded process decides its name, which may contain the
 * minute, and passes it on in TFI_RUN_DIR; so a launch across a minute boundary gives one directory. Several hosts have
 * no common first process: where the job has an id, the ranks agree through a small file beside the directory.
 * Nothing is created before a process wakes.
 */
#include "rank.h"

#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "config.h"
#include "fmt.h"
#include "sys.h"
#include "tfi.h"

/* Ranks of one job start within this time; an older agreement belongs to an earlier job of the same id. */
#define JOB_SECONDS 600
/* A marker made this shortly before this process started belongs to the same run. */
#define RUN_SECONDS 60

static bool number_of(const char *const *names, size_t count, uint32_t *number)
{
    for (size_t i = 0; i < count; i++) {
        const char *value = getenv(names[i]);
        char *end;
        if (!value || *value < '0' || *value > '9') continue;
        unsigned long n = strtoul(value, &end, 10);
        if (*end || n > UINT32_MAX) continue;
        *number = (uint32_t)n;
        return true;
    }
    return false;
}

static uint32_t rank_now, world_now = 1;

static void look_for_rank(void)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"};
    static const char *const sizes[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"};
    number_of(names, TFI_COUNT(names), &rank_now);
    number_of(sizes, TFI_COUNT(sizes), &world_now);
    if (!world_now) world_now = 1;
}

uint32_t tfi_rank(void)
{
    return rank_now;
}

uint32_t tfi_world(void)
{
    return world_now;
}

const char *tfi_host(void)
{
    static char host[72];
    struct utsname name;
    if (host[0]) return host;
    tfi_fmt(host, sizeof host, "%s", uname(&name) == 0 && name.nodename[0] ? name.nodename : "localhost");
    for (char *p = host; *p; p++)
        if (*p == '/' || *p == ' ' || (unsigned char)*p < 32) *p = '_';
    return host;
}

/* Absolute path of `value` with %h replaced, no trailing slash. */
static void absolute(const char *value, char *path, size_t size)
{
    size_t used = 0;
    if (*value != '/') {
        if (!getcwd(path, size)) tfi_fmt(path, size, "/tmp");
        used = strlen(path);
        if (used && path[used - 1] != '/') used += tfi_fmt(path + used, size - used, "/");
    }
    for (; *value && used + 1 < size; value++) {
        if (value[0] == '%' && value[1] == 'h') {
            used += tfi_fmt(path + used, size - used, "%s", tfi_host());
            value++;
        } else {
            path[used++] = *value;
        }
    }
    while (used > 1 && path[used - 1] == '/') used--;
    path[used] = 0;
}

/* True if `dir` is what a parent made of the relative path `value`. */
static bool made_from(const char *dir, const char *value)
{
    size_t all = strlen(dir), tail = strlen(value);
    return *value != '/' && !strstr(value, "%h") && all > tail && dir[all - tail - 1] == '/' &&
           strcmp(dir + all - tail, value) == 0;
}

static void decide(char *path, size_t size)
{
    char name[512];
    time_t now = time(NULL);
    struct tm tm;
    const char *inherited = tfi_config.inherited_dir;
    if (inherited && (!tfi_config.output_dir || made_from(inherited, tfi_config.output_dir))) {
        tfi_fmt(path, size, "%s", inherited);
    } else if (tfi_config.output_dir) {
        absolute(tfi_config.output_dir, path, size);
    } else {
        localtime_r(&now, &tm);
        size_t used = tfi_fmt(name, sizeof name - 20, "work_dirs/profiler_output/%s/", tfi_config.pipeline);
        strftime(name + used, sizeof name - used, "%Y%m%d_%H%M", &tm);
        absolute(name, path, size);
    }
}

#define ENTRY "TFI_RUN_DIR="
static char entry[sizeof ENTRY + 4096] = ENTRY;
static char *const run_dir = entry + sizeof ENTRY - 1;

const char *tfi_run_dir_entry(void)
{
    return *run_dir ? entry : NULL;
}

void tfi_run_dir_pass_on(void)
{
    static char live_dir[4096];
    look_for_rank();
    decide(run_dir, 4096);
    if (tfi_config.live_dir) {
        absolute(tfi_config.live_dir, live_dir, sizeof live_dir);
        tfi_config.live_dir = live_dir;
    }
    const char *there = getenv("TFI_RUN_DIR");
    if (!there || strcmp(there, run_dir) != 0) setenv("TFI_RUN_DIR", run_dir, 1);
}

/* Id of the job on all its hosts, if its launcher gives it one. */
static bool job_id(char *id, size_t size)
{
    const char *slurm = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID"),
               *elastic = getenv("TORCHELASTIC_RUN_ID");
    if (slurm) tfi_fmt(id, size, "slurm-%s.%s", slurm, step ? step : "0");
    else if (elastic && strcmp(elastic, "none") != 0) tfi_fmt(id, size, "run-%s", elastic);
    else return false;
    for (char *p = id; *p; p++)
        if (*p == '/' || (unsigned char)*p <= ' ') *p = '_';
    return true;
}

/* True if a note holds the name of a directory beside it and nothing else. */
static bool is_name(const char *name)
{
    const char *p = name;
    while (*p && *p != '/' && (unsigned char)*p >= ' ') p++;
    return *name && *name != '.' && !*p;
}

/* Replaces the directory's name by the one the first rank of the job wrote down. */
static void agree(char *path, size_t size)
{
    char id[200], file[4096], name[256];
    struct stat st;
    char *slash = strrchr(path, '/');
    if (!slash || slash == path || tfi_config.output_dir || !job_id(id, sizeof id)) return;
    *slash = 0;
    tfi_make_dirs(path);
    tfi_fmt(file, sizeof file, "%s/.%s", path, id);
    *slash = '/';
    if (stat(file, &st) == 0 && time(NULL) - st.st_mtime > JOB_SECONDS) unlink(file);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd >= 0) {
        syscall(SYS_write, fd, slash + 1, strlen(slash + 1));
        syscall(SYS_close, fd);
        return;
    }
    for (int tries = 0; tries < 50; tries++) {
        if (tfi_read_file(file, name, sizeof name) > 0 && is_name(name)) {
            tfi_fmt(slash + 1, size - (size_t)(slash + 1 - path), "%s", name);
            return;
        }
        struct timespec pause = {.tv_nsec = 2000000};
        syscall(SYS_nanosleep, &pause, NULL);
    }
}

bool tfi_run_dir_make(char *path, size_t size)
{
    look_for_rank(); /* scripts set RANK themselves before the first stage; what is gone by now was seen at start */
    tfi_fmt(path, size, "%s", run_dir);
    agree(path, size);
    return tfi_make_dirs(path);
}

static time_t process_start(void)
{
    struct stat st;
    return stat("/proc/self", &st) == 0 ? st.st_mtime : time(NULL);
}

bool tfi_run_dir_claim(const char *path)
{
    char marker[4096];
    struct stat st;
    tfi_fmt(marker, sizeof marker, "%s/.warned", path);
    if (stat(marker, &st) == 0 && st.st_mtime < process_start() - RUN_SECONDS) unlink(marker);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, marker, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd >= 0) syscall(SYS_close, fd);
    return fd >= 0 || errno != EEXIST;
}

static void add_pair(struct tfi_text *text, const char *key, const char *value)
{
    tfi_text_bytes(text, key, strlen(key) + 1);
    tfi_text_bytes(text, value, strlen(value) + 1);
}

static void add_number(struct tfi_text *text, const char *key, uint64_t value)
{
    char digits[24];
    tfi_fmt(digits, sizeof digits, "%lu", (unsigned long)value);
    add_pair(text, key, digits);
}

/* Field 22 of /proc/self/stat: with pid and boot id it names this process for ever. */
static uint64_t start_time(void)
{
    char stat_line[1024];
    if (tfi_read_file("/proc/self/stat", stat_line, sizeof stat_line) <= 0) return 0;
    char *p = strrchr(stat_line, ')');
    for (int field = 2; p && field < 22; field++) p = strchr(p + 1, ' ');
    return p ? strtoull(p + 1, NULL, 10) : 0;
}

static void add_file(struct tfi_text *text, const char *key, const char *path, char separator)
{
    char value[2048];
    ssize_t n = tfi_read_file(path, value, sizeof value);
    if (n <= 0) return;
    for (ssize_t i = 0; i < n; i++)
        if (value[i] == 0 || value[i] == '\n') value[i] = separator;
    while (n > 0 && value[n - 1] == separator) value[--n] = 0;
    add_pair(text, key, value);
}

static void add_link(struct tfi_text *text, const char *key, const char *path)
{
    char value[4096];
    ssize_t n = readlink(path, value, sizeof value - 1);
    if (n <= 0) return;
    value[n] = 0;
    add_pair(text, key, value);
}

void tfi_rank_header(struct tfi_text *text)
{
    struct utsname name;
    const struct tfi_clock_pair *first = tfi_clock_first();
    add_pair(text, "host", tfi_host());
    add_file(text, "boot_id", "/proc/sys/kernel/random/boot_id", ' ');
    add_number(text, "pid", (uint64_t)tfi_getpid());
    add_number(text, "parent", (uint64_t)getppid());
    add_number(text, "start_time", start_time());
    add_number(text, "rank", tfi_rank());
    add_number(text, "world", tfi_world());
    add_pair(text, "pipeline", tfi_config.pipeline);
    add_file(text, "command", "/proc/self/cmdline", ' ');
    add_link(text, "program", "/proc/self/exe");
    add_link(text, "directory", "/proc/self/cwd");
    add_pair(text, "version", TFI_VERSION);
    add_pair(text, "libc", gnu_get_libc_version());
    if (uname(&name) == 0) add_pair(text, "kernel", name.release);
    add_pair(text, "clock", tfi_clock_is_tsc ? "tsc" : "monotonic");
    add_number(text, "clock.ticks", first->ticks);
    add_number(text, "clock.realtime", first->realtime);
    add_number(text, "clock.monotonic", first->monotonic);
    add_number(text, "clock.error", first->error);
}
