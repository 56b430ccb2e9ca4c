/* writer.h - appends blocks to the .tfr. */
#ifndef TFI_WRITER_H
#define TFI_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tfi_trace.h"

struct tfi_dir;
struct tfi_job;
struct tfi_text;

/* Creates the trace file, whose size limit is `max_mb` MiB; false with errno set. */
bool tfi_writer_open(struct tfi_dir *dir, const char *name, uint64_t max_mb);

/* Removes the file again before anything is in it: the trace can't be opened. */
void tfi_writer_abandon(void);

/* True if the trace's file was removed while the program ran, for instance with its directory. */
bool tfi_writer_is_gone(void);

/* Writes header and schema, now or as soon as there is room. Both texts must stay valid and unchanged. */
void tfi_writer_begin(const struct tfi_text *info);

/* Takes a closed chunk: queues it for the background thread, or appends it now if that thread is behind or absent. */
void tfi_writer_take(struct tfi_chunk *chunk);

/* Appends a chunk's committed rows as they are, uncompressed, in the calling thread. The chunk is not freed. */
void tfi_writer_append_rows(struct tfi_chunk *chunk);

/* Appends one row of the library's own, for a thread that has no chunk. */
void tfi_writer_append_own(const void *row, uint32_t bytes);

/* Appends one row beside the last clock rows, at the end of the trace: at most TFI_LAST_ROW_BYTES. */
#define TFI_LAST_ROW_BYTES 64u
void tfi_writer_append_last(const void *row, uint32_t bytes);

/* The background thread's job: packs and appends the waiting chunks. */
extern const struct tfi_job tfi_writer_job;

/* True if the background thread is behind and the calling thread can open the file: if it needs a chunk it then appends its
 * own and reuses it. The background thread has descriptors of its own, also where the program has used up its. */
bool tfi_writer_needs_help(void);

/* Appends one waiting chunk in the calling thread, which frees that chunk; false if none waits. A thread that can't open the
 * file waits a moment for the background thread instead. */
bool tfi_writer_help(void);

/* Appends the strings of the string region and empties it. False if that failed. */
bool tfi_writer_reset_strings(void);

/* A keeper keeps the trace small; its functions are called under the writer's lock where nothing else is said. */
struct tfi_keeper {
    bool (*has_room)(uint64_t size); /* true if the file may have that size */
    /* Waits, without the lock, until the file is smaller, or makes it so in the background thread; false in vain. */
    bool (*make_room)(bool in_background);
    /* A chunk was appended, with these rows, and the file ends at `end` now. */
    void (*note)(uint64_t end, const struct tfi_block *head, const void *rows, uint32_t bytes);
    /* All chunks are appended: returns the bytes of the rows that the trace is to end with. */
    size_t (*last_rows)(const void **rows);
};

/* Has the trace kept by it instead of by the cap; NULL: by the cap again. */
void tfi_writer_keep_within(const struct tfi_keeper *keeper);

/* The trace as it is written. */
struct tfi_writing {
    struct tfi_file *file;
    uint64_t *size;
    uint64_t chunks, records; /* appended so far */
};

/* Takes the writer's lock until tfi_writer_release(). NULL, without it, if the trace is not begun, has ended, or the lock
 * can't be taken. */
const struct tfi_writing *tfi_writer_hold(void);
void tfi_writer_release(void);

/* Appends rows of the library's own. Under the lock. */
void tfi_writer_append_held(const void *rows, uint32_t bytes);

/* Has the totals of lost records written again. Under the lock. */
void tfi_writer_tell_again(void);

/* Writes the start of a trace, and appends a block, to any file; false with errno set. */
bool tfi_writer_start(struct tfi_file *to, uint64_t *size);
bool tfi_writer_append_to(struct tfi_file *to, uint64_t *size, struct tfi_block *head, const void *payload);
struct tfi_block tfi_writer_block(uint16_t type, const void *payload, size_t bytes);

/* Ends the trace: appends the waiting chunks, every open chunk, then the footer. False if the .tfr is not complete. */
bool tfi_writer_finish(const char *reason);

/* Keeps the trace open in the program's table of descriptors, because the process is about to lose the right or the way to it. */
void tfi_writer_keep(void);

/* True if it has already warned that the trace can't be written or is gone. */
bool tfi_writer_has_complained(void);

/* Forgets the trace of a parent process, or an earlier trace of this one. */
void tfi_writer_restart(void);

#endif
