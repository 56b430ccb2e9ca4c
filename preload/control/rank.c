/* rank.c - finds this process's rank and host, and its run directory.
 *
 * All processes of a job write into one directory. The first preloaded process decides its name, which may contain the
 * minute, and passes it on in TFI_RUN_DIR; so a launch across a minute boundary gives one directory. Several hosts have
 * no common first process. If the job has an id, its ranks agree through a small file beside the directory.
 * Two jobs that begin in the same minute decide on the same name. So the first process also passes on a token, and the
 * first process to wake leaves it in the directory. A job that finds another job's token there takes the next name.
 * The token begins with the number of the process that decided: that process ends the run (once.c), also after an
 * exec. A directory that the user chose is final; there the token only names the run.
 * Nothing is created before a process wakes.
 */
#include "control/rank.h"

#include <errno.h>
#include <gnu/libc-version.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/files.h"
#include "base/fmt.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "control/command.h"
#include "control/config.h"
#include "record/clock.h"
#include "record/log.h"

/* Ranks of one job start within this time; an older agreement belongs to an earlier job of the same id. */
#define JOB_SECONDS 600

static bool number_of(const char *const *names, size_t count, uint32_t *number)
{
    for (size_t i = 0; i < count; i++) {
        const char *value = getenv(names[i]);
        uint64_t n;
        if (!value || !tfi_whole_number(value, 0, UINT32_MAX, &n)) continue;
        *number = (uint32_t)n;
        return true;
    }
    return false;
}

static uint32_t rank_now, world_now = 1;
static bool is_numbered;

static void look_for_rank(void)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"};
    static const char *const sizes[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"};
    bool has_rank = number_of(names, TFI_COUNT(names), &rank_now);
    bool has_world = number_of(sizes, TFI_COUNT(sizes), &world_now);
    if (!world_now) world_now = 1;
    is_numbered = world_now > 1 || (has_rank && !has_world);
}

uint32_t tfi_rank(void)
{
    return rank_now;
}

uint32_t tfi_world(void)
{
    return world_now;
}

