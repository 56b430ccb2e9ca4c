/* stream.h - gives the bytes of a file, plain or gzip, as windows that a parser reads in place.
 *
 * A separate thread reads and inflates a few blocks ahead. The window [at, end) belongs to the parser. The parser
 * advances `at`; stream_more keeps the remaining bytes and appends to them. A zero and then quotes, STREAM_PAD bytes
 * in all, follow `end`, so that scanning needs no other bound. Only kept bytes are ever copied.
 */
#ifndef TFA_STREAM_H
#define TFA_STREAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <zlib.h>

#include "base/file_in.h"
#include "read/trace.h"

enum { STREAM_PAD = 64 };

struct stream_block {
    char *memory; /* room for kept bytes, then the data */
    size_t length;
};

enum { STREAM_BLOCKS = 4 };

struct stream {
    char *at, *end;
    uint64_t total; /* bytes handed out, up to `end` */
    /* Faults of the file; complete once stream_more has returned false. */
    bool is_gzip;
    bool gzip_cut, gzip_damaged, gzip_checksum, gzip_trailing;
    uint64_t fault_at; /* offset in the file of the last fault */
    int error;         /* errno of the failed read */
    /* The rest is private to stream.c. */
    int fd;                /* -1: the bytes are in memory */
    uint64_t size_of_file; /* when it was opened */
    size_t block_size, room;
    size_t most; /* most bytes worth keeping; beyond, the window grows in small steps */
    atomic_ullong *done;
    z_stream z;
    bool z_ready, finished;
    bool in_member; /* of the gzip file */
    uint32_t crc, size;
    char *raw; /* buffer for compressed bytes, of a file */
    uint64_t file_bytes;
    struct stream_block block[STREAM_BLOCKS];
    bool in_block;      /* the window is in the block before `taken` */
    size_t made, taken; /* blocks so far; a ring index is this modulo STREAM_BLOCKS */
    size_t given_back;
    char *big; /* the window, if the kept bytes exceed the room before a block */
    size_t big_size;
    bool threaded, stop;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

/* Returns false with the reason in *why. `done` counts bytes of the file and may be NULL. The caller calls
 * stream_close() in both cases. */
bool stream_open(struct stream *stream, const char *path, enum file_how how, bool threaded, atomic_ullong *done,
                 const char **why);
/* Reads from memory. The bytes must stay valid until stream_close(). A block has `piece` bytes, at most as many as
 * one of a file. */
void stream_open_memory(struct stream *stream, const void *bytes, size_t length, size_t piece);
/* Appends to the window; kept bytes may move. Returns false at the end of the file. If the parser keeps all bytes,
 * the window at least doubles, so that scanning it again from its start takes linear time in total. */
bool stream_more(struct stream *stream);
/* Returns the offset of a byte of the window in the uncompressed data. */
uint64_t stream_offset(const struct stream *stream, const char *place);
void stream_close(struct stream *stream);
/* Reads the first bytes of a file, inflated if packed, up to `size`; of a packed file at most what 16 KiB of it hold.
 * Returns their number, 0 if the file cannot be read. */
size_t stream_head(const char *path, enum file_how how, char *to, size_t size);

/* The reading of one file. `drop` frees what `read` holds, if memory lacks while it reads. */
struct stream_reading {
    bool (*read)(void *context, struct notes *notes);
    void (*drop)(void *context);
    void *context;
};
/* Opens a file, reads it, and closes it. Returns the result of `read`; false with a note if it can't be opened. */
bool stream_read(struct stream *stream, const char *path, enum file_how how, atomic_ullong *done,
                 const struct stream_reading *reading, struct notes *notes);
/* Notes the fault of the file, if it has one other than a cut, of which its contents tell more. True if it has. */
bool stream_judge(const struct stream *stream, struct notes *notes);

#endif
