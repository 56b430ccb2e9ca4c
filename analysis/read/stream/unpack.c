/* unpack.c - inflates with zlib or igzip, and checks lengths and checksums itself. */
#include "read/stream/unpack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "crc.h"

enum { RAW = 128 << 10 };

/* Reads compressed bytes for zlib. Returns false at the end of the file. */
static bool refill(struct unpack *u)
{
    ssize_t got;
    if (u->fd < 0) return false;
    do {
        got = read(u->fd, u->raw, (size_t)MIN((uint64_t)RAW, u->size_of_file - u->file_bytes));
    } while (got < 0 && errno == EINTR);
    if (got <= 0) {
        u->error = got < 0 ? errno : 0;
        return false;
    }
    u->file_bytes += (uint64_t)got;
    if (u->done) atomic_fetch_add_explicit(u->done, (unsigned long long)got, memory_order_relaxed);
    u->z.next_in = (Bytef *)u->raw;
    u->z.avail_in = (uInt)got;
    return true;
}

static void fault(struct unpack *u, bool *what)
{
    *what = true;
    u->fault_at = u->file_bytes - u->z.avail_in - (u->spares - u->spare_at);
}

/* Returns the next byte of the file, -1 at its end. */
static int next_byte(struct unpack *u)
{
    if (u->spare_at < u->spares) return u->spare[u->spare_at++];
    if (!u->z.avail_in && !refill(u)) return -1;
    u->z.avail_in--;
    return *u->z.next_in++;
}

static uint32_t next_number(struct unpack *u, unsigned bytes, bool *whole)
{
    uint32_t number = 0;
    for (unsigned i = 0; i < bytes; i++) {
        int c = next_byte(u);
        *whole &= c >= 0;
        number |= i < 4 ? (uint32_t)(c & 0xff) << (8 * i) : 0;
    }
    return number;
}

static bool skip_text(struct unpack *u)
{
    int c;
    do {
        c = next_byte(u);
    } while (c > 0);
    return c == 0;
}

/* Parses a gzip header (RFC 1952), from its second byte up to the compressed data. */
static void begin_member(struct unpack *u)
{
    enum { HEADER_CRC = 2, EXTRA = 4, NAME = 8, COMMENT = 16 };
    bool whole = true;
    uint32_t magic = next_number(u, 2, &whole), flags = next_number(u, 1, &whole);
    next_number(u, 6, &whole);
    if (whole && magic != 0x088b) {
        fault(u, u->file_bytes - u->z.avail_in <= 10 ? &u->gzip_damaged : &u->gzip_trailing);
        u->finished = true;
        return;
    }
    for (uint32_t extra = flags & EXTRA ? next_number(u, 2, &whole) : 0; extra && whole; extra--)
        next_number(u, 1, &whole);
    whole = whole && (!(flags & NAME) || skip_text(u));
    whole = whole && (!(flags & COMMENT) || skip_text(u));
    if (flags & HEADER_CRC) next_number(u, 2, &whole);
    if (!whole) {
        fault(u, &u->gzip_cut);
        u->finished = true;
    }
    if (u->igzip) igzip_begin(u->igzip);
    else inflateReset(&u->z);
    u->crc = u->size = 0;
}

/* Parses the end of a gzip member. Another member may follow. Zeros are padding; anything else is not part of the
 * trace. */
static void end_member(struct unpack *u)
{
    bool whole = true;
    uint32_t crc = next_number(u, 4, &whole), size = next_number(u, 4, &whole);
    int c = whole ? next_byte(u) : -1;
    if (!whole) fault(u, &u->gzip_cut);
    else if (crc != u->crc || size != u->size) fault(u, &u->gzip_checksum);
    while (c == 0) c = next_byte(u);
    if (c == 0x1f) {
        begin_member(u);
        return;
    }
    if (c > 0) fault(u, &u->gzip_trailing);
    u->finished = true;
}

/* Inflates until the room is full, the input at hand is used up or the member ends. */
static int inflate_some(struct unpack *u)
{
    const Bytef *from = u->z.next_out;
    int status = u->igzip ? igzip_inflate(u->igzip, &u->z, u->spare, &u->spares) : inflate(&u->z, Z_NO_FLUSH);
    u->spare_at = 0;
    u->crc = tfi_crc(u->crc, from, (size_t)(u->z.next_out - from));
    u->size += (uint32_t)(u->z.next_out - from);
    return status;
}

static size_t read_packed(struct unpack *u, char *to, size_t room)
{
    u->z.next_out = (Bytef *)to;
    u->z.avail_out = (uInt)room;
    while (u->z.avail_out && !u->finished) {
        bool has_input = u->z.avail_in || refill(u);
        int status = inflate_some(u);
        if (status == Z_STREAM_END) {
            end_member(u);
        } else if (status != Z_OK && status != Z_BUF_ERROR) {
            fault(u, &u->gzip_damaged);
            u->finished = true;
        } else if (!has_input && u->z.avail_out) {
            fault(u, &u->gzip_cut);
            u->finished = true;
        }
    }
    return room - u->z.avail_out;
}

static size_t read_plain(struct unpack *u, char *to, size_t room)
{
    size_t length = 0;
    while (length < room && (u->z.avail_in || refill(u))) {
        size_t take = MIN((size_t)u->z.avail_in, room - length);
        memcpy(to + length, u->z.next_in, take);
        length += take;
        u->z.next_in += take;
        u->z.avail_in -= (uInt)take;
    }
    u->finished = length < room;
    return length;
}

size_t unpack_read(struct unpack *u, char *to, size_t room)
{
    if (u->finished) return 0;
    return u->is_gzip ? read_packed(u, to, room) : read_plain(u, to, room);
}

/* ---- beginning and end ---- */

static void begin_unpacking(struct unpack *u, bool fast)
{
    u->is_gzip = u->z.avail_in >= 2 && u->z.next_in[0] == 0x1f && u->z.next_in[1] == 0x8b;
    if (!u->is_gzip) return;
    u->igzip = fast ? igzip_open() : NULL;
    u->z_ready = !u->igzip && inflateInit2(&u->z, -MAX_WBITS) == Z_OK;
    next_byte(u);
    begin_member(u);
}

bool unpack_file(struct unpack *u, int fd, uint64_t size, bool fast, atomic_ullong *done)
{
    *u = (struct unpack){.fd = fd, .size_of_file = size, .done = done};
    u->raw = mem_resize(NULL, RAW, 1);
    if (!refill(u) && u->error) return false;
    begin_unpacking(u, fast);
    return true;
}

void unpack_memory(struct unpack *u, const void *bytes, size_t length)
{
    *u = (struct unpack){.fd = -1, .file_bytes = length};
    u->z.next_in = (Bytef *)bytes;
    u->z.avail_in = (uInt)MIN(length, UINT32_MAX);
    begin_unpacking(u, false);
}

void unpack_close(struct unpack *u)
{
    if (u->z_ready) inflateEnd(&u->z);
    igzip_close(u->igzip);
    free(u->raw);
    u->igzip = NULL;
    u->raw = NULL;
    u->z_ready = false;
}
