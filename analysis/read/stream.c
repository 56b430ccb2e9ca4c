/* stream.c - reads and inflates ahead of the parser.
 *
 * The two threads share only the ring. The lock guards `made`, `given_back` and `stop`; one thread at a time owns a
 * block. The reading thread writes the file's faults before it makes the last block, and the parser reads them after
 * taking it.
 */
#include "read/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crc.h"

/* Small enough for the caches, so that the parser finds freshly inflated data there. */
enum { BLOCK = 256 << 10, ROOM = 64 << 10, RAW = 128 << 10, HEAD_PACKED = 16384 };

/* ---- making blocks ---- */

/* Reads compressed bytes for zlib. Returns false at the end of the file. */
static bool refill(struct stream *s)
{
    ssize_t got;
    if (s->fd < 0) return false;
    do {
        got = read(s->fd, s->raw, (size_t)MIN((uint64_t)RAW, s->size_of_file - s->file_bytes));
    } while (got < 0 && errno == EINTR);
    if (got <= 0) {
        s->error = got < 0 ? errno : 0;
        return false;
    }
    s->file_bytes += (uint64_t)got;
    if (s->done) atomic_fetch_add_explicit(s->done, (unsigned long long)got, memory_order_relaxed);
    s->z.next_in = (Bytef *)s->raw;
    s->z.avail_in = (uInt)got;
    return true;
}

static void fault(struct stream *s, bool *what)
{
    *what = true;
    s->fault_at = s->file_bytes - s->z.avail_in;
}

/* Returns the next byte of the file, -1 at its end. */
static int next_byte(struct stream *s)
{
    if (!s->z.avail_in && !refill(s)) return -1;
    s->z.avail_in--;
    return *s->z.next_in++;
}

static uint32_t next_number(struct stream *s, unsigned bytes, bool *whole)
{
    uint32_t number = 0;
    for (unsigned i = 0; i < bytes; i++) {
        int c = next_byte(s);
        *whole &= c >= 0;
        number |= i < 4 ? (uint32_t)(c & 0xff) << (8 * i) : 0;
    }
    return number;
}

static bool skip_text(struct stream *s)
{
    int c;
    do {
        c = next_byte(s);
    } while (c > 0);
    return c == 0;
}

/* Parses a gzip header (RFC 1952), from its second byte up to the compressed data. */
static void begin_member(struct stream *s)
{
    enum { HEADER_CRC = 2, EXTRA = 4, NAME = 8, COMMENT = 16 };
    bool whole = true;
    uint32_t magic = next_number(s, 2, &whole), flags = next_number(s, 1, &whole);
    next_number(s, 6, &whole);
    if (whole && magic != 0x088b) {
        fault(s, s->file_bytes - s->z.avail_in <= 10 ? &s->gzip_damaged : &s->gzip_trailing);
        s->finished = true;
        return;
    }
    for (uint32_t extra = flags & EXTRA ? next_number(s, 2, &whole) : 0; extra && whole; extra--)
        next_number(s, 1, &whole);
    whole = whole && (!(flags & NAME) || skip_text(s));
    whole = whole && (!(flags & COMMENT) || skip_text(s));
    if (flags & HEADER_CRC) next_number(s, 2, &whole);
    if (!whole) {
        fault(s, &s->gzip_cut);
        s->finished = true;
    }
    inflateReset(&s->z);
    s->crc = s->size = 0;
    s->in_member = true;
}

/* Parses the end of a gzip member. Another member may follow. Zeros are padding; anything else is not part of the
 * trace. */
static void end_member(struct stream *s)
{
    bool whole = true;
    uint32_t crc = next_number(s, 4, &whole), size = next_number(s, 4, &whole);
    int c = whole ? next_byte(s) : -1;
    s->in_member = false;
    if (!whole) fault(s, &s->gzip_cut);
    else if (crc != s->crc || size != s->size) fault(s, &s->gzip_checksum);
    while (c == 0) c = next_byte(s);
    if (c == 0x1f) {
        begin_member(s);
        return;
    }
    if (c > 0) fault(s, &s->gzip_trailing);
    s->finished = true;
}

static void inflate_block(struct stream *s, char *data, size_t *length)
{
    s->z.next_out = (Bytef *)data;
    s->z.avail_out = (uInt)s->block_size;
    while (s->z.avail_out && !s->finished) {
        bool has_input = s->z.avail_in || refill(s);
        const Bytef *from = s->z.next_out;
        int status = inflate(&s->z, Z_NO_FLUSH);
        s->crc = tfi_crc(s->crc, from, (size_t)(s->z.next_out - from));
        s->size += (uint32_t)(s->z.next_out - from);
        if (status == Z_STREAM_END) {
            end_member(s);
        } else if (status != Z_OK && status != Z_BUF_ERROR) {
            fault(s, &s->gzip_damaged);
            s->finished = true;
        } else if (!has_input && s->z.avail_out) {
            fault(s, &s->gzip_cut);
            s->finished = true;
        }
    }
    *length = s->block_size - s->z.avail_out;
}

