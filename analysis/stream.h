/* stream.h - the bytes of a file, plain or gzip, as windows that a parser looks at in place.
 *
 * A thread of its own reads and inflates ahead, a few blocks at most. The window [at, end) is the parser's: it moves
 * `at` on, and stream_more keeps what is left and adds to it. Behind `end` stand a zero and then quotes, STREAM_PAD
 * bytes in all, so that scanning needs no other bound. Only what is kept is ever copied.
 */
#ifndef TFA_STREAM_H
#define TFA_STREAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <zlib.h>

#include "file_in.h"

enum { STREAM_PAD = 64 };

struct stream_block {
    char *memory; /* room for what is kept, then the data */
    size_t length;
};

enum { STREAM_BLOCKS = 4 };

struct stream {
    char *at, *end;
    uint64_t total; /* bytes handed out, up to `end` */
    /* What is wrong with the file; known once stream_more was false. */
    bool is_gzip;
    bool gzip_cut, gzip_damaged, gzip_checksum, gzip_trailing;
    uint64_t fault_at; /* bytes of the file, of the last fault */
    int error;         /* errno of reading */
    /* The rest is stream.c's own. */
    int fd;                /* -1: memory */
    uint64_t size_of_file; /* when it was opened */
    size_t block_size, room;
    size_t most; /* that is worth keeping: more of it is got by small steps, and given up soon */
    atomic_ullong *done;
    z_stream z;
    bool z_ready, finished;
    bool in_member; /* of gzip */
    uint32_t crc, size;
    char *raw; /* compressed bytes; of a stream in memory all there are, which are not ours */
    uint64_t file_bytes;
    struct stream_block block[STREAM_BLOCKS];
    bool in_block;      /* the window lies in the block before `taken` */
    size_t made, taken; /* blocks so far; the ring's places are these modulo its size */
    size_t given_back;
    char *big; /* the window, where more is kept than fits before a block */
    size_t big_size;
    bool threaded, stop;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

/* False: *why says the reason. `done` counts bytes of the file and may be NULL. stream_close() is due in both cases. */
bool stream_open(struct stream *stream, const char *path, enum file_how how, bool threaded, atomic_ullong *done,
                 const char **why);
/* The bytes must stay until stream_close(). A block is `piece` bytes, at most as many as one of a file. */
void stream_open_memory(struct stream *stream, const void *bytes, size_t length, size_t piece);
/* Adds to the window; what is kept may move. False: there is nothing more. Kept as it is, a window at least doubles, so
 * that looking at it again from its start takes linear time in all. */
bool stream_more(struct stream *stream);
/* Where in the whole a byte of the window stands. */
uint64_t stream_offset(const struct stream *stream, const char *place);
void stream_close(struct stream *stream);

#endif
