/* log.c - writes messages as lines on stderr, and keeps errors and warnings for the trace.
 *
 * A kind of message is written by one process of a run; the traces of all processes have it. A message quotes names and
 * paths of others, so bytes that would change a terminal are replaced.
 *
 * Messages wait in a small array until a thread has a chunk for them. When it is full, new ones are not kept: the
 * oldest say what went wrong.
 */
#include "record/log.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "base/fmt.h"
#include "base/stderr.h"
#include "base/sys.h"
#include "record/clock.h"

#define KEPT 16

static struct tfi_lock lock;
static struct tfi_kept kept[KEPT];
static unsigned nr_kept, nr_flushed;
static pid_t owner;              /* the process whose messages are kept; a forked child finds its parent here */
static enum tfi_log_level shown; /* this level and those before it go to stderr */
static bool (*may_say)(const char *kind);

void tfi_log_asks(bool (*asked)(const char *kind))
{
    may_say = asked;
}

void tfi_log_set_level(enum tfi_log_level level)
{
    shown = level;
}

void tfi_log_restart(void)
{
    if (!tfi_lock_within(&lock, 10)) return;
    if (owner != tfi_getpid() || nr_flushed == nr_kept) nr_kept = nr_flushed = 0;
    tfi_unlock(&lock);
}

static void keep_message(enum tfi_log_level level, const char *text)
{
    if (!tfi_lock_within(&lock, 10)) return;
    tfi_clock_choose();
    if (owner != tfi_getpid()) nr_kept = nr_flushed = 0;
    owner = tfi_getpid();
    if (nr_kept < KEPT) {
        kept[nr_kept].time = tfi_ticks();
        kept[nr_kept].level = level;
        tfi_fmt(kept[nr_kept].text, sizeof kept[0].text, "%s", text);
        nr_kept++;
    }
    tfi_unlock(&lock);
}

void tfi_log(enum tfi_log_level level, const char *format, ...)
{
    static const char prefix[] = "tfinject: ";
    char line[1024];
    int error = errno;
    va_list args;
    if (level > shown && level > TFI_LOG_WARN) return;
    va_start(args, format);
    memcpy(line, prefix, sizeof prefix);
    size_t used = sizeof prefix - 1;
    used += tfi_vfmt(line + used, sizeof line - used - 1, format, args);
    va_end(args);
    tfi_text_plain(line, used);
    if (level <= TFI_LOG_WARN) keep_message(level, line + sizeof prefix - 1);
    bool say = level <= shown;
    if (say && level <= TFI_LOG_WARN && may_say)
        say = may_say(strcmp(format, "%s") == 0 ? line + sizeof prefix - 1 : format);
    line[used++] = '\n';
    if (say) tfi_stderr_write(line, used);
    errno = error;
}

const char *tfi_error_name(int error)
{
    static const struct {
        int error;
        const char *name;
    } names[] = {
        {EACCES, "permission denied"},
        {ENOSPC, "no space left"},
        {EROFS, "read-only file system"},
        {ENOENT, "no such file or directory"},
        {EMFILE, "too many open files"},
        {ENFILE, "too many open files in the system"},
        {EFBIG, "file size limit reached"},
        {ELOOP, "a symbolic link of another user"},
        {ENOTDIR, "not a directory"},
        {EEXIST, "already exists"},
        {EDQUOT, "disk quota exceeded"},
        {EIO, "input/output error"},
        {EOPNOTSUPP, "not supported by this file system"},
        {ENOMEM, "out of memory"},
        {ENAMETOOLONG, "name too long"},
        {EPERM, "not permitted"},
        {ESTALE, "the file was moved away"},
        {ENODEV, "not supported by this file system"},
        {EBADF, "descriptor was closed"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].error == error) return names[i].name;
    return "system error";
}

void tfi_log_each(bool (*take)(void *context, const struct tfi_kept *message), void *context)
{
    if (__atomic_load_n(&nr_flushed, __ATOMIC_RELAXED) == __atomic_load_n(&nr_kept, __ATOMIC_RELAXED)) return;
    if (!tfi_lock_within(&lock, 0)) return;
    while (nr_flushed < nr_kept && take(context, &kept[nr_flushed])) nr_flushed++;
    tfi_unlock(&lock);
}
