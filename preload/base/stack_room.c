/* stack_room.c - finds how much stack the calling thread has left, for code that may need more than there is.
 *
 * A thread's own stack is looked up once, in /proc/self/maps, because pthread_getattr_np would allocate memory. Two
 * kinds of memory count as that stack, since they can't be anything else. One is the kernel's [stack]. The other is
 * memory that begins behind a guard page and holds the thread's descriptor, which libc puts at the upper end of the
 * stacks it makes. The kernel is asked for a signal handler's stack each time. Any other stack (a coroutine's, or one
 * that the program gave to a thread) has no known end, and the memory below it may be the program's data: it counts
 * as having no room.
 */
#include "base/stack_room.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sys.h"
#include "record/thread.h"

#define KERNEL_GAP (1u << 20) /* the kernel keeps this distance between a growing stack and the area below it */

struct area {
    uintptr_t start, end;
    bool guards; /* no access at all */
    bool grows;
};

static struct {
    struct tfi_lock lock;
    char text[4096];
} maps;

/* Parses a line of /proc/self/maps: "start-end perms offset device inode name". */
static struct area parse(const char *line)
{
    struct area area = {0};
    char *p;
    size_t length = strlen(line);
    area.start = strtoul(line, &p, 16);
    if (*p == '-') area.end = strtoul(p + 1, &p, 16);
    area.guards = strncmp(p, " ---p", 5) == 0;
    area.grows = length > 8 && strcmp(line + length - 8, " [stack]") == 0 && !strchr(line, '/');
    return area;
}

/* The lowest address to which the kernel lets its stack grow. */
static uintptr_t lowest(const struct area *stack, const struct area *below)
{
    struct rlimit limit;
    uintptr_t low = below->end + KERNEL_GAP;
    if (getrlimit(RLIMIT_STACK, &limit) != 0) return stack->start;
    if (limit.rlim_cur < stack->end && stack->end - limit.rlim_cur > low) low = stack->end - limit.rlim_cur;
    return low < stack->start ? low : stack->start;
}

/* True if the area is certainly the thread's stack, whose limits it then stores. The first thread of a process has the
 * kernel's stack, unless its parent forked it from another thread's stack. */
static bool is_own(struct tfi_thread *t, const struct area *here, const struct area *below, bool first)
{
    uintptr_t self = (uintptr_t)pthread_self(), sp = (uintptr_t)__builtin_frame_address(0);
    bool mine = self >= here->start && self < here->end && below->guards && below->end == here->start;
    if (first ? !here->grows && !(mine && sp >= here->start && sp < self) : !mine) return false;
    t->stack_low = here->grows ? lowest(here, below) : here->start;
    t->stack_high = here->grows ? here->end : self;
    return true;
}

/* Parses the whole lines of the text, until the stack is found, and moves the incomplete last line to its start. */
static bool look_through(struct tfi_thread *t, size_t length, size_t *rest, struct area *below, bool first)
{
    char *line = maps.text, *end;
    maps.text[length] = 0;
    while ((end = strchr(line, '\n')) != NULL) {
        *end = 0;
        struct area here = parse(line);
        if (is_own(t, &here, below, first)) return true;
        *below = here;
        line = end + 1;
    }
    *rest = length - (size_t)(line - maps.text);
    memmove(maps.text, line, *rest);
    return false;
}

/* The caller holds the lock. */
static void look_for_own(struct tfi_thread *t)
{
    struct area below = {0};
    size_t rest = 0;
    bool found = false, first = tfi_gettid() == tfi_getpid();
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    t->stack_low = t->stack_high = 1; /* none is known */
    while (fd >= 0 && !found && rest < sizeof maps.text - 1) {
        ssize_t n = syscall(SYS_read, fd, maps.text + rest, sizeof maps.text - 1 - rest);
        if (n <= 0) break;
        found = look_through(t, rest + (size_t)n, &rest, &below, first);
    }
    if (fd >= 0) syscall(SYS_close, fd);
}

static TFI_COLD void find_own(struct tfi_thread *t)
{
    int error = errno, cancel = tfi_cancel_off();
    if (tfi_lock_within(&maps.lock, 100)) {
        look_for_own(t);
        tfi_unlock(&maps.lock);
    }
    tfi_cancel_on(cancel);
    errno = error;
}

/* The lowest address of the handler's stack that `sp` lies on, 0 if it lies on none. */
static uintptr_t lowest_of_handler(uintptr_t sp)
{
    stack_t now;
    int error = errno;
    bool on = sigaltstack(NULL, &now) == 0 && now.ss_flags & SS_ONSTACK;
    uintptr_t low = on ? (uintptr_t)now.ss_sp : 0;
    errno = error;
    return on && sp > low && sp - low <= now.ss_size ? low : 0;
}

bool tfi_stack_has_room(struct tfi_thread *t, size_t bytes)
{
    uintptr_t sp = (uintptr_t)__builtin_frame_address(0);
    if (TFI_UNLIKELY(!t->stack_high)) find_own(t);
    uintptr_t low = TFI_LIKELY(sp > t->stack_low && sp < t->stack_high) ? t->stack_low : lowest_of_handler(sp);
    return low && sp - low >= bytes;
}
