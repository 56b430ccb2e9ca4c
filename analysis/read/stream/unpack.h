/* unpack.h - reads a file, plain or gzip with any number of members, in pieces of any size. */
#ifndef TFA_UNPACK_H
#define TFA_UNPACK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <zlib.h>

#include "read/stream/igzip.h"

struct unpack {
    /* Faults of the file; complete once unpack_read has returned 0. */
    bool is_gzip;
    bool gzip_cut, gzip_damaged, gzip_checksum, gzip_trailing;
    uint64_t fault_at; /* offset in the file of the last fault */
    int error;         /* errno of the failed read */
    /* The rest is private to unpack.c. */
    int fd;                /* -1: the bytes are in memory */
    uint64_t size_of_file; /* when it was opened */
    atomic_ullong *done;
    z_stream z; /* the compressed bytes at hand; zlib's state too, unless igzip is there */
    struct igzip *igzip;
    bool z_ready, finished;
    uint32_t crc, size;
    char *raw; /* buffer for compressed bytes, of a file */
    uint64_t file_bytes;
    unsigned char spare[8]; /* bytes behind a stream that igzip had taken already */
    size_t spares, spare_at;
};

/* Begins to read an open file, which the caller closes, up to the size that it has now. Only with `fast` may igzip
 * inflate it: if a fault is found then, the answer to give is that of another reading without `fast`. Returns false
 * with `error` set if nothing can be read. */
bool unpack_file(struct unpack *unpack, int fd, uint64_t size, bool fast, atomic_ullong *done);
void unpack_memory(struct unpack *unpack, const void *bytes, size_t length);
/* Returns the number of bytes; fewer than `room` only at the end. */
size_t unpack_read(struct unpack *unpack, char *to, size_t room);
void unpack_close(struct unpack *unpack);

#endif
