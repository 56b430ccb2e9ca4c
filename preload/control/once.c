/* once.c - lets one process of a run say what all of its processes would: each warning, and at the end where the traces are.
 *
 * The file .said in the run directory decides. A process that has something to say looks for a line of its kind there and
 * adds one if there is none; of several that did so at once the first line counts. A line belongs to this run if it has
 * the run's token. Ranks that were started one by one have tokens of their own, so a line that was written since this
 * process began belongs to the run as well, or a minute before that where a launcher has numbered the ranks. While no
 * process has made a run directory, a file in /dev/shm takes its place; the process that ends the run removes it.
 * A process that can use neither speaks.
 *
 * Any thread may come here, with little stack, so no buffer lies on it. A lock that cannot be taken means: speak.
 */
#include "control/once.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/files.h"
#include "base/fmt.h"
#include "base/process.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "control/config.h"
#include "control/rank.h"
#include "control/trace.h"
#include "record/clock.h"
#include "record/log.h"
#include "record/pool.h"

#define SAID ".said"
#define TRACE "a trace" /* not said, but noted: this run has traces */
#define RANKS_START_WITHIN_NS 60000000000u

static struct tfi_lock lock;
static struct {
    uint64_t kind;
    pid_t process; /* 0: free */
    bool mine;
} known[64];
static struct room {
    struct tfi_dir place; /* the run directory, where no trace of this process is open */
    char text[16384], name[TFI_NAME_BYTES], line[256], path[TFI_PATH_BYTES];
} * room;                /* mapped when the first thing is said: a program may have little room for variables */
static bool is_parent;   /* this process has made others */
static bool uses_memory; /* it has a line in /dev/shm */

static uint64_t number_of(const char *kind)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *kind; kind++) hash = (hash ^ (unsigned char)*kind) * 0x100000001b3u;
    return hash;
}

/* The run directory, NULL if there is none. */
static struct tfi_dir *run_dir(void)
{
    if (tfi_trace_dir.inode && tfi_trace_pid == tfi_getpid()) return &tfi_trace_dir;
    return tfi_run_dir_open(&room->place) ? &room->place : NULL;
}

/* A line is KIND PID TIME TOKEN, the first three in hexadecimal. True if it says that this run has said the kind. */
static bool is_said(const char *line, uint64_t kind)
{
    char *end;
    if (strtoul(line, &end, 16) != kind) return false;
    strtoul(end, &end, 16);
    uint64_t time = strtoul(end, &end, 16), began = tfi_clock_first()->realtime;
    const char *token = tfi_run_token();
    size_t length = strlen(token);
    if (length && *end == ' ' && strncmp(end + 1, token, length) == 0 && end[1 + length] == '\n') return true;
    return time + (tfi_rank_is_numbered() ? RANKS_START_WITHIN_NS : 0) >= began;
}

/* The first of the lines that were read into room->text that says it; NULL if there is none. */
static const char *find_line(ssize_t bytes, uint64_t kind)
{
    for (const char *line = room->text; bytes > 0 && *line; line++) {
        const char *end = strchr(line, '\n');
        if (!end) return NULL;
        if (is_said(line, kind)) return line;
        line = end;
    }
    return NULL;
}

/* Opens the file; removes it first where lines of many runs fill it. */
static int open_lines(struct tfi_dir *dir, const char *name, uint64_t *size)
{
    int fd = tfi_dir_open_lines(dir, name, size);
    if (fd < 0 || *size < sizeof room->text - sizeof room->line) return fd;
    syscall(SYS_close, fd);
    tfi_dir_remove(dir, name);
    return tfi_dir_open_lines(dir, name, size);
}

/* True if this process is the first to say it by the file `name`, or if there can be no such file. */
static bool claim(struct tfi_dir *dir, const char *name, uint64_t kind, bool *possible)
{
    char *line = room->line;
    uint64_t size;
    int fd = open_lines(dir, name, &size);
    *possible = fd >= 0;
    const char *first = *possible ? find_line(tfi_lines_read(fd, room->text, sizeof room->text), kind) : NULL;
    bool mine = !first;
    if (*possible && mine) {
        size_t length = tfi_fmt(line, sizeof room->line, "%lx %x %lx %s\n", (unsigned long)kind, (unsigned)tfi_getpid(),
                                (unsigned long)tfi_realtime_ns(), tfi_run_token());
        *possible = tfi_lines_add(fd, line, size);
        first = *possible ? find_line(tfi_lines_read(fd, room->text, sizeof room->text), kind) : NULL;
        mine = !first || strncmp(first, line, length) == 0;
    }
    if (fd >= 0) syscall(SYS_close, fd);
    return mine;
}

