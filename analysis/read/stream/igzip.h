/* igzip.h - inflates with ISA-L's igzip, which is several times as fast as zlib, where the library is installed.
 *
 * igzip accepts some damaged streams that zlib refuses. A reader that finds a fault reads the file again with zlib.
 */
#ifndef TFA_IGZIP_H
#define TFA_IGZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <zlib.h>

struct igzip;

/* Returns NULL if the library is missing, or if a test of it fails: the caller then uses zlib. */
struct igzip *igzip_open(void);
/* Begins a raw deflate stream. */
void igzip_begin(struct igzip *state);
/* Inflates from z->next_in to z->next_out, as inflate() does. Returns Z_OK, Z_STREAM_END, Z_BUF_ERROR or Z_DATA_ERROR.
 * At the end of the stream `spare`, of 8 bytes, gets those bytes behind it that were taken from z->next_in. */
int igzip_inflate(struct igzip *state, z_stream *z, unsigned char *spare, size_t *spares);
void igzip_close(struct igzip *state);

#endif
