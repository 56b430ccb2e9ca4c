/* writer.h - what is appended to the .tfr, by whom and when. */
#ifndef TFI_WRITER_H
#define TFI_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "tfi_trace.h"

struct tfi_dir;
struct tfi_text;

/* Creates the trace file; false with errno set. */
bool tfi_writer_open(struct tfi_dir *dir, const char *name);

/* Removes the file again, before anything is in it: there is no trace. */
void tfi_writer_abandon(void);

/* True if the trace's file has been removed since, with its directory for instance. */
bool tfi_writer_is_gone(void);

/* Writes header and schema, now or as soon as there is room. Both texts stay the caller's and must not change. */
void tfi_writer_begin(const struct tfi_text *info, const struct tfi_text *schema);

/* Takes a closed chunk: for the background thread, or, if that is behind, appends it now. */
void tfi_writer_take(struct tfi_chunk *chunk);

/* Appends a chunk's committed rows as they are, uncompressed, in the calling thread. The chunk is not freed. */
void tfi_writer_append_rows(struct tfi_chunk *chunk);

/* Appends one row of the library's own, for a thread that has no chunk. */
void tfi_writer_append_own(const void *row, uint32_t bytes);

/* True if a thread that needs a chunk should rather append its own and go on in it. */
bool tfi_writer_is_behind(void);

/* Appends one waiting chunk in the calling thread, to get its memory; false if none waits. */
bool tfi_writer_help(void);

/* Appends the strings interned since the last time; false if they could not be written. */
bool tfi_writer_flush_strings(void);

/* Empties the string region; only with everything in it appended. False if that failed. */
bool tfi_writer_reset_strings(void);

/* Starts the background thread where it does not run; false if it can't be had now. */
bool tfi_writer_start(void);

/* Wakes it: there is something to do. Takes no lock. */
void tfi_writer_signal(void);

/* Round fork: no new background thread between these two. */
void tfi_writer_before_fork(void);
void tfi_writer_after_fork(void);

/* At the end: appends what waits and every open chunk, then the footer; false if the trace is not whole. */
bool tfi_writer_finish(const char *reason);

/* True if it has said already that the trace can't be written. */
bool tfi_writer_has_complained(void);

/* Forgets everything of a parent process. */
void tfi_writer_restart(void);

#endif
