/* progress.h - one line on a terminal that says what the program does, from the first second of a command on. */
#ifndef TFA_PROGRESS_H
#define TFA_PROGRESS_H

#include <stdatomic.h>
#include <stddef.h>

/* Begins the line of a command, if stderr is a terminal. */
void progress_begin(const char *command);
/* Ends it for good, and clears it: the terminal gets the answer, or the caller draws or forks. */
void progress_end(void);

/* The command reads files: how many are read, and how many bytes. progress_read ends the lifetime of both counters. */
void progress_reads(size_t files, const atomic_size_t *finished, const atomic_ullong *bytes);
void progress_read(void);
/* The command has written so many bytes into files. */
void progress_wrote(size_t bytes);

/* Clears the line and keeps it off until progress_release, for a message on stderr. */
void progress_hold(void);
void progress_release(void);

#endif
