/* igzip.c - loads ISA-L's libisal.so.2, checks the layout of its state, and inflates with it.
 *
 * The library has no header in the build: `struct state` is inflate_state of its igzip_lib.h, the same in all versions
 * with this soname (tested: 2.30). Before any byte is inflated, isal_inflate_init runs on memory full of a pattern
 * and must clear just those members that it clears there; a state with another layout never gets further. Then a small
 * stream is inflated in pieces. Each state lies in twice the memory that it needs.
 */
#include "read/stream/igzip.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_in.h"

enum { BLOCK_FINISH = 5, END_INPUT = 1, OUT_OVERFLOW = 2, PATTERN = 0xa5 };

/* The sizes of the tables follow from ISA-L's choice of 12 and 10 bits for the first look-up. */
struct state {
    uint8_t *next_out;
    uint32_t avail_out, total_out;
    uint8_t *next_in;
    uint64_t read_in; /* bits taken from next_in and not yet used */
    uint32_t avail_in;
    int32_t read_in_length; /* their number */
    uint32_t long_table[1 << 12];
    uint16_t long_rest[1264];
    uint16_t short_table[1 << 10];
    uint16_t short_rest[80];
    uint32_t block_state, dict_length, bfinal, crc_flag, crc, hist_bits;
    int32_t type0_block_len, write_overflow_lits, write_overflow_len, copy_overflow_length, copy_overflow_distance;
    int16_t wrapper_flag, tmp_in_size;
    int32_t tmp_out_valid, tmp_out_processed;
    uint8_t tmp_in_buffer[328];
    uint8_t tmp_out_buffer[2 * 32768 + 288];
};

struct igzip {
    struct state state;
    uint8_t more[sizeof(struct state)];
};

static void (*library_init)(struct state *state);
static int (*library_inflate)(struct state *state);
static bool is_good;

void igzip_begin(struct igzip *igzip)
{
    library_init(&igzip->state);
}

int igzip_inflate(struct igzip *igzip, z_stream *z, unsigned char *spare, size_t *spares)
{
    struct state *s = &igzip->state;
    *spares = 0;
    s->next_in = z->next_in;
    s->avail_in = z->avail_in;
    s->next_out = z->next_out;
    s->avail_out = z->avail_out;
    int status = library_inflate(s);
    bool sane = s->avail_in <= z->avail_in && s->next_in == z->next_in + (z->avail_in - s->avail_in) &&
                s->avail_out <= z->avail_out && s->next_out == z->next_out + (z->avail_out - s->avail_out);
    if (!sane || status < 0 || status > OUT_OVERFLOW) return Z_DATA_ERROR;
    bool moved = s->avail_in < z->avail_in || s->avail_out < z->avail_out;
    z->next_in = s->next_in;
    z->avail_in = s->avail_in;
    z->next_out = s->next_out;
    z->avail_out = s->avail_out;
    if (s->block_state != BLOCK_FINISH) return moved ? Z_OK : Z_BUF_ERROR;
    *spares = (size_t)MIN(MAX(s->read_in_length, 0), 64) / 8;
    uint64_t bits = s->read_in >> (s->read_in_length & 7);
    for (size_t i = 0; i < *spares; i++) spare[i] = (unsigned char)(bits >> (8 * i));
    return Z_STREAM_END;
}

/* ---- checks of the library ---- */

static bool all_are(const void *from, const void *to, uint8_t value)
{
    const uint8_t *p = from;
    while (p < (const uint8_t *)to && *p == value) p++;
    return p == to;
}

static bool layout_is_known(struct igzip *igzip)
{
    struct state *s = &igzip->state;
    memset(igzip, PATTERN, sizeof *igzip);
    library_init(s);
    return all_are(s, s->long_table, 0) && all_are(s->long_table, &s->block_state, PATTERN) &&
           all_are(&s->block_state, s->tmp_in_buffer, 0) && all_are(s->tmp_in_buffer, igzip + 1, PATTERN);
}

/* Inflates what zlib has deflated, a few bytes at a time, with bytes behind it. */
static bool inflates(struct igzip *igzip)
{
    enum { SIZE = 4096, STEP = 61, BEHIND = 9 };
    static uint8_t text[SIZE], packed[2 * SIZE], plain[SIZE];
    unsigned char spare[8];
    size_t spares = 0;
    z_stream z = {.next_in = text, .avail_in = SIZE, .next_out = packed, .avail_out = sizeof packed - BEHIND};
    for (size_t i = 0; i < SIZE; i++) text[i] = (uint8_t)(i * i >> 5 & (i & 64 ? 0x1f : 0xff));
    if (deflateInit2(&z, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) return false;
    bool good = deflate(&z, Z_FINISH) == Z_STREAM_END;
    uint8_t *end = z.next_out;
    deflateEnd(&z);
    for (size_t i = 0; i < BEHIND; i++) end[i] = (uint8_t)(i + 1);
    igzip_begin(igzip);
    z = (z_stream){.next_in = packed, .next_out = plain};
    int status = Z_OK;
    while (good && status == Z_OK) {
        z.avail_in = (uInt)MIN(STEP, end + BEHIND - z.next_in);
        z.avail_out = (uInt)MIN(2 * STEP, plain + SIZE - z.next_out);
        status = igzip_inflate(igzip, &z, spare, &spares);
    }
    return good && status == Z_STREAM_END && z.next_out == plain + SIZE && memcmp(text, plain, SIZE) == 0 &&
           z.next_in - spares == end && memcmp(spare, end, spares) == 0;
}

static void find_library(void)
{
    static struct igzip tried; /* not allocated: nothing may jump out of pthread_once */
    void *library = file_library("libisal.so.2");
    if (!library) return;
    *(void **)&library_init = dlsym(library, "isal_inflate_init");
    *(void **)&library_inflate = dlsym(library, "isal_inflate");
    is_good = library_init && library_inflate && layout_is_known(&tried) && inflates(&tried);
    if (!is_good) dlclose(library);
}

struct igzip *igzip_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_library);
    return is_good ? mem_zero(1, sizeof(struct igzip)) : NULL;
}

void igzip_close(struct igzip *igzip)
{
    free(igzip);
}