static void copy_block(struct stream *s, char *data, size_t *length)
{
    *length = 0;
    while (*length < s->block_size && (s->z.avail_in || refill(s))) {
        size_t take = MIN((size_t)s->z.avail_in, s->block_size - *length);
        memcpy(data + *length, s->z.next_in, take);
        *length += take;
        s->z.next_in += take;
        s->z.avail_in -= (uInt)take;
    }
    s->finished = *length < s->block_size;
}

/* Fills a block. Its length is 0 only at the end of the file. */
static void make_block(struct stream *s, struct stream_block *block)
{
    block->length = 0;
    if (s->finished) return;
    if (s->is_gzip) inflate_block(s, block->memory + s->room, &block->length);
    else copy_block(s, block->memory + s->room, &block->length);
}

static void *make_blocks(void *argument)
{
    struct stream *s = argument;
    bool more = true;
    while (more) {
        pthread_mutex_lock(&s->lock);
        while (!s->stop && s->made - s->given_back == STREAM_BLOCKS) pthread_cond_wait(&s->changed, &s->lock);
        more = !s->stop;
        pthread_mutex_unlock(&s->lock);
        if (more) {
            struct stream_block *block = &s->block[s->made % STREAM_BLOCKS];
            make_block(s, block);
            more = block->length > 0;
            pthread_mutex_lock(&s->lock);
            s->made++;
            pthread_cond_signal(&s->changed);
            pthread_mutex_unlock(&s->lock);
        }
    }
    return NULL;
}

/* ---- taking blocks ---- */

/* Returns the next block, which belongs to the parser until it is given back; NULL at the end, on every further call
 * too. */
static struct stream_block *take_block(struct stream *s)
{
    struct stream_block *block = &s->block[s->taken % STREAM_BLOCKS];
    if (s->threaded) {
        pthread_mutex_lock(&s->lock);
        while (s->made == s->taken) pthread_cond_wait(&s->changed, &s->lock);
        pthread_mutex_unlock(&s->lock);
    } else if (s->made == s->taken) {
        make_block(s, block);
        s->made++;
    }
    if (!block->length) return NULL;
    s->taken++;
    s->total += block->length;
    return block;
}

/* Gives blocks back. Wakes the reading thread only when half of the ring is free, so that it sleeps and wakes less
 * often. */
static void give_back(struct stream *s, size_t up_to)
{
    if (s->threaded) {
        pthread_mutex_lock(&s->lock);
        s->given_back = up_to;
        if (s->made - s->given_back <= STREAM_BLOCKS / 2) pthread_cond_signal(&s->changed);
        pthread_mutex_unlock(&s->lock);
    } else {
        s->given_back = up_to;
    }
}

static void set_window(struct stream *s, char *at, char *end)
{
    s->at = at;
    s->end = end;
    end[0] = 0;
    memset(end + 1, '"', STREAM_PAD - 1);
}

/* Moves the kept bytes in front of the next block. */
static bool more_in_block(struct stream *s, size_t kept)
{
    struct stream_block *block = take_block(s);
    if (!block) return false;
    char *data = block->memory + s->room;
    memcpy(data - kept, s->at, kept);
    set_window(s, data - kept, data + block->length);
    give_back(s, s->taken - 1);
    s->in_block = true;
    if (s->big_size > (16u << 20)) {
        free(s->big);
        s->big = NULL;
        s->big_size = 0;
    }
    return true;
}

static bool more_in_big(struct stream *s, size_t kept)
{
    size_t length = kept;
    size_t at = s->in_block || !s->big ? 0 : (size_t)(s->at - s->big);
    struct stream_block *block;
    size_t wanted = MIN(2 * kept, MAX(s->most, kept + 1));
    if (s->big_size < wanted + s->block_size + STREAM_PAD) {
        s->big = mem_resize(s->big, wanted + s->block_size + STREAM_PAD, 1);
        s->big_size = wanted + s->block_size + STREAM_PAD;
    }
    memmove(s->big, s->in_block ? s->at : s->big + at, kept);
    s->in_block = false;
    give_back(s, s->taken);
    while (length < wanted && (block = take_block(s)) != NULL) {
        memcpy(s->big + length, block->memory + s->room, block->length);
        length += block->length;
        give_back(s, s->taken);
    }
    set_window(s, s->big, s->big + length);
    return length > kept;
}

bool stream_more(struct stream *s)
{
    size_t kept = (size_t)(s->end - s->at);
    return kept <= s->room ? more_in_block(s, kept) : more_in_big(s, kept);
}

uint64_t stream_offset(const struct stream *s, const char *place)
{
    return s->total - (uint64_t)(s->end - place);
}

/* ---- beginning and end ---- */

static char nothing[STREAM_PAD];

