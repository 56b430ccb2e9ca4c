/* nvtx.h - NVTX as a source of stages and marks: what the library's lifecycle calls. */
#ifndef TFI_NVTX_H
#define TFI_NVTX_H

struct tfi_thread;

/* In the constructor: names this library in NVTX_INJECTION64_PATH, unless the user has set it. */
void tfi_nvtx_constructor(void);

/* Once after each wake, inside tfi_enter(): writes the names of categories and threads given before. */
void tfi_nvtx_awake(struct tfi_thread *thread);

#endif
