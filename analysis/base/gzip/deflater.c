/* deflater.c - compresses a block with libisal.so.2 or zlib, and checks the layout of libisal's state.
 *
 * The library has no header in the build: `struct stream` is isal_zstream of its igzip_lib.h, the same from 2.25 to 2.32
 * (tested: 2.30). Before any byte is compressed, isal_deflate_init runs on memory full of a pattern, and must clear just
 * the members that it clears in these versions; a stream with another layout never gets further. Then zlib inflates what
 * the library makes of a small text. Each stream lies in twice the memory that it needs, and so does its buffer.
 *
 * Level 1 of libisal makes files a little smaller than level 1 of zlib, in a sixth of the time.
 */
#include "base/gzip/deflater.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/file_in.h"

/* A report compresses an event up to fifty times, once per stage around it. zlib's fastest level needs a third of the
 * default level's time and a fifth more space. */
enum { LEVEL = 1, NO_FLUSH = 0, SYNC_FLUSH = 1, STATE_NEW = 0, STATE_END = 11, PATTERN = 0xa5 };
/* Bytes of memory for libisal's level 1 (ISAL_DEF_LVL1_DEFAULT); a library that needs more says so. */
enum { LEVEL_BUFFER = 4096 + 2 * 8192 + 4 * 65536 };

struct stream {
    const uint8_t *next_in;
    uint32_t avail_in, total_in;
    uint8_t *next_out;
    uint32_t avail_out, total_out;
    void *huffman_tables;
    uint32_t level, level_buffer_size;
    uint8_t *level_buffer;
    uint16_t end_of_stream, flush, gzip_flag, hist_bits;
    /* internal state */
    uint32_t total_in_start, block_next, block_end, dist_mask, hash_mask, state;
    uint64_t bits;
    uint32_t bit_count;
    uint8_t *bits_out, *bits_end, *bits_start;
    uint32_t crc;
    uint8_t has_header, has_end_header, has_end, has_history;
    uint16_t has_level_buffer;
    uint32_t count;
    uint8_t small_out[16];
    uint32_t small_start, small_end, valid, processed;
    uint8_t buffer[2 * DEFLATER_WINDOW + 288];
    uint16_t head[8192];
};

struct isal {
    struct stream stream;
    uint8_t more[sizeof(struct stream)];
    uint8_t level_buffer[2 * LEVEL_BUFFER];
};

struct deflater {
    z_stream z;
    struct isal *isal; /* NULL: zlib compresses */
};

static struct {
    void (*init)(struct stream *stream);
    void (*reset)(struct stream *stream);
    int (*set_dictionary)(struct stream *stream, const uint8_t *dictionary, uint32_t length);
    int (*deflate)(struct stream *stream);
    bool is_good;
} library;

/* ---- libisal ---- */

static void isal_begin(struct isal *isal)
{
    library.init(&isal->stream);
    isal->stream.level = LEVEL;
    isal->stream.level_buffer = isal->level_buffer;
    isal->stream.level_buffer_size = LEVEL_BUFFER;
}

static size_t isal_compress(struct isal *isal, const struct deflater_block *b)
{
    struct stream *s = &isal->stream;
    library.reset(s);
    if (b->dictionary_length && library.set_dictionary(s, b->dictionary, (uint32_t)b->dictionary_length) != 0) return 0;
    s->next_in = b->data;
    s->avail_in = (uint32_t)b->length;
    s->next_out = b->out;
    s->avail_out = (uint32_t)b->room;
    s->end_of_stream = b->last;
    s->flush = b->last ? NO_FLUSH : SYNC_FLUSH;
    int status = library.deflate(s);
    bool done = s->state == (b->last ? STATE_END : STATE_NEW) && s->bit_count == 0;
    bool sane = s->avail_in == 0 && s->next_in == b->data + b->length && s->avail_out < b->room &&
                s->next_out == b->out + (b->room - s->avail_out);
    return status == 0 && done && sane && s->avail_out ? b->room - s->avail_out : 0;
}

/* Where no bytes precede a block, what libisal 2.30 makes of it depends on the stream's address: one short block in a hundred
 * comes out differently. So the first byte becomes a stored block, and precedes the rest. */
static size_t isal_run(struct isal *isal, const struct deflater_block *b)
{
    if (b->dictionary_length || !b->length) return isal_compress(isal, b);
    const uint8_t stored[] = {0, 1, 0, 0xfe, 0xff, b->data[0]};
    if (b->room < sizeof stored) return 0;
    memcpy(b->out, stored, sizeof stored);
    const struct deflater_block rest = {.dictionary = b->data,
                                        .dictionary_length = 1,
                                        .data = b->data + 1,
                                        .length = b->length - 1,
                                        .last = b->last,
                                        .out = b->out + sizeof stored,
                                        .room = b->room - sizeof stored};
    size_t length = isal_compress(isal, &rest);
    return length ? sizeof stored + length : 0;
}

/* ---- checks of the library ---- */