static void begin(struct stream *s)
{
    for (size_t i = 0; i < STREAM_BLOCKS; i++) /* allocated here because the reading thread never allocates */
        s->block[i].memory = mem_resize(NULL, s->room + s->block_size + STREAM_PAD, 1);
    s->at = s->end = nothing;
    s->is_gzip = s->z.avail_in >= 2 && s->z.next_in[0] == 0x1f && s->z.next_in[1] == 0x8b;
    s->z_ready = s->is_gzip && inflateInit2(&s->z, -MAX_WBITS) == Z_OK;
    if (s->is_gzip) {
        next_byte(s);
        begin_member(s);
    }
}

void stream_open_memory(struct stream *s, const void *bytes, size_t length, size_t piece)
{
    piece = MAX(MIN(piece, BLOCK), 1);
    *s = (struct stream){
        .fd = -1, .block_size = piece, .room = MIN(piece, ROOM), .most = SIZE_MAX / 2, .file_bytes = length};
    s->z.next_in = (Bytef *)bytes;
    s->z.avail_in = (uInt)MIN(length, UINT32_MAX);
    begin(s);
}

/* Reads a growing file up to its size at opening. */
bool stream_open(struct stream *s, const char *path, enum file_how how, bool threaded, atomic_ullong *done,
                 const char **why)
{
    struct stat status;
    *s = (struct stream){.block_size = BLOCK, .room = ROOM, .most = SIZE_MAX / 2, .done = done};
    s->fd = file_open(path, how, &status, why);
    if (s->fd < 0) return false;
    s->size_of_file = (uint64_t)status.st_size;
    s->raw = mem_resize(NULL, RAW, 1);
    if (!refill(s) && s->error) {
        *why = strerror(s->error);
        return false;
    }
    begin(s);
    if (threaded) {
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->changed, NULL);
        s->threaded = pthread_create(&s->thread, NULL, make_blocks, s) == 0;
    }
    return true;
}

void stream_close(struct stream *s)
{
    if (s->threaded) {
        pthread_mutex_lock(&s->lock);
        s->stop = true;
        pthread_cond_signal(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
        pthread_mutex_destroy(&s->lock);
        pthread_cond_destroy(&s->changed);
    }
    if (s->z_ready) inflateEnd(&s->z);
    if (s->fd >= 0) close(s->fd);
    for (size_t i = 0; i < STREAM_BLOCKS; i++) free(s->block[i].memory);
    free(s->raw);
    free(s->big);
}

bool stream_read(struct stream *s, const char *path, enum file_how how, atomic_ullong *done,
                 const struct stream_reading *reading, struct notes *notes)
{
    struct mem_guard guard;
    const char *why = NULL;
    volatile bool usable = stream_open(s, path, how, true, done, &why);
    if (!usable) {
        notes_add(notes, UNUSABLE, "cannot be read (%s)", why);
        stream_close(s);
        return false;
    }
    mem_guard(&guard);
    if (setjmp(guard.place) == 0) {
        usable = reading->read(reading->context, notes);
        mem_unguard(&guard);
    } else { /* stops the reading thread first */
        reading->drop(reading->context);
        stream_close(s);
        mem_lack();
    }
    stream_close(s);
    return usable;
}

bool stream_judge(const struct stream *s, struct notes *notes)
{
    unsigned long long at = s->fault_at;
    if (s->error) notes_add(notes, LOSS, "cannot be read to its end (%s)", strerror(s->error));
    else if (s->gzip_damaged)
        notes_add(notes, LOSS, "its compressed data are damaged at byte %llu; everything after that is lost", at);
    else if (s->gzip_checksum)
        notes_add(notes, LOSS,
                  "its compressed data do not match their checksum (before byte %llu); some values are wrong", at);
    else if (s->gzip_trailing)
        notes_add(notes, NOTE, "the data after its compressed part, from byte %llu on, were left out", at);
    return s->error || s->gzip_damaged || s->gzip_checksum || s->gzip_trailing;
}

size_t stream_head(const char *path, enum file_how how, char *to, size_t size)
{
    char packed[HEAD_PACKED];
    struct stat status;
    const char *why;
    z_stream z = {.next_out = (Bytef *)to, .avail_out = (uInt)size};
    int fd = file_open(path, how, &status, &why);
    ssize_t got = fd >= 0 ? read(fd, packed, sizeof packed) : -1;
    if (fd >= 0) close(fd);
    if (got < 2 || packed[0] != '\x1f' || packed[1] != '\x8b') {
        size_t plain = MIN((size_t)MAX(got, 0), size);
        memcpy(to, packed, plain);
        return plain;
    }
    z.next_in = (Bytef *)packed;
    z.avail_in = (uInt)got;
    if (inflateInit2(&z, 15 + 16) != Z_OK) return 0;
    inflate(&z, Z_SYNC_FLUSH); /* the reader of the file reports its faults */
    inflateEnd(&z);
    return size - z.avail_out;
}
