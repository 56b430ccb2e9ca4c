/* stream.c - reads and inflates ahead of the parser, and has others scan ahead of it.
 *
 * The threads share only the ring. The lock guards `made`, `claimed`, `is_scanned`, `given_back` and `stop`; one thread
 * at a time owns a block. The inflating thread writes the file's faults before it makes the last block, and the parser
 * reads them after taking it. The parser scans too while it waits, so that no thread sleeps while there is work.
 */
#include "read/stream/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Small enough for the caches, so that the parser finds freshly inflated data there. */
enum { ROOM = 64 << 10, HEAD_PACKED = 16384 };

/* ---- making blocks ---- */

static void end_text(char *end)
{
    end[0] = 0;
    memset(end + 1, '"', STREAM_PAD - 1);
}

/* Ends the block where its last item begins; the rest begins the next one. */
static void carry(struct stream *s, struct stream_block *block)
{
    char *end = block->data + block->length, *from = block->length > STREAM_CARRY ? end - STREAM_CARRY : block->data;
    char *start = s->ahead->last_start(s->ahead->shared, from, end);
    if (!start || start == block->data) return;
    s->carried = (size_t)(end - start);
    memcpy(s->carry, start, s->carried);
    block->length -= s->carried;
}

/* Fills a block. Its length is 0 only at the end of the file. */
static void make_block(struct stream *s, struct stream_block *block)
{
    char *room = block->memory + s->room + (s->ahead ? STREAM_CARRY : 0);
    size_t carried = s->carried;
    block->data = room - carried;
    if (carried) memcpy(block->data, s->carry, carried);
    s->carried = 0;
    block->length = carried + unpack_read(&s->file, room, s->block_size);
    block->is_scanned = false;
    if (s->ahead && block->length > carried) carry(s, block);
    end_text(block->data + block->length);
}

static void *make_blocks(void *argument)
{
    struct stream *s = argument;
    bool more = true;
    while (more) {
        pthread_mutex_lock(&s->lock);
        while (!s->stop && s->made - s->given_back == s->blocks) pthread_cond_wait(&s->has_room, &s->lock);
        more = !s->stop;
        pthread_mutex_unlock(&s->lock);
        if (more) {
            struct stream_block *block = &s->block[s->made % s->blocks];
            make_block(s, block);
            more = block->length > 0;
            pthread_mutex_lock(&s->lock);
            s->made++;
            pthread_cond_broadcast(&s->changed);
            pthread_mutex_unlock(&s->lock);
        }
    }
    return NULL;
}

/* ---- scanning ahead ---- */

/* Scans the next block that nobody has scanned; the caller holds the lock. Returns false if there is none. */
static bool scan_one(struct stream *s)
{
    if (s->claimed == s->made) return false;
    struct stream_block *block = &s->block[s->claimed++ % s->blocks];
    pthread_mutex_unlock(&s->lock);
    s->ahead->scan(s->ahead->shared, block->data, block->data + block->length, block->scan);
    pthread_mutex_lock(&s->lock);
    block->is_scanned = true;
    pthread_cond_broadcast(&s->changed);
    return true;
}

