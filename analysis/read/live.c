/* live.c - copies NAME.tfr.live: the records that a process has not appended to the .tfr yet.
 *
 * The process may be running. The head of a chunk is read before and after its rows. If the chunk was reassigned in
 * between, it has been appended to the .tfr, and the copy is dropped. The file has no checksums, so every number in
 * it is checked against the size of the file. Slots are read before the chunks: a collective that a slot shows is then
 * the thread's last one, or it is among the records too.
 */
#include "read/trace.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct source {
    int fd;
    uint64_t size;
};

static bool read_at(const struct source *source, uint64_t offset, void *to, size_t bytes)
{
    if (offset > source->size || bytes > source->size - offset) return false;
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(source->fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (n <= 0 && !(n < 0 && errno == EINTR)) return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Returns a copy of a region, or NULL; `*bytes` is the part of it inside the file. */
static uint8_t *read_region(const struct source *source, struct tfi_region region, uint64_t limit, size_t *bytes)
{
    uint64_t offset = le64toh(region.offset), length = MIN(le64toh(region.bytes), limit);
    *bytes = offset < source->size ? MIN(length, source->size - offset) : 0;
    uint8_t *copy = mem_resize(NULL, *bytes, 1);
    if (!*bytes || !read_at(source, offset, copy, *bytes)) {
        free(copy);
        return NULL;
    }
    return copy;
}

static uint32_t count_rows(const uint8_t *rows, uint32_t bytes)
{
    uint32_t count = 0;
    struct tfi_rec rec;
    for (uint32_t at = 0; bytes - at >= sizeof rec; count++) {
        memcpy(&rec, rows + at, sizeof rec);
        uint16_t size = le16toh(rec.size);
        if (size < sizeof rec || size % 8 || size > bytes - at) break;
        at += size;
    }
    return count;
}

static bool in_use(uint32_t state)
{
    return le32toh(state) == TFI_CHUNK_OPEN || le32toh(state) == TFI_CHUNK_CLOSED;
}

static void take_chunk(struct live *live, const struct source *source, uint64_t offset, uint64_t room)
{
    struct tfi_chunk head, again;
    if (!read_at(source, offset, &head, sizeof head)) return;
    uint32_t bytes = (uint32_t)MIN(le32toh(head.committed), room - sizeof head);
    /* An open chunk without records was just given to a thread: its serial is in no file either. */
    live->taken += le32toh(head.state) == TFI_CHUNK_TAKEN || (le32toh(head.state) == TFI_CHUNK_OPEN && !bytes);
    if (!in_use(head.state) || !bytes) return;
    uint8_t *rows = mem_resize(NULL, bytes, 1);
    if (!read_at(source, offset + sizeof head, rows, bytes) || !read_at(source, offset, &again, sizeof again) ||
        !in_use(again.state) || again.serial != head.serial) {
        free(rows);
        return;
    }
    live->chunk = mem_grow(live->chunk, &live->capacity, live->count + 1, sizeof *live->chunk);
    live->chunk[live->count++] = (struct live_chunk){
        .offset = offset,
        .serial = le64toh(head.serial),
        .thread = le32toh(head.thread),
        .tid = le32toh(head.tid),
        .bytes = bytes,
        .records = count_rows(rows, bytes),
        .rows = rows,
    };
}

static void take_chunks(struct live *live, const struct source *source, struct tfi_region region, uint32_t stride)
{
    uint64_t offset = le64toh(region.offset), bytes = le64toh(region.bytes);
    stride = le32toh(stride);
    if (stride <= sizeof(struct tfi_chunk) || stride > TFI_BLOCK_MAX || offset > source->size) return;
    bytes = MIN(bytes, source->size - offset);
    for (uint64_t at = 0; bytes - at >= stride; at += stride) take_chunk(live, source, offset + at, stride);
}

/* ---- slots ---- */

static void decode_slot(struct tfi_slot *to, const struct tfi_slot *from)
{
    *to = (struct tfi_slot){.state = le32toh(from->state),
                            .thread = le32toh(from->thread),
                            .tid = le32toh(from->tid),
                            .calls = le32toh(from->calls),
                            .stages = le32toh(from->stages),
                            .pthread = le64toh(from->pthread),
                            .start = le64toh(from->start)};
    memcpy(to->name, from->name, sizeof to->name);
    to->name[sizeof to->name - 1] = 0;
    for (size_t i = 0; i < TFI_SLOT_CALLS; i++) {
        to->call[i].start = le64toh(from->call[i].start);
        to->call[i].func = le32toh(from->call[i].func);
    }
    for (size_t i = 0; i < TFI_SLOT_STAGES; i++) {
        to->stage[i].start = le64toh(from->stage[i].start);
        to->stage[i].name = le32toh(from->stage[i].name);
        to->stage[i].id = le32toh(from->stage[i].id);
    }
    to->collective.communicator = le64toh(from->collective.communicator);
    to->collective.sequence = le64toh(from->collective.sequence);
    to->collective.bytes = le64toh(from->collective.bytes);
    to->collective.peer = (int32_t)le32toh((uint32_t)from->collective.peer);
    to->collective.call = le32toh(from->collective.call);
    to->collective.count = le64toh(from->collective.count);
    to->collective.type = le32toh(from->collective.type);
    to->collective.reduction = (int32_t)le32toh((uint32_t)from->collective.reduction);
}

/* A later minor version may have longer slots; they begin with the known part. */
static void take_slots(struct live *live, const struct source *source, const struct tfi_live *head)
{
    uint32_t stride = le32toh(head->slot_bytes);
    size_t bytes;
    if (stride < sizeof(struct tfi_slot) || stride > TFI_BLOCK_MAX) return;
    uint8_t *copy = read_region(source, head->slots, TFI_BLOCK_MAX, &bytes);
    for (size_t at = 0; copy && bytes - at >= stride; at += stride) {
        struct tfi_slot slot;
        memcpy(&slot, copy + at, sizeof slot);
        if (le32toh(slot.state) != 1) continue;
        live->slot = mem_resize(live->slot, live->slots + 1, sizeof *live->slot);
        decode_slot(&live->slot[live->slots++], &slot);
    }
    free(copy);
}

/* Sorts chunks by serial, which is the order in which they were begun. */
static int by_serial(const void *a, const void *b)
{
    const struct live_chunk *x = a, *y = b;
    return (x->serial > y->serial) - (x->serial < y->serial);
}

/* The count of strings is read before the strings, and both after all chunks. So no chunk uses a missing string,
 * unless the region was emptied meanwhile; then the strings are in the .tfr. */
static void take_texts(struct live *live, const struct source *source, const struct tfi_live *head)
{
    struct tfi_live now = *head;
    size_t bytes;
    uint8_t *copy = read_region(source, head->info, TFI_BLOCK_MAX, &bytes);
    if (copy) pairs_parse(&live->info, (const char *)copy, bytes);
    free(copy);
    copy = read_region(source, head->schema, TFI_BLOCK_MAX, &bytes);
    if (copy) schema_parse(&live->schema, (const char *)copy, bytes);
    free(copy);
    read_at(source, 0, &now, sizeof now);
    copy = read_region(source, head->strings, le64toh(now.strings_used), &bytes);
    if (copy) strings_parse(&live->strings, copy, bytes);
    free(copy);
}

static char *check_head(const struct source *source, const struct tfi_live *head)
{
    if (memcmp(head->magic, TFI_LIVE_MAGIC, sizeof head->magic) != 0)
        return string_format("it does not begin with " TFI_LIVE_MAGIC);
    if (le16toh(head->major) > TFI_MAJOR) {
        return string_format("it has format %u.%u, and this tfanalyze reads %d.%d; use a newer one",
                             le16toh(head->major), le16toh(head->minor), TFI_MAJOR, TFI_MINOR);
    }
    if (le32toh(head->head_bytes) < sizeof *head || le32toh(head->head_bytes) > source->size)
        return string_format("its head is not valid");
    return NULL;
}

/* True if the file is still that of the same process. One that ends leaves the file, empty, to another, which writes to it under
 * another name. The .tfr of the one that ended is complete then. */
static bool is_still(const struct source *source, const struct tfi_live *head)
{
    struct tfi_live now;
    return read_at(source, 0, &now, sizeof now) && memcmp(now.magic, head->magic, sizeof now.magic) == 0 &&
           now.ticks == head->ticks;
}

struct live *live_read(const char *path, enum file_how how, char **why)
{
    struct live *live = NULL;
    struct stat status;
    const char *reason = NULL;
    struct source source = {.fd = file_open(path, how, &status, &reason)};
    struct tfi_live head;
    struct timespec now;
    *why = NULL;
    clock_gettime(CLOCK_REALTIME, &now);
    if (source.fd < 0) {
        *why = string_format("%s", reason);
        goto out;
    }
    source.size = (uint64_t)status.st_size;
    if (!read_at(&source, 0, &head, sizeof head)) {
        *why = string_format("it has %llu bytes, too few for a head", (unsigned long long)source.size);
        goto out;
    }
    *why = check_head(&source, &head);
    if (*why) goto out;
    live = mem_zero(1, sizeof *live);
    live->path = string_format("%s", path);
    live->modified = status.st_mtime;
    live->owner = status.st_uid;
    live->minor = le16toh(head.minor);
    live->serial = le64toh(head.serial);
    live->read_at = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    for (size_t i = 0; i < TFI_MAX_DROPS; i++) live->drops[i] = le64toh(head.drops[i]);
    take_slots(live, &source, &head);
    take_chunks(live, &source, head.small, head.small_bytes);
    take_chunks(live, &source, head.large, head.large_bytes);
    if (live->count) qsort(live->chunk, live->count, sizeof *live->chunk, by_serial);
    take_texts(live, &source, &head);
    if (!is_still(&source, &head)) {
        live_free(live);
        live = NULL;
    }
out:
    if (source.fd >= 0) close(source.fd);
    return live;
}

bool live_is_blank(const char *path)
{
    struct stat status;
    const char *reason;
    char magic[sizeof TFI_LIVE_MAGIC] = {0};
    struct source source = {.fd = file_open(path, FILE_FOUND, &status, &reason)};
    if (source.fd < 0) return false;
    source.size = (uint64_t)status.st_size;
    bool blank = !source.size || (read_at(&source, 0, magic, sizeof magic) && !magic[0]);
    close(source.fd);
    return blank;
}

void live_free(struct live *live)
{
    if (!live) return;
    for (size_t i = 0; i < live->count; i++) free(live->chunk[i].rows);
    free(live->chunk);
    free(live->slot);
    free(live->path);
    pairs_free(&live->info);
    schema_free(&live->schema);
    strings_free(&live->strings);
    free(live);
}
