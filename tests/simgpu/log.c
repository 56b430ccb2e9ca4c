/* log.c - the reference for tests: a line of JSON for each call and each piece of device work, in SIMGPU_LOG's file.
 *
 * `%p` in the file's name becomes the process id. Each line is one write by the bare system call, so that it survives a
 * kill and no wrapper of write() sees it. Times of calls are CLOCK_MONOTONIC; by `told` the subscribers know of the
 * end; `waited` is the moment on
 * the device that the call waited for, 0 if it waited for none. Times of device work, and those that events record,
 * count from their device's anchor, and a line for the device states the anchor in both host clocks.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "model.h"

static int fd = -1;

/* Called also in the child of a fork, which gets a file of its own if the name contains %p. */
void sim_log_open(void)
{
    const char *pattern = getenv("SIMGPU_LOG"), *p;
    char path[4096];
    if (!pattern || !*pattern) return;
    if ((p = strstr(pattern, "%p")))
        snprintf(path, sizeof path, "%.*s%d%s", (int)(p - pattern), pattern, (int)getpid(), p + 2);
    else snprintf(path, sizeof path, "%s", pattern);
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) sim_say("simgpu: SIMGPU_LOG: cannot open %s\n", path);
}

bool sim_logging(void)
{
    return fd >= 0;
}

void sim_log(const char *format, ...)
{
    char line[8192];
    va_list ap;
    if (fd < 0) return;
    va_start(ap, format);
    int n = vsnprintf(line, sizeof line - 1, format, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof line - 1) n = snprintf(line, sizeof line - 1, "{\"t\":\"too long\"}");
    line[n++] = '\n';
    syscall(SYS_write, fd, line, (size_t)n);
}

void sim_log_device(int device)
{
    const struct device *d = &sim_devices[device];
    sim_log("{\"t\":\"device\",\"device\":%d,\"pid\":%d,\"monotonic\":%llu,\"realtime\":%llu,\"memory\":%llu}", device,
            (int)getpid(), (unsigned long long)d->anchor, (unsigned long long)d->anchor_real,
            (unsigned long long)d->total);
}

void sim_log_event(const struct where *where, uint64_t time)
{
    int device = where->ctx->device;
    sim_log("{\"t\":\"event\",\"device\":%d,\"context\":%u,\"stream\":%u,\"time\":%llu}", device, where->ctx->head.id,
            where->stream_id, (unsigned long long)(time - sim_devices[device].anchor));
}
