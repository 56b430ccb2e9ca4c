/* stderr.h - writes our lines to the program's stderr. */
#ifndef TFI_STDERR_H
#define TFI_STDERR_H

#include <stddef.h>

/* Remembers which file stderr is. Called in the constructor. */
void tfi_stderr_init(void);

/* Writes a line, at most PIPE_BUF bytes with its newline, or drops it. Raises no signal, never waits, keeps errno. */
void tfi_stderr_write(const char *line, size_t bytes);

#endif
