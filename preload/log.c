/* log.c - messages: each is one line on stderr, and is kept for the trace.
 *
 * Messages wait in a small ring until a thread has a chunk for them; the oldest are kept, they say what went wrong.
 */
#include "log.h"

#include <errno.h>
#include <string.h>

#include "clock.h"
#include "fmt.h"
#include "stderr.h"
#include "strings.h"
#include "sys.h"
#include "thread.h"

#define KEPT 16

static struct tfi_lock lock;
static struct {
    uint64_t time;
    enum tfi_log_level level;
    char text[400];
} kept[KEPT];
static unsigned nr_kept, nr_flushed;

void tfi_log_restart(void)
{
    lock = (struct tfi_lock){0};
    nr_kept = nr_flushed = 0;
}

static void keep(enum tfi_log_level level, const char *text)
{
    if (!tfi_lock_within(&lock, 10)) return;
    tfi_clock_choose();
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
    if (level > tfi_config.log && level > TFI_LOG_WARN) return;
    va_start(args, format);
    memcpy(line, prefix, sizeof prefix);
    size_t used = sizeof prefix - 1;
    used += tfi_vfmt(line + used, sizeof line - used - 1, format, args);
    va_end(args);
    if (level <= TFI_LOG_WARN) keep(level, line + sizeof prefix - 1);
    line[used++] = '\n';
    if (level <= tfi_config.log) tfi_stderr_write(line, used);
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
        {EFBIG, "file size limit"},
        {ELOOP, "somebody else's symbolic link"},
        {ENOTDIR, "not a directory"},
        {EEXIST, "exists already"},
        {EDQUOT, "disk quota"},
        {EIO, "input/output error"},
        {EOPNOTSUPP, "not supported there"},
        {ENOMEM, "no memory"},
        {ENAMETOOLONG, "name too long"},
        {EPERM, "not permitted"},
        {ESTALE, "the file was moved away"},
        {ENODEV, "not supported there"},
        {EBADF, "descriptor was closed"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].error == error) return names[i].name;
    return "system error";
}

void tfi_log_flush(struct tfi_thread *thread)
{
    if (__atomic_load_n(&nr_flushed, __ATOMIC_RELAXED) == __atomic_load_n(&nr_kept, __ATOMIC_RELAXED)) return;
    if (!tfi_lock_within(&lock, 0)) return;
    for (; nr_flushed < nr_kept; nr_flushed++) {
        uint32_t text = tfi_string(kept[nr_flushed].text, strlen(kept[nr_flushed].text));
        struct tfi_rec_message *rec = TFI_RESERVE(thread, message);
        if (!rec) break;
        rec->text = text;
        rec->level = kept[nr_flushed].level;
        rec->reserved = 0;
        rec->time = kept[nr_flushed].time;
        tfi_commit(thread, sizeof *rec);
    }
    tfi_unlock(&lock);
}
