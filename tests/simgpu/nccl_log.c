/* nccl_log.c - the reference for tests: a line of JSON for each call, communicator and kernel, in SIMNCCL_LOG's file.
 *
 * `%p` in the file's name becomes the process id. Lines are written by the bare system call, like the simulated
 * driver's. All times are CLOCK_MONOTONIC.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nccl_sim.h"

static int fd = -1;

void simnccl_say(const char *format, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (n > 0) syscall(SYS_write, 2, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

static void open_log(void)
{
    const char *pattern = getenv("SIMNCCL_LOG"), *p;
    char path[4096];
    simnccl_say("simnccl: a simulated NCCL: ranks of one machine, data through shared memory, times are computed\n");
    if (!pattern || !*pattern) return;
    if ((p = strstr(pattern, "%p")))
        snprintf(path, sizeof path, "%.*s%d%s", (int)(p - pattern), pattern, (int)getpid(), p + 2);
    else snprintf(path, sizeof path, "%s", pattern);
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) simnccl_say("simnccl: no log: %s can't be opened\n", path);
}

void simnccl_log(const char *format, ...)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char line[16384];
    va_list ap;
    pthread_once(&once, open_log);
    if (fd < 0) return;
    va_start(ap, format);
    int n = vsnprintf(line, sizeof line - 1, format, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof line - 1) n = snprintf(line, sizeof line - 1, "{\"t\":\"too long\"}");
    line[n++] = '\n';
    syscall(SYS_write, fd, line, (size_t)n);
}

void simnccl_log_comm(const char *function, ncclComm_t comm, const char *parent, int result)
{
    simnccl_log(
        "{\"t\":\"comm\",\"func\":\"%s\",\"comm\":\"%s\",\"rank\":%d,\"ranks\":%d,\"parent\":\"%s\",\"handle\":%llu,"
        "\"result\":%d,\"pid\":%d}",
        function, comm ? comm->id : "", comm ? comm->rank : -1, comm ? comm->ranks : 0, parent ? parent : "",
        (unsigned long long)(uintptr_t)comm, result, (int)getpid());
}

const char *simnccl_name(enum function function)
{
    static const char *const names[] = {"AllReduce", "Broadcast", "Reduce",  "AllGather", "ReduceScatter",
                                        "AlltoAll",  "Gather",    "Scatter", "Send",      "Recv"};
    return names[function];
}

/* Returns the bytes of the larger of the operation's two buffers. */
static uint64_t bytes_of(const struct task *t)
{
    static const bool parts[] = {[ALL_GATHER] = true, [REDUCE_SCATTER] = true, [ALL_TO_ALL] = true,
                                 [GATHER] = true,     [SCATTER] = true,        [RECV] = false};
    return t->count * simnccl_type_bytes(t->type) * (parts[t->function] ? (uint64_t)t->comm->ranks : 1);
}

int simnccl_task_text(char *text, size_t size, const struct task *t)
{
    return snprintf(text, size,
                    "\"func\":\"nccl%s\",\"comm\":\"%s\",\"rank\":%d,\"ranks\":%d,\"sequence\":%llu,\"count\":%zu,"
                    "\"type\":%d,\"reduction\":%d,\"peer\":%d,\"bytes\":%llu,\"stream\":%llu",
                    simnccl_name(t->function), t->comm->id, t->comm->rank, t->comm->ranks,
                    (unsigned long long)t->sequence, t->count, (int)t->type, t->reduction, t->peer,
                    (unsigned long long)bytes_of(t), (unsigned long long)(uintptr_t)t->stream);
}