bool tfi_rank_is_numbered(void)
{
    return is_numbered;
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

static bool lost; /* the working directory was deleted: relative paths begin at /tmp instead */

bool tfi_run_dir_is_lost(void)
{
    return lost;
}

/* Makes `value` an absolute path, with %h replaced and no trailing slash. */
static void absolute(const char *value, char *path, size_t size)
{
    size_t used = 0;
    if (*value != '/') {
        lost = !getcwd(path, size);
        if (lost) tfi_fmt(path, size, "/tmp");
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

/* True if `dir` is the absolute path that a parent made of the relative path `value`. */
static bool made_from(const char *dir, const char *value)
{
    size_t all = strlen(dir), tail = strlen(value);
    return *value != '/' && !strstr(value, "%h") && all > tail && dir[all - tail - 1] == '/' &&
           strcmp(dir + all - tail, value) == 0;
}

#define TOKEN_BYTES 48
static char run_dir[4096];
static char token[TOKEN_BYTES]; /* names the run by the process that decided on its directory; "" if none says so */
static bool is_final;           /* the directory was chosen, and gets no number */
static pid_t moved;             /* the process that has left the directory which its parent passed on */

/* The process that decides makes the token. */
static void begin_run(bool final)
{
    is_final = final;
    tfi_fmt(token, sizeof token, "%u-%lx", (unsigned)tfi_getpid(), (unsigned long)tfi_realtime_ns());
}

/* Takes over the directory and the token that a parent has passed on, as DIRECTORY, DIRECTORY//TOKEN or, where it is
 * final, DIRECTORY///TOKEN. */
static void inherit(const char *inherited, char *path, size_t size)
{
    const char *tail = strstr(inherited, "//");
    size_t length = tail ? (size_t)(tail - inherited) : strlen(inherited);
    tfi_fmt(path, size, "%s", inherited);
    if (length < size) path[length] = 0;
    is_final = !tail || tail[2] == '/';
    tfi_fmt(token, sizeof token, "%s", tail ? tail + 2 + is_final : "");
}

static void decide(char *path, size_t size, const char *minute)
{
    static char wanted[4096];
    char name[512];
    const char *inherited = tfi_config.inherited_dir;
    if (inherited) inherit(inherited, path, size);
    if (tfi_config.output_dir && !(inherited && made_from(path, tfi_config.output_dir))) {
        absolute(tfi_config.output_dir, wanted, sizeof wanted);
        if (!inherited || strcmp(wanted, path) != 0) begin_run(true);
        tfi_fmt(path, size, "%s", wanted);
    } else if (!inherited) {
        size_t used = tfi_fmt(name, sizeof name - 20, "work_dirs/profiler_output/%s/", tfi_config.pipeline);
        tfi_fmt(name + used, sizeof name - used, "%s", minute);
        absolute(name, path, size);
        begin_run(false);
    }
}

#define ENTRY "TFI_RUN_DIR="
static char entry[sizeof ENTRY + 4096 + TOKEN_BYTES];

const char *tfi_run_dir_entry(void)
{
    return *entry ? entry : NULL;
}

static void write_entry(void)
{
    if (tfi_config.secure) return;
    tfi_fmt(entry, sizeof entry, ENTRY "%s%s%s", run_dir, !*token ? "" : is_final ? "///" : "//", token);
}

void tfi_run_dir_begin(const char *minute)
{
    static char live_dir[4096];
    look_for_rank();
    decide(run_dir, sizeof run_dir, minute);
    if (tfi_config.live_dir) {
        absolute(tfi_config.live_dir, live_dir, sizeof live_dir);
        tfi_config.live_dir = live_dir;
    }
    write_entry();
}

static bool making;         /* until it is done no message can be looked up there */
static char made_dir[4096]; /* the directory made at wake, "" before */

/* Replaces the pipeline in the default name. The minute stays, because the job's processes agree on it. */
static void with_pipeline(const char *pipeline, char *path, size_t size)
{
    static const char parent[] = "/work_dirs/profiler_output/";
    const char *found = strstr(run_dir, parent), *minute = strrchr(run_dir, '/');
    tfi_fmt(path, size, "%s", run_dir);
    if (!found || !*pipeline || strchr(pipeline, '/')) return;
    size_t head = (size_t)(found - run_dir) + sizeof parent - 1;
    if (head < size) tfi_fmt(path + head, size - head, "%s%s", pipeline, minute);
}

bool tfi_run_dir_choose(const char *dir, const char *pipeline, char *place, size_t size)
{
    static char own_dir[4096], own_pipeline[512], wanted[4096];
    tfi_fmt(wanted, sizeof wanted, "%s", run_dir);
    if (dir) absolute(dir, wanted, sizeof wanted);
    else if (pipeline && !tfi_config.output_dir) with_pipeline(pipeline, wanted, sizeof wanted);
    bool same = strcmp(wanted, run_dir) == 0;
    if (!same && !*made_dir) {
        tfi_fmt(run_dir, sizeof run_dir, "%s", wanted);
        moved = tfi_getpid();
        if (dir) begin_run(true);
        write_entry();
        if (dir) {
            tfi_fmt(own_dir, sizeof own_dir, "%s", wanted);
            tfi_config.output_dir = own_dir;
        }
        same = true;
    }
    if (pipeline && !*made_dir) {
        tfi_fmt(own_pipeline, sizeof own_pipeline, "%s", pipeline);
        tfi_config.pipeline = own_pipeline;
    }
    tfi_fmt(place, size, "%s", !same ? wanted : *made_dir ? made_dir : run_dir);
    return same;
}

/* Id of the job, the same on all its hosts; false if its launcher gives none. */
static bool job_id(char *id, size_t size)
{
    const char *slurm = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID"),
               *elastic = getenv("TORCHELASTIC_RUN_ID"), *mpirun = getenv("PMIX_NAMESPACE");
    if (slurm) tfi_fmt(id, size, "slurm-%s.%s", slurm, step ? step : "0");
    else if (elastic && strcmp(elastic, "none") != 0) tfi_fmt(id, size, "run-%s", elastic);
    else if (mpirun) tfi_fmt(id, size, "mpi-%s", mpirun);
    else return false;
    for (char *p = id; *p; p++)
        if (*p == '/' || (unsigned char)*p <= ' ') *p = '_';
    return true;
}

/* True if a note's text is a plain name of a directory beside it. */
static bool is_name(const char *name)
{
    const char *p = name;
    while (*p && *p != '/' && (unsigned char)*p >= ' ') p++;
    return *name && *name != '.' && !*p;
}

static bool is_older_than(const struct stat *st, time_t seconds, time_t than)
{
    return st->st_mtime < than - seconds;
}

/* Makes a note with the text `line`, which may be empty; false with errno set, EEXIST if the note exists. */
static bool leave_note(struct tfi_dir *dir, const char *name, const char *line)
{
    static struct tfi_file note;
    uint64_t size = 0;
    struct iovec part = {(void *)line, strlen(line)};
    if (!tfi_file_create(&note, dir, name)) return false;
    bool ok = tfi_file_append(&note, &size, &part, 1);
    int error = errno;
    tfi_file_close(&note);
    errno = error;
    return ok;
}

/* Reads the note that another rank of this job has left. Waits up to 0.1 s, because that rank may still be writing it.
 * False if there is no note to trust, with EPERM if it is not a regular file of ours. */
static bool read_note(struct tfi_dir *dir, const char *note, char *name, size_t size)
{
    struct timespec pause = {.tv_nsec = 2000000};
    for (int tries = 0; tries < 50; tries++) {
        ssize_t length = tfi_dir_read(dir, note, name, size);
        if (length > 0 && is_name(name)) return true;
        if (length < 0 && errno == EPERM) return false;
        syscall(SYS_nanosleep, &pause, NULL);
    }
    errno = EAGAIN;
    return false;
}

static void refuse(struct tfi_dir *dir, const char *note)
{
    if (errno != EPERM) return;
    tfi_log(TFI_LOG_WARN,
            "%s/%s is not a regular file of yours and is ignored; set TFI_OUTPUT_DIR on all ranks, so that they agree",
            dir->path, note);
}

/* Replaces the directory's name by the one that the first rank of the job has left in a note. A process that makes its
 * directory leaves the note itself if there is none. `beside` is used meanwhile. */
static void agree(char *path, size_t size, struct tfi_dir *beside, bool make)
{
    char id[200], note[TFI_NAME_BYTES], name[TFI_NAME_BYTES];
    struct stat st;
    char *slash = strrchr(path, '/');
    if (!slash || slash == path || tfi_config.output_dir || !job_id(id, sizeof id)) return;
    *slash = 0;
    bool opened = make ? tfi_dir_make(beside, path) : tfi_dir_open(beside, path);
    *slash = '/';
    if (!opened) return;
    tfi_fmt(note, sizeof note, ".%s", id);
    if (make && tfi_dir_look(beside, note, &st) && is_older_than(&st, JOB_SECONDS, time(NULL)))
        tfi_dir_remove(beside, note);
    bool there = make ? !leave_note(beside, note, slash + 1) && errno == EEXIST : tfi_dir_has(beside, note);
    if (there && read_note(beside, note, name, sizeof name))
        tfi_fmt(slash + 1, size - (size_t)(slash + 1 - path), "%s", name);
    else if (there && make) refuse(beside, note);
    tfi_dir_close(beside);
}

/* True if another user made the file: root can write beside it. On a file server that maps root to nobody, root's own
 * files belong to nobody. */
static bool is_anothers(struct tfi_dir *dir, const char *name)
{
    enum { NOBODY = 65534 };
    struct stat st;
    return tfi_dir_look(dir, name, &st) && st.st_uid != geteuid() && !(geteuid() == 0 && st.st_uid == NOBODY);
}

const char *tfi_run_token(void)
{
    return token;
}

bool tfi_run_is_mine(void)
{
    pid_t process = tfi_getpid();
    return moved == process || (*token && strtoul(token, NULL, 10) == (unsigned long)process);
}

/* True if the directory is this job's; the first process of a job leaves the job's name in it. */
static bool is_own(struct tfi_dir *dir, bool make)
{
    char id[200], owner[TFI_NAME_BYTES];
    if (!job_id(id, sizeof id)) tfi_fmt(id, sizeof id, "%s", token);
    if (make && (leave_note(dir, ".job", id) || errno != EEXIST)) return true;
    if (!tfi_dir_has(dir, ".job")) return false;
    if (is_anothers(dir, ".job")) return false;
    if (read_note(dir, ".job", owner, sizeof owner)) return strcmp(owner, id) == 0;
    if (make) refuse(dir, ".job");
    return true;
}

/* Opens the default directory, or the first with a number appended that no other job has. */
static bool open_own(struct tfi_dir *dir, char *path, size_t size, bool make)
{
    enum { MOST_JOBS = 100 };
    size_t length = strlen(path);
    for (unsigned n = 2; n < MOST_JOBS; n++) {
        if (!(make ? tfi_dir_make(dir, path) : tfi_dir_open(dir, path))) return false;
        if (is_final || !*token || is_own(dir, make)) return true;
        tfi_dir_close(dir);
        tfi_fmt(path + length, size - length, "~%u", n);
    }
    errno = EEXIST;
    return false;
}

bool tfi_run_dir_make(struct tfi_dir *dir)
{
    static char path[TFI_PATH_BYTES];
    making = true;
    look_for_rank(); /* a script may set RANK before the first stage; a variable removed since was read at start */
    tfi_fmt(path, sizeof path, "%s", run_dir);
    agree(path, sizeof path, dir, true);
    bool made = open_own(dir, path, sizeof path, true);
    if (made) tfi_fmt(made_dir, sizeof made_dir, "%s", path);
    making = false;
    return made;
}

bool tfi_run_dir_open(struct tfi_dir *dir)
{
    static char path[TFI_PATH_BYTES];
    if (making) return false;
    if (*made_dir) return tfi_dir_open(dir, made_dir);
    tfi_fmt(path, sizeof path, "%s", run_dir);
    agree(path, sizeof path, dir, false);
    return open_own(dir, path, sizeof path, false);
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

/* Field 22 of /proc/self/stat. With pid and boot id it identifies this process for ever. */
static uint64_t start_time(void)
{
    char stat_line[512]; /* the first part of the line */
    if (tfi_read_file("/proc/self/stat", stat_line, sizeof stat_line) <= 0) return 0;
    char *p = strrchr(stat_line, ')');
    for (int field = 2; p && field < 22; field++) p = strchr(p + 1, ' ');
    return p ? strtoull(p + 1, NULL, 10) : 0;
}

/* Adds a pair with the text of a file, read straight into the header's buffer. */
static void add_file(struct tfi_text *text, const char *key, const char *path, char separator)
{
    size_t start = text->used, limit = 2048;
    tfi_text_bytes(text, key, strlen(key) + 1);
    if (text->full || text->size - text->used <= limit) return;
    char *value = text->data + text->used;
    ssize_t n = tfi_read_file(path, value, limit);
    for (ssize_t i = 0; i < n; i++)
        if (value[i] == 0 || value[i] == '\n') value[i] = separator;
    while (n > 0 && value[n - 1] == separator) value[--n] = 0;
    text->used = n > 0 ? text->used + (size_t)n + 1 : start;
}

static void add_link(struct tfi_text *text, const char *key, const char *path)
{
    size_t start = text->used, limit = TFI_PATH_BYTES;
    tfi_text_bytes(text, key, strlen(key) + 1);
    if (text->full || text->size - text->used <= limit) return;
    ssize_t n = tfi_readlink(path, text->data + text->used, limit - 1);
    if (n > 0) text->data[text->used + (size_t)n] = 0;
    text->used = n > 0 ? text->used + (size_t)n + 1 : start;
}

void tfi_rank_header(struct tfi_text *text)
{
    struct utsname name;
    const struct tfi_clock_pair *first = tfi_clock_first();
    add_pair(text, "host", tfi_host());
    add_file(text, "boot_id", "/proc/sys/kernel/random/boot_id", ' ');
    add_number(text, "pid", (uint64_t)tfi_getpid());
    add_link(text, "pid_namespace", "/proc/self/ns/pid");
    add_number(text, "parent", (uint64_t)getppid());
    add_number(text, "start_time", start_time());
    add_number(text, "rank", tfi_rank());
    add_number(text, "world", tfi_world());
    add_pair(text, "pipeline", tfi_config.pipeline);
    tfi_command_header(text);
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
