/* console.h - a line for each stage on stderr, where TELEFUSER_PROFILE_DEBUG asks for it. */
#ifndef TFI_CONSOLE_H
#define TFI_CONSOLE_H

#include <stdint.h>

struct tfi_open;

/* A stage ends `now`, in ticks; what an allocator knows of it is still there. Between tfi_enter() and tfi_leave(). */
void tfi_console_stage(const struct tfi_open *open, uint64_t now);

#endif
