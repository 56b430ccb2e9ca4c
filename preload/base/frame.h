/* frame.h - proves that a function of ours was left by a jump. */
#ifndef TFI_FRAME_H
#define TFI_FRAME_H

#include "base/tfi.h"

/* False only if the function with this frame was left. The frame may be any thread's. */
bool tfi_frame_may_stand(tfi_frame frame);

/* True only if the function with `frame` was left. `asking` is the frame address of the asking thread's own function,
 * which proves more cases than tfi_frame_may_stand() does. */
bool tfi_frame_is_left(tfi_frame frame, uintptr_t asking);

/* True once tfi_jump_seen() was called: a jump out of a function of ours was seen in this program. */
bool tfi_jumps(void);
void tfi_jump_seen(void);

#endif
