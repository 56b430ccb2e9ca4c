/* frame.h - proof that a function of ours was left by a jump. */
#ifndef TFI_FRAME_H
#define TFI_FRAME_H

#include "tfi.h"

/* False only if the function with this frame was left, by whatever thread. */
bool tfi_frame_may_stand(tfi_frame frame);

/* The same for a thread whose function has the frame at `asking`, which sees more: true only if the function with `frame`
 * was left. */
bool tfi_frame_is_left(tfi_frame frame, uintptr_t asking);

/* Whether jumps out of functions of ours were seen in this program, from tfi_jump_seen() on. */
bool tfi_jumps(void);
void tfi_jump_seen(void);

#endif