#define MEMORY "/dev/shm"

/* Sets the file's name in memory; false if this run has none. */
static bool name_memory(void)
{
    const char *token = tfi_run_token();
    tfi_fmt(room->name, sizeof room->name, "tfinject.%u.%s.said", (unsigned)geteuid(), token);
    return *token && !strchr(token, '/');
}

static bool open_memory(void)
{
    return name_memory() && tfi_dir_open(&room->place, MEMORY);
}

/* True if the file is there: most runs need none. */
static bool is_in_memory(void)
{
    struct stat st;
    if (!name_memory()) return false;
    tfi_fmt(room->line, sizeof room->line, MEMORY "/%s", room->name);
    return tfi_stat(room->line, &st) == 0;
}

static bool decide(uint64_t kind)
{
    bool possible = false, first = true;
    struct tfi_dir *dir = run_dir();
    if (dir) first = claim(dir, SAID, kind, &possible);
    tfi_dir_close(&room->place);
    uses_memory |= !possible;
    if (!possible && open_memory()) first = claim(&room->place, room->name, kind, &possible);
    tfi_dir_close(&room->place);
    return first;
}

bool tfi_once(const char *text)
{
    uint64_t kind = number_of(text);
    pid_t process = tfi_getpid();
    size_t i = 0;
    if (tfi_config.secure || !tfi_lock_within(&lock, 100)) return true;
    while (i < TFI_COUNT(known) && known[i].process == process && known[i].kind != kind) i++;
    bool mine = true;
    if (i < TFI_COUNT(known) && tfi_map_once(&room, sizeof *room)) {
        if (known[i].process != process) {
            for (size_t k = i; k < TFI_COUNT(known); k++) known[k].process = 0; /* a parent's */
            known[i].mine = decide(kind);
            known[i].kind = kind;
            known[i].process = process;
        }
        mine = known[i].mine;
    }
    tfi_unlock(&lock);
    return mine;
}

/* ---- the end of a run ---- */

void tfi_run_has_child(void)
{
    if (TFI_UNLIKELY(!is_parent)) is_parent = true;
}

/* True if a process of this run has opened a trace in the directory, which still has its name. */
static bool has_traces(struct tfi_dir *dir)
{
    struct stat st;
    if (tfi_stat(dir->path, &st) != 0 || st.st_dev != dir->device || st.st_ino != dir->inode) return false;
    if (dir == &tfi_trace_dir) return true;
    return find_line(tfi_dir_read(dir, SAID, room->text, sizeof room->text), number_of(TRACE));
}

/* A time of the file would not do: the clock of files is late by up to 10 ms, and an earlier run may have ended since. */
void tfi_run_has_trace(void)
{
    tfi_once(TRACE);
}

void tfi_run_ends(const char *reason)
{
    static bool done;
    bool traces = false, awake = tfi_trace_dir.inode && tfi_trace_pid == tfi_getpid();
    if (done || tfi_config.secure || strcmp(reason, "exec") == 0) return;
    if (!(awake || is_parent || uses_memory) || !tfi_run_is_mine()) return;
    done = true;
    if (!tfi_map_once(&room, sizeof *room) || !tfi_lock_within(&lock, 100)) return;
    struct tfi_dir *dir = run_dir();
    if (dir) traces = has_traces(dir);
    if (traces) tfi_fmt(room->path, sizeof room->path, "%s", dir->path);
    if (dir && is_parent) tfi_pool_remove_left(dir);
    tfi_dir_close(&room->place);
    if (is_in_memory() && open_memory()) tfi_dir_remove(&room->place, room->name);
    tfi_dir_close(&room->place);
    tfi_unlock(&lock);
    const char *quote = strpbrk(room->path, " '\"\\$`&;|<>()*?[]{}#!") ? "'" : "";
    if (traces) tfi_log(TFI_LOG_WARN, "the traces are ready for: tfanalyze %s%s%s", quote, room->path, quote);
}

void tfi_once_constructor(void)
{
    tfi_log_asks(tfi_once);
}
