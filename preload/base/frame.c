/* frame.c - finds out whether a function of ours was left by a jump: siglongjmp, an exception or pthread_exit.
 *
 * A function's return address lies above its frame, and nothing changes it until the function is left. So another value
 * in that place, or unmapped memory, proves that the function was left. A frame that was left may look intact until
 * something overwrites it.
 */
#include "base/frame.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIGNAL_BYTES 1024u /* the kernel uses more than this below the frame that a signal interrupts */

static uint32_t jumping;

/* Overwrites the stack below the caller's frame, where a frame that was left may still look intact. */
static __attribute__((noinline)) void scrub(void)
{
    volatile char room[1024];
    for (size_t i = 0; i < sizeof room; i++) room[i] = 0;
}

/* Reads a word that may no longer be mapped; false if it is not. The system call serves only as a test: the kernel
 * reads the mask at `address` before it rejects the invalid `how`, so nothing is changed. */
static bool peek(uintptr_t address, uintptr_t *word)
{
    int error = errno;
    bool mapped = syscall(SYS_rt_sigprocmask, -1, address, NULL, sizeof *word) != 0 && errno != EFAULT;
    errno = error;
    if (mapped) *word = *(volatile uintptr_t *)address;
    return mapped;
}

bool tfi_frame_may_stand(tfi_frame frame)
{
    uintptr_t returns;
    return peek(frame[0] + sizeof(uintptr_t), &returns) && returns == frame[1];
}

TFI_COLD bool tfi_frame_is_left(tfi_frame frame, uintptr_t asking)
{
    bool here =
        frame[0] <= asking ? frame[0] > (uintptr_t)__builtin_frame_address(0) : frame[0] - asking < SIGNAL_BYTES;
    if (here) return true;
    scrub();
    return !tfi_frame_may_stand(frame);
}

bool tfi_jumps(void)
{
    return __atomic_load_n(&jumping, __ATOMIC_RELAXED);
}

void tfi_jump_seen(void)
{
    __atomic_store_n(&jumping, 1, __ATOMIC_RELAXED);
}
