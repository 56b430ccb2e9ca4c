/* nvtx.h - NVTX as a source of stages and marks: functions for the library's lifecycle. */
#ifndef TFI_NVTX_H
#define TFI_NVTX_H

struct tfi_thread;

/* Called in the constructor: sets NVTX_INJECTION64_PATH to this library, unless the user has set it. */
void tfi_nvtx_constructor(void);

/* Called once after each wake, inside tfi_enter(): writes the names of categories and threads given before. */
void tfi_nvtx_awake(struct tfi_thread *thread);

#endif
