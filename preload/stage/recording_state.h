/* recording_state.h - decides whether a thread is recorded now: by the schedule, and by the selected stages. */
#ifndef TFI_RECORDING_STATE_H
#define TFI_RECORDING_STATE_H

#include "control/config.h"
#include "control/schedule.h"
#include "record/clock.h"
#include "record/thread.h"
#include "stage/stage.h"

/* True if this thread is to be recorded in detail now. */
static inline bool tfi_call_wanted(const struct tfi_thread *t)
{
    if (TFI_UNLIKELY(!tfi_recording(TFI_RECORDING_ANY)) && !tfi_recording_off(t, tfi_ticks())) return false;
    if (TFI_LIKELY(tfi_config.select == TFI_SELECT_ALL)) return true;
    if (tfi_config.select == TFI_SELECT_NOTHING) return false;
    if (__atomic_load_n(&t->stages, __ATOMIC_RELAXED)) return __atomic_load_n(&t->selected, __ATOMIC_RELAXED) > 0;
    return tfi_stage_detail_elsewhere();
}

#endif
