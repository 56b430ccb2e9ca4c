/* files.h - sums up what was done with one file, and finds unusual ways of reading it.
 *
 * A call is small if it moved fewer than 4096 bytes, and a read unaligned if it began at a position that is no multiple of
 * 4096. Bytes were read again if the reads of one process returned more bytes than they covered of the file.
 */
#ifndef TFA_IO_FILES_H
#define TFA_IO_FILES_H

#include <stdbool.h>

#include "base/sets/intervals.h"
#include "model/io_calls.h"

struct io_file {
    uint64_t opens, reads, writes, metadata; /* metadata: seeks, and calls on names, attributes and directories */
    uint64_t read_bytes, write_bytes;
    uint64_t small, small_writes, unaligned, mapped;
    bool has_unknown;           /* the position of some read is not known */
    struct intervals positions; /* bytes of the file that were read; merged by io_file_settle, which empties it */
    uint64_t distinct;          /* bytes of `positions`, summed over processes */
};

enum io_finding {
    IO_NEVER_READ,
    IO_SMALL_READS,
    IO_SMALL_WRITES,
    IO_UNALIGNED_READS,
    IO_REPEATED_READS,
    IO_METADATA_STORM,
    NR_IO_FINDINGS
};
extern const char *const io_finding_names[NR_IO_FINDINGS];

/* Adds a call on the file. */
void io_file_call(struct io_file *file, const struct ios *ios, size_t call);
void io_file_settle(struct io_file *file);
/* Adds what another process did; both are settled. */
void io_file_add(struct io_file *file, const struct io_file *from);
/* Returns the bytes that a process had read before; -1: unknown. */
int64_t io_file_repeated(const struct io_file *file);
bool io_file_has(const struct io_file *file, enum io_finding finding);

#endif
