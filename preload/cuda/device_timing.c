/* device_timing.c - chooses between CUPTI and CUDA events.
 *
 * The first call that uses a device starts CUPTI. If that fails, events are started in the same call, before a call
 * of any other thread continues; from then on the process has events only. Neither source knows of the other.
 */
#include "cuda/device_timing.h"

#include "cuda/event_times.h"
#include "cupti/client.h"

void tfi_device_constructor(void)
{
    tfi_cupti_instead(tfi_event_times_begin);
}

bool tfi_device_finish(void)
{
    return tfi_cupti->on ? tfi_cupti_finish() : tfi_event_times_finish();
}
