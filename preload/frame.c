/* frame.c - whether a function of ours was left by a jump: by a signal handler's siglongjmp, an exception, pthread_exit.
 *
 * Above the frame of a function stands the address it returns to, and nothing changes it while the function is there. So
 * something else in that place, or no memory, proves that the function was left. A frame that was left may look whole
 * until something overwrites it.
 */
#include "frame.h"

#include "sys.h"

#define SIGNAL_BYTES 1024u /* the kernel puts more than this below what a signal interrupts */

static uint32_t jumping;

/* Overwrites what lies below the caller's frame, where a frame that is gone may look as if it were not. */
static __attribute__((noinline)) void scrub(void)
{
    volatile char room[1024];
    for (size_t i = 0; i < sizeof room; i++) room[i] = 0;
}

bool tfi_frame_may_stand(tfi_frame frame)
{
    uintptr_t returns;
    return tfi_peek(frame[0] + sizeof(uintptr_t), &returns) && returns == frame[1];
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