static bool all_are(const void *from, const void *to, uint8_t value)
{
    const uint8_t *p = from;
    while (p < (const uint8_t *)to && *p == value) p++;
    return p == to;
}

static bool are_cleared(const struct stream *s)
{
    const void *pattern;
    memset(&pattern, PATTERN, sizeof pattern);
    return !s->total_in && !s->total_out && s->huffman_tables && s->huffman_tables != pattern &&
           all_are(&s->level, &s->dist_mask, 0) && !s->state && !s->bits && !s->bit_count && !s->crc &&
           all_are(&s->has_header, &s->has_level_buffer, 0) && !s->has_level_buffer && !s->count &&
           all_are(&s->small_start, s->buffer, 0);
}

static bool layout_is_known(struct isal *isal)
{
    const struct stream *s = &isal->stream;
    memset(isal, PATTERN, sizeof *isal);
    library.init(&isal->stream);
    return are_cleared(s) && all_are(&s->next_in, &s->total_in, PATTERN) &&
           all_are(&s->next_out, &s->total_out, PATTERN) && all_are(&s->dist_mask, &s->state, PATTERN) &&
           all_are(&s->bits_out, &s->crc, PATTERN) && all_are(s->small_out, &s->small_start, PATTERN) &&
           all_are(s->buffer, isal + 1, PATTERN);
}

/* Compresses two blocks, the second with the end of the first as its dictionary. zlib has to give back the text. */
static bool deflates(struct isal *isal)
{
    enum { HALF = 3 * DEFLATER_WINDOW, SIZE = 2 * HALF };
    static uint8_t text[SIZE], packed[2 * SIZE], plain[SIZE + 1];
    for (size_t i = 0; i < SIZE; i++) text[i] = (uint8_t)(i * i >> 5 & (i & 64 ? 0x1f : 0xff));
    struct deflater_block first = {.data = text, .length = HALF, .out = packed, .room = SIZE};
    isal_begin(isal);
    size_t length = isal_run(isal, &first);
    struct deflater_block second = {
        text + HALF - DEFLATER_WINDOW, DEFLATER_WINDOW, text + HALF, HALF, true, packed + length, SIZE};
    size_t more = length ? isal_run(isal, &second) : 0;
    z_stream z = {.next_in = packed, .avail_in = (uInt)(length + more), .next_out = plain, .avail_out = sizeof plain};
    if (!more || inflateInit2(&z, -MAX_WBITS) != Z_OK) return false;
    int status = inflate(&z, Z_FINISH);
    bool good = status == Z_STREAM_END && !z.avail_in && z.avail_out == 1 && memcmp(text, plain, SIZE) == 0;
    inflateEnd(&z);
    return good && all_are(isal->more, isal->level_buffer, PATTERN) &&
           all_are(isal->level_buffer + LEVEL_BUFFER, isal + 1, PATTERN);
}

static void find_library(void)
{
    static struct isal tried;
    void *handle = file_library("libisal.so.2");
    if (!handle) return;
    *(void **)&library.init = dlsym(handle, "isal_deflate_init");
    *(void **)&library.reset = dlsym(handle, "isal_deflate_reset");
    *(void **)&library.set_dictionary = dlsym(handle, "isal_deflate_set_dict");
    *(void **)&library.deflate = dlsym(handle, "isal_deflate");
    library.is_good = library.init && library.reset && library.set_dictionary && library.deflate &&
                      layout_is_known(&tried) && deflates(&tried);
    if (!library.is_good) dlclose(handle);
}

/* ---- either library ---- */

static size_t zlib_run(z_stream *z, const struct deflater_block *b)
{
    deflateReset(z);
    if (b->dictionary_length) deflateSetDictionary(z, b->dictionary, (uInt)b->dictionary_length);
    z->next_in = (Bytef *)b->data;
    z->avail_in = (uInt)b->length;
    z->next_out = b->out;
    z->avail_out = (uInt)b->room;
    int status = deflate(z, b->last ? Z_FINISH : Z_SYNC_FLUSH);
    bool done = status == (b->last ? Z_STREAM_END : Z_OK) && !z->avail_in && z->avail_out;
    return done ? b->room - z->avail_out : 0;
}

struct deflater *deflater_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_library);
    struct deflater *deflater = calloc(1, sizeof *deflater);
    if (!deflater) return NULL;
    if (library.is_good) {
        deflater->isal = calloc(1, sizeof *deflater->isal);
        if (deflater->isal) isal_begin(deflater->isal);
    }
    if (deflater->isal || deflateInit2(&deflater->z, LEVEL, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK)
        return deflater;
    free(deflater);
    return NULL;
}

bool deflater_is_isal(const struct deflater *deflater)
{
    return deflater->isal;
}

size_t deflater_run(struct deflater *deflater, const struct deflater_block *block)
{
    return deflater->isal ? isal_run(deflater->isal, block) : zlib_run(&deflater->z, block);
}

void deflater_close(struct deflater *deflater)
{
    if (!deflater) return;
    if (deflater->isal) free(deflater->isal);
    else deflateEnd(&deflater->z);
    free(deflater);
}
