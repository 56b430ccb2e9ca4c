/* stderr.h - lines of ours on the program's stderr. */
#ifndef TFI_STDERR_H
#define TFI_STDERR_H

#include <stddef.h>

/* Remembers which file stderr is, in the constructor. */
void tfi_stderr_init(void);

/* Writes a line, at most PIPE_BUF bytes with its end, or drops it. It raises no signal, waits for nobody, keeps errno. */
void tfi_stderr_write(const char *line, size_t bytes);

#endif
