/* deflater.h - compresses blocks of one deflate stream, with ISA-L's libisal where it is installed, else with zlib.
 *
 * The bytes depend on the library and on the block, not on the blocks that this deflater compressed before.
 * Threads: each has a deflater of its own.
 */
#ifndef TFA_DEFLATER_H
#define TFA_DEFLATER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DEFLATER_WINDOW = 1 << 15, /* the most bytes of a dictionary that count */
    DEFLATER_SPARE = 64,       /* room that a block needs besides its length and an eighth of it */
};

struct deflater;

struct deflater_block {
    const uint8_t *dictionary; /* the bytes before the block */
    size_t dictionary_length;
    const uint8_t *data;
    size_t length;
    bool last; /* ends the stream; other blocks end with an empty stored block, at a byte boundary */
    uint8_t *out;
    size_t room;
};

/* Returns NULL if no library has memory. */
struct deflater *deflater_open(void);
/* Tells whether blocks are compressed with libisal: it is installed and passes its tests. */
bool deflater_is_isal(const struct deflater *deflater);
/* Compresses a block. Returns the number of bytes in `out`; 0 if the library fails. */
size_t deflater_run(struct deflater *deflater, const struct deflater_block *block);
void deflater_close(struct deflater *deflater);

#endif
