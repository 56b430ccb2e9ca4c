/* device_timing.h - device times from CUPTI, or from CUDA events if there is no CUPTI. */
#ifndef TFI_DEVICE_TIMING_H
#define TFI_DEVICE_TIMING_H

#include <stdbool.h>

/* Called in the constructor: registers what is started if CUPTI cannot be had. */
void tfi_device_constructor(void);

/* Called at the end, before the footer: fetches the remaining records, within a time limit. False if records may
 * be missing from the trace. */
bool tfi_device_finish(void);

#endif
