/* stream.h - gives the bytes of a file, plain or gzip, as windows that a parser reads in place.
 *
 * A separate thread reads and inflates a few blocks ahead. The window [at, end) belongs to the parser. The parser
 * advances `at`; stream_more keeps the remaining bytes and appends to them. A zero and then quotes, STREAM_PAD bytes
 * in all, follow `end`, so that scanning needs no other bound. Only kept bytes are ever copied.
 *
 * More threads may scan blocks ahead of the parser. They guess where a block's first item begins. The parser uses their
 * findings only if it comes to that very place by itself, so a wrong guess does no harm.
 */
#ifndef TFA_STREAM_H
#define TFA_STREAM_H

#include <pthread.h>

#include "base/file_in.h"
#include "read/trace.h"
#include "read/stream/unpack.h"

enum { STREAM_PAD = 64 };
enum { STREAM_BLOCK = 256 << 10, STREAM_CARRY = 64 << 10 }; /* most bytes of a block, and those moved in front of it */

struct stream_block {
    char *memory; /* room for kept bytes and those of the block before, then the data */
    char *data;
    size_t length;
    bool is_scanned;
    void *scan; /* what was found ahead */
};

/* How to scan blocks ahead of the parser. Both functions run on any thread and allocate no memory. */
struct stream_ahead {
    size_t size; /* bytes of the result of a block */
    const void *shared;
    /* Returns the last place where an item seems to begin, NULL if there is none. The next block begins there. */
    char *(*last_start)(const void *shared, char *at, const char *end);
    /* Scans items from `at` on, as far as they are whole. */
    void (*scan)(const void *shared, char *at, const char *end, void *found);
};

struct kineto_parts;

/* How to open a file and read it. */
struct stream_way {
    enum file_how how;
    bool exact;                       /* inflate with zlib alone (unpack_file) */
    unsigned threads;                 /* that may parse it, besides the one that inflates; 0 means 1 */
    const struct kineto_parts *parts; /* of a Kineto trace of several processes, which the input owns; else NULL */
    uint32_t part;                    /* the process to read, or PART_ALL */
    bool has_limits; /* events that begin earlier or end later, by the file's times, are impossible and left out */
    int64_t not_before, not_after;
};

enum { STREAM_BLOCKS = 4, STREAM_MOST_THREADS = 6, STREAM_MOST_BLOCKS = STREAM_BLOCKS + 2 * STREAM_MOST_THREADS };

struct stream {
    char *at, *end;
    uint64_t total; /* bytes handed out, up to `end` */
    /* Events scanned ahead, from `scan_at` on: the start of the block, which may be where `at` is. NULL: none. */
    void *scan;
    const char *scan_at;
    struct unpack file; /* its faults are complete once stream_more has returned false */
    /* The rest is private to stream.c. */
    size_t block_size, room;
    size_t most; /* most bytes worth keeping; beyond, the window grows in small steps */
    bool is_open;
    struct stream_block block[STREAM_MOST_BLOCKS];
    size_t blocks;      /* of the ring */
    bool in_block;      /* the window is in the block before `taken` */
    size_t made, taken; /* blocks so far; a ring index is this modulo `blocks` */
    size_t claimed;     /* blocks that somebody scans or has scanned */
    size_t given_back;
    char *big; /* the window, if the kept bytes exceed the room before a block */
    size_t big_size;
    const struct stream_ahead *ahead; /* NULL: nothing is scanned ahead */
    char *carry;                      /* bytes behind the last start of an item of the block made last */
    size_t carried;
    bool threaded, stop;
    pthread_t thread, scanner[STREAM_MOST_THREADS];
    size_t scanners;
    pthread_mutex_t lock;
    pthread_cond_t changed, has_room;
};

/* Returns false with the reason in *why. `done` counts bytes of the file and may be NULL. The caller calls
 * stream_close() in both cases. */
bool stream_open(struct stream *stream, const char *path, const struct stream_way *way, atomic_ullong *done,
                 const char **why);
/* Reads from memory. The bytes must stay valid until stream_close(). A block has `piece` bytes, at most as many as
 * one of a file. */
void stream_open_memory(struct stream *stream, const void *bytes, size_t length, size_t piece);
/* Appends to the window; kept bytes may move. Returns false at the end of the file. If the parser keeps all bytes,
 * the window at least doubles, so that scanning it again from its start takes linear time in total. */
bool stream_more(struct stream *stream);
/* Returns the offset of a byte of the window in the uncompressed data. */
static inline uint64_t stream_offset(const struct stream *stream, const char *place)
{
    return stream->total - (uint64_t)(stream->end - place);
}
void stream_close(struct stream *stream);
/* Reads the first bytes of a file, inflated if packed, up to `size`; of a packed file at most what 16 KiB of it hold.
 * Returns their number, 0 if the file cannot be read. */
size_t stream_head(const char *path, enum file_how how, char *to, size_t size);

/* The reading of one file. `drop` frees what `read` holds, if memory lacks while it reads. */
struct stream_reading {
    bool (*read)(void *context, struct notes *notes);
    void (*drop)(void *context);
    void *context;
    const struct stream_ahead *ahead; /* may be NULL */
};
/* Opens a file, reads it, and closes it. Returns the result of `read`; false with a note if it can't be opened. */
bool stream_read(struct stream *stream, const char *path, const struct stream_way *way, atomic_ullong *done,
                 const struct stream_reading *reading, struct notes *notes);
/* Tells whether the compressed data had a fault, so that zlib may have read other bytes (struct stream_way). */
bool stream_in_doubt(const struct stream *stream);
/* Notes the fault of the file, if it has one other than a cut, of which its contents tell more. True if it has. */
bool stream_judge(const struct stream *stream, struct notes *notes);

#endif
