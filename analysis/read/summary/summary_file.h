/* summary_file.h - the blocks of a summary (.tfs), one for each process.
 *
 * The file is SUMMARY_MAGIC, then for each process the lengths of its block, packed and unpacked, the block's CRC-32 and
 * the block, deflated; then a length of zero and the number of blocks. All numbers are little-endian, of 32 bits. A
 * block depends on its process alone, so files merge by taking the blocks of all.
 */
#ifndef TFA_SUMMARY_FILE_H
#define TFA_SUMMARY_FILE_H

#include "read/trace.h"

#define SUMMARY_MAGIC "TFISUM1\n"

/* The most bytes of a block, unpacked. */
enum { SUMMARY_LARGEST = 32 << 20 };

struct summary_file {
    char *bytes; /* of the file */
    size_t length, at;
    size_t blocks; /* read so far */
    bool is_whole; /* its end was read, and has their number */
};

/* True for a file that begins as a summary. */
bool is_summary_file(const char *path, enum file_how how);
/* Reads the file. Returns false after a note. */
bool summary_open(struct summary_file *file, const char *path, enum file_how how, struct notes *notes);
/* Returns the next block, unpacked; the caller frees it. NULL: there is none, or what follows is damaged, which a note
 * says. */
uint8_t *summary_next(struct summary_file *file, size_t *length, struct notes *notes);
void summary_close(struct summary_file *file);

/* Appends a block to a file in memory, and its end. Returns false if the block is too large. */
bool summary_add(struct text *file, const struct text *block);
void summary_end(struct text *file, size_t blocks);

#endif