static void *scan_blocks(void *argument)
{
    struct stream *s = argument;
    pthread_mutex_lock(&s->lock);
    while (!s->stop)
        if (!scan_one(s)) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- taking blocks ---- */

static bool is_ready(const struct stream *s)
{
    return s->made > s->taken && (!s->ahead || s->block[s->taken % s->blocks].is_scanned);
}

/* Returns the next block, which belongs to the parser until it is given back; NULL at the end, on every further call
 * too. */
static struct stream_block *take_block(struct stream *s)
{
    struct stream_block *block = &s->block[s->taken % s->blocks];
    if (s->threaded) {
        pthread_mutex_lock(&s->lock);
        while (!is_ready(s))
            if (!s->ahead || !scan_one(s)) pthread_cond_wait(&s->changed, &s->lock);
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
        if (s->made - s->given_back <= s->blocks / 2) pthread_cond_signal(&s->has_room);
        pthread_mutex_unlock(&s->lock);
    } else {
        s->given_back = up_to;
    }
}

/* Moves the kept bytes in front of the next block. */
static bool more_in_block(struct stream *s, size_t kept)
{
    struct stream_block *block = take_block(s);
    if (!block) return false;
    memcpy(block->data - kept, s->at, kept);
    s->at = block->data - kept;
    s->end = block->data + block->length;
    s->scan = s->ahead ? block->scan : NULL;
    s->scan_at = block->data;
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
    size_t room =
        wanted + s->block_size + STREAM_CARRY + STREAM_PAD; /* a block begins with what the last one carried */
    if (s->big_size < room) {
        s->big = mem_resize(s->big, room, 1);
        s->big_size = room;
    }
    memmove(s->big, s->in_block ? s->at : s->big + at, kept);
    s->in_block = false;
    give_back(s, s->taken);
    while (length < wanted && (block = take_block(s)) != NULL) {
        memcpy(s->big + length, block->data, block->length);
        length += block->length;
        give_back(s, s->taken);
    }
    s->at = s->big;
    s->end = s->big + length;
    s->scan = NULL;
    end_text(s->end);
    return length > kept;
}

bool stream_more(struct stream *s)
{
    size_t kept = (size_t)(s->end - s->at);
    return kept <= s->room ? more_in_block(s, kept) : more_in_big(s, kept);
}

/* ---- beginning and end ---- */

static char nothing[STREAM_PAD];

/* Allocates here because the other threads never allocate. */
static void make_room(struct stream *s, size_t blocks)
{
    size_t carry = s->ahead ? STREAM_CARRY : 0;
    s->blocks = blocks;
    for (size_t i = 0; i < blocks; i++) {
        s->block[i].memory = mem_resize(s->block[i].memory, s->room + carry + s->block_size + STREAM_PAD, 1);
        if (s->ahead) s->block[i].scan = mem_resize(NULL, s->ahead->size, 1);
    }
}

void stream_open_memory(struct stream *s, const void *bytes, size_t length, size_t piece)
{
    piece = MAX(MIN(piece, STREAM_BLOCK), 1);
    *s = (struct stream){.at = nothing,
                         .end = nothing,
                         .is_open = true,
                         .block_size = piece,
                         .room = MIN(piece, ROOM),
                         .most = SIZE_MAX / 2};
    unpack_memory(&s->file, bytes, length);
    make_room(s, 2);
}

/* Reads a growing file up to its size at opening. */
bool stream_open(struct stream *s, const char *path, const struct stream_way *way, atomic_ullong *done,
                 const char **why)
{
    struct stat status;
    *s = (struct stream){.at = nothing, .end = nothing, .block_size = STREAM_BLOCK, .room = ROOM, .most = SIZE_MAX / 2};
    s->file.fd = file_open(path, way->how, &status, why);
    if (s->file.fd < 0) return false;
    s->is_open = true;
    if (!unpack_file(&s->file, s->file.fd, (uint64_t)status.st_size, !way->exact, done)) {
        *why = strerror(s->file.error);
        return false;
    }
    make_room(s, 2);
    return true;
}

/* Starts the thread that inflates and, if `ahead` is not NULL, those that scan. Without this call the parser's thread
 * inflates. */
static void start_threads(struct stream *s, const struct stream_way *way, const struct stream_ahead *ahead)
{
    size_t threads = MIN(MAX(way->threads, 1), STREAM_MOST_THREADS);
    s->ahead = threads > 1 ? ahead : NULL;
    s->carry = s->ahead ? mem_resize(NULL, STREAM_CARRY, 1) : NULL;
    make_room(s, STREAM_BLOCKS + (s->ahead ? 2 * threads : 0));
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_cond_init(&s->has_room, NULL);
    s->threaded = pthread_create(&s->thread, NULL, make_blocks, s) == 0;
    if (!s->threaded) s->ahead = NULL;
    while (s->ahead && s->scanners + 1 < threads && pthread_create(&s->scanner[s->scanners], NULL, scan_blocks, s) == 0)
        s->scanners++;
}

void stream_close(struct stream *s)
{
    if (s->threaded) {
        pthread_mutex_lock(&s->lock);
        s->stop = true;
        pthread_cond_broadcast(&s->changed);
        pthread_cond_signal(&s->has_room);
        pthread_mutex_unlock(&s->lock);
        while (s->scanners) pthread_join(s->scanner[--s->scanners], NULL);
        pthread_join(s->thread, NULL);
        pthread_mutex_destroy(&s->lock);
        pthread_cond_destroy(&s->changed);
        pthread_cond_destroy(&s->has_room);
    }
    if (s->is_open) {
        unpack_close(&s->file);
        if (s->file.fd >= 0) close(s->file.fd);
    }
    for (size_t i = 0; i < s->blocks; i++) {
        free(s->block[i].memory);
        free(s->block[i].scan);
    }
    free(s->carry);
    free(s->big);
}

bool stream_read(struct stream *s, const char *path, const struct stream_way *way, atomic_ullong *done,
                 const struct stream_reading *reading, struct notes *notes)
{
    struct mem_guard guard;
    const char *why = NULL;
    volatile bool usable = stream_open(s, path, way, done, &why);
    if (!usable) {
        notes_add(notes, UNUSABLE, "cannot be read (%s)", why);
        stream_close(s);
        return false;
    }
    mem_guard(&guard);
    if (setjmp(guard.place) == 0) {
        start_threads(s, way, reading->ahead);
        usable = reading->read(reading->context, notes);
        mem_unguard(&guard);
    } else { /* stops the other threads first */
        reading->drop(reading->context);
        stream_close(s);
        mem_lack();
    }
    stream_close(s);
    return usable;
}

bool stream_in_doubt(const struct stream *s)
{
    return s->file.igzip && (s->file.gzip_damaged || s->file.gzip_checksum || s->file.gzip_cut);
}

bool stream_judge(const struct stream *s, struct notes *notes)
{
    const struct unpack *f = &s->file;
    unsigned long long at = f->fault_at;
    if (f->error) notes_add(notes, LOSS, "cannot be read to its end (%s)", strerror(f->error));
    else if (f->gzip_damaged)
        notes_add(notes, LOSS, "its compressed data are damaged at byte %llu; everything after that is lost", at);
    else if (f->gzip_checksum)
        notes_add(notes, LOSS,
                  "its compressed data do not match their checksum (before byte %llu); some values are wrong", at);
    else if (f->gzip_trailing)
        notes_add(notes, NOTE, "the data after its compressed part, from byte %llu on, were left out", at);
    return f->error || f->gzip_damaged || f->gzip_checksum || f->gzip_trailing;
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
