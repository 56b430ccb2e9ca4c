/* tfr.c - finds the blocks of a .tfr, also of a damaged one, and reads its blocks other than chunks.
 *
 * The head of a block has a checksum of its own, so its size can be trusted even if the content is damaged. If there
 * is no valid head, the reader searches for the next one. If the block before was damaged too, its size may be left
 * over from a torn write, and the search begins inside that block. This finds every intact block.
 */
#include "crc.h"
#include "read/ahead.h"
#include "read/trace.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 1 << 20, SEARCH_FOR_FIRST = 8 << 20 };

/* ---- bytes ---- */

static bool read_at(int fd, uint64_t offset, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (n <= 0 && !(n < 0 && errno == EINTR)) return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* ---- heads ---- */

static bool good_head(const void *bytes, struct tfi_block *head)
{
    memcpy(head, bytes, sizeof *head);
    if (le32toh(head->magic) != TFI_BLOCK_MAGIC ||
        le32toh(head->head_crc) != tfi_crc(0, bytes, offsetof(struct tfi_block, head_crc)))
        return false;
    head->type = le16toh(head->type);
    head->flags = le16toh(head->flags);
    head->serial = le64toh(head->serial);
    head->thread = le32toh(head->thread);
    head->tid = le32toh(head->tid);
    head->stored = le32toh(head->stored);
    head->raw = le32toh(head->raw);
    head->records = le32toh(head->records);
    head->crc = le32toh(head->crc);
    return head->stored <= TFI_BLOCK_MAX && head->raw <= TFI_BLOCK_MAX;
}

static bool head_at(const struct trace *trace, uint64_t offset, struct tfi_block *head)
{
    uint8_t bytes[sizeof *head];
    return trace->size - offset >= sizeof bytes && read_at(trace->fd, offset, bytes, sizeof bytes) &&
           good_head(bytes, head);
}

/* Returns the offset of the first valid head from `from` on, or `limit`. */
static uint64_t find_head(const struct trace *trace, uint64_t from, uint64_t limit)
{
    const uint32_t magic = htole32(TFI_BLOCK_MAGIC);
    struct tfi_block head;
    uint8_t *window = mem_resize(NULL, WINDOW, 1);
    uint64_t found = limit;
    while (found == limit && from < limit && limit - from >= sizeof head) {
        off_t data = lseek(trace->fd, (off_t)from, SEEK_DATA); /* skips the holes of a sparse file */
        from = data > (off_t)from ? MIN((uint64_t)data, limit) : data < 0 && errno == ENXIO ? limit : from;
        size_t bytes = (size_t)MIN((uint64_t)WINDOW, limit - from);
        if (bytes < sizeof head || !read_at(trace->fd, from, window, bytes)) break;
        const uint8_t *p = window, *end = window + bytes;
        while ((p = memmem(p, (size_t)(end - p), &magic, sizeof magic)) != NULL) {
            if (end - p >= (ptrdiff_t)sizeof head && good_head(p, &head)) {
                found = from + (uint64_t)(p - window);
                break;
            }
            p++;
        }
        from += bytes - (sizeof head - 1);
    }
    free(window);
    return found;
}

/* ---- payloads ---- */

/* Returns the unpacked payload of a block, which the caller frees; NULL if it is damaged. */
static uint8_t *payload_of(const struct trace *trace, uint64_t offset, const struct tfi_block *head)
{
    z_stream stream = {0};
    bool ready = false;
    uint8_t *raw = NULL, *stored = mem_resize(NULL, head->stored, 1);
    if (!read_at(trace->fd, offset + sizeof *head, stored, head->stored) ||
        tfi_crc(0, stored, head->stored) != head->crc)
        goto out;
    if (!(head->flags & TFI_FLAG_DEFLATED)) {
        raw = head->raw == head->stored ? stored : NULL;
        stored = raw ? NULL : stored;
        goto out;
    }
    raw = mem_resize(NULL, head->raw, 1);
    if (!inflate_all(&stream, &ready, stored, head->stored, raw, head->raw)) {
        free(raw);
        raw = NULL;
    }
out:
    if (ready) inflateEnd(&stream);
    free(stored);
    return raw;
}

static void add_place(struct trace *trace, uint64_t offset)
{
    trace->first_place = trace->places ? MIN(trace->first_place, offset) : offset;
    trace->places++;
}

static void add_piece(struct trace *trace, uint64_t offset, const struct tfi_block *head)
{
    trace->piece = mem_grow(trace->piece, &trace->capacity, trace->pieces + 1, sizeof *trace->piece);
    trace->piece[trace->pieces++] = (struct piece){
        .offset = offset,
        .serial = head->serial,
        .thread = head->thread,
        .tid = head->tid,
        .stored = head->stored,
        .raw = head->raw,
        .records = head->records,
        .crc = head->crc,
        .flags = head->flags,
    };
}

/* Reads a block other than a chunk. A damaged block is no loss if the live file has the same content. */
static void take_text_block(struct trace *trace, uint64_t offset, const struct tfi_block *head)
{
    uint8_t *payload = payload_of(trace, offset, head);
    if (!payload && !(trace->live && head->type != TFI_BLOCK_FOOTER)) add_place(trace, offset);
    if (payload && head->type == TFI_BLOCK_HEADER) {
        pairs_parse(&trace->info, (const char *)payload, head->raw);
    } else if (payload && head->type == TFI_BLOCK_SCHEMA) {
        schema_parse(&trace->schema, (const char *)payload, head->raw);
    } else if (payload && head->type == TFI_BLOCK_STRINGS) {
        strings_parse(&trace->strings, payload, head->raw);
    } else if (payload && head->type == TFI_BLOCK_FOOTER) {
        pairs_parse(&trace->footer, (const char *)payload, head->raw);
        trace->ends_with_footer = true;
    }
    free(payload);
}

static void take_block(struct trace *trace, uint64_t offset, const struct tfi_block *head)
{
    trace->ends_with_footer = false;
    if (head->type == TFI_BLOCK_CHUNK) add_piece(trace, offset, head);
    else if (head->type >= TFI_BLOCK_HEADER && head->type <= TFI_BLOCK_FOOTER) take_text_block(trace, offset, head);
    else trace->unknown_blocks++;
}

/* ---- the chain of blocks ---- */

struct chain {
    uint64_t at;
    uint64_t last; /* offset of the block before `at`, 0 if there is none */
    struct tfi_block last_head;
};

/* Finds the next head: there is none at chain->at. */
static void skip_gap(struct trace *trace, struct chain *chain)
{
    uint64_t from = chain->at + 1;
    if (chain->last) {
        uint8_t *payload = payload_of(trace, chain->last, &chain->last_head);
        from = payload ? from : chain->last + sizeof chain->last_head;
        free(payload);
    }
    uint64_t found = find_head(trace, from, trace->size);
    if (found == trace->size) {
        trace->torn = true;
        trace->torn_at = chain->at;
    } else {
        add_place(trace, chain->at);
    }
    trace->gap_bytes += found > chain->at ? found - chain->at : 0;
    chain->at = found;
    chain->last = 0;
}

/* Handles the block at chain->at, which extends beyond the end of the file: the end is torn, or the writer never
 * completed the block. */
static void take_torn_block(struct trace *trace, struct chain *chain, const struct tfi_block *head)
{
    uint64_t found = find_head(trace, chain->at + sizeof *head, trace->size);
    if (head->type == TFI_BLOCK_CHUNK) {
        add_piece(trace, chain->at, head);
        trace->piece[trace->pieces - 1].state = PIECE_DAMAGED;
    }
    if (found == trace->size) {
        trace->torn = true;
        trace->torn_at = chain->at;
    } else {
        add_place(trace, chain->at);
    }
    trace->ends_with_footer = false;
    chain->at = found;
    chain->last = 0;
}

static void find_blocks(struct trace *trace, uint64_t start)
{
    struct chain chain = {.at = start};
    struct tfi_block head;
    while (chain.at < trace->size) {
        if (!head_at(trace, chain.at, &head)) {
            trace->ends_with_footer = false;
            skip_gap(trace, &chain);
        } else if (trace->size - chain.at - sizeof head < head.stored) {
            take_torn_block(trace, &chain, &head);
        } else {
            take_block(trace, chain.at, &head);
            chain.last = chain.at;
            chain.last_head = head;
            chain.at += sizeof head + ((head.stored + 7) & ~7u);
        }
    }
}

/* ---- opening ---- */

/* Returns the offset of the first block, or 0 with a note if the file is not a trace of ours. */
static uint64_t check_start(struct trace *trace, struct notes *notes)
{
    struct tfi_file_head head = {0};
    struct tfi_block block;
    bool whole = trace->size >= sizeof head && read_at(trace->fd, 0, &head, sizeof head);
    uint32_t head_bytes = le32toh(head.head_bytes);
    if (trace->size == 0) {
        notes_add(notes, UNUSABLE,
                  "is empty: the disk was full when its process began, or the process was killed at that moment");
        return 0;
    }
    if (whole && memcmp(head.magic, TFI_FILE_MAGIC, sizeof head.magic) == 0 && head_bytes >= sizeof head &&
        head_bytes <= 4096) {
        if (le16toh(head.major) > TFI_MAJOR) {
            notes_add(notes, UNUSABLE, "has format %u.%u, and this tfanalyze reads %d.%d; use a newer one",
                      le16toh(head.major), le16toh(head.minor), TFI_MAJOR, TFI_MINOR);
            trace->is_newer = true;
            return 0;
        }
        if (le16toh(head.major) == TFI_MAJOR && le16toh(head.minor) > TFI_MINOR) {
            notes_add(notes, NOTE, "has format %u.%u, newer than this tfanalyze's %d.%d: unknown records are skipped",
                      le16toh(head.major), le16toh(head.minor), TFI_MAJOR, TFI_MINOR);
        }
        return head_bytes;
    }
    uint64_t limit = MIN(trace->size, (uint64_t)SEARCH_FOR_FIRST);
    uint64_t found = find_head(trace, 1, limit);
    if (found == limit || !head_at(trace, found, &block)) {
        notes_add(notes, UNUSABLE,
                  "is not a .tfr trace: it does not begin with " TFI_FILE_MAGIC
                  " and contains no block, nor is it JSON; give a run directory, a .tfr or a PyTorch trace");
        return 0;
    }
    trace->head_damaged = true;
    return found;
}

static bool same_process(const struct trace *trace, const struct live *live)
{
    static const char *const keys[] = {"pid", "boot_id", "start_time"};
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        const char *a = pairs_get(&trace->info, keys[i]), *b = pairs_get(&live->info, keys[i]);
        if (!a || !b || strcmp(a, b) != 0) return false;
    }
    return true;
}

/* Tells whether `place` may be the live file of the trace. A trace may come from anybody, so its header does not
 * choose freely which file is opened. The name must be the one derived from the trace's own. The file must be in
 * /dev/shm under the library's name, or the trace must belong to the reader. */
static bool may_be_its_live(const struct trace *trace, const char *place)
{
    const char *slash = strrchr(trace->path, '/'), *own = slash ? slash + 1 : trace->path;
    const char *end = strrchr(place, '/'), *name = end ? end + 1 : place;
    char *beside = string_format("%s.live", own);
    char *shared = string_format("tfinject.%u.%s.live", (unsigned)trace->owner, own);
    bool named = strcmp(name, beside) == 0 || strcmp(name, shared) == 0;
    bool in_shm = strncmp(place, "/dev/shm/", 9) == 0 && end == place + 8 && strcmp(name, shared) == 0;
    free(beside);
    free(shared);
    return *place == '/' && named && (in_shm || trace->owner == geteuid());
}

/* Reads the live file at the path in the header, if it exists and belongs to the same process. */
static void find_live_elsewhere(struct trace *trace, uint64_t start)
{
    struct tfi_block head;
    char *why = NULL;
    if (!head_at(trace, start, &head) || head.type != TFI_BLOCK_HEADER) return;
    uint8_t *payload = payload_of(trace, start, &head);
    if (payload) pairs_parse(&trace->info, (const char *)payload, head.raw);
    free(payload);
    const char *place = pairs_get(&trace->info, "live");
    trace->live = place && may_be_its_live(trace, place) ? live_read(place, FILE_FOUND, &why) : NULL;
    if (trace->live && (trace->live->owner != trace->owner || !same_process(trace, trace->live))) {
        live_free(trace->live);
        trace->live = NULL;
    }
    free(why);
}

static bool open_file(struct trace *trace, const char *path, enum file_how how, struct notes *notes)
{
    struct stat status;
    const char *why;
    trace->fd = file_open(path, how, &status, &why);
    if (trace->fd < 0) {
        notes_add(notes, UNUSABLE, "cannot be read (%s)", why);
        return false;
    }
    trace->size = (uint64_t)status.st_size;
    trace->owner = status.st_uid;
    trace->is_new = llabs((long long)time(NULL) - (long long)status.st_mtime) <= 1;
    return true;
}

/* Returns field 22 of /proc/PID/stat, 0 if there is no such process, or only a zombie that its parent has not reaped. */
static uint64_t start_time_of(uint64_t pid)
{
    char path[64], line[1024];
    uint64_t value = 0;
    snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)pid);
    char *p = file_of_proc(path, line, sizeof line) ? strrchr(line, ')') : NULL; /* the name may hold anything */
    if (p && (strncmp(p, ") Z", 3) == 0 || strncmp(p, ") X", 3) == 0)) return 0;
    for (int field = 2; p && field < 22; field++) p = strchr(p + 1, ' ');
    if (p) value = strtoull(p + 1, NULL, 10);
    return value;
}

static bool is_this_boot(const struct trace *trace)
{
    char host[256] = {0}, boot[64];
    const char *its_host = trace_info(trace, "host"), *its_boot = trace_info(trace, "boot_id");
    file_of_proc("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    boot[strcspn(boot, "\n")] = 0;
    gethostname(host, sizeof host - 1);
    return its_host && its_boot && *boot && strcmp(its_boot, boot) == 0 && strcmp(its_host, host) == 0;
}

/* True unless the process ran in a container whose process numbers are not ours. */
static bool is_this_namespace(const struct trace *trace)
{
    char ours[64] = {0};
    const char *its = trace_info(trace, "pid_namespace");
    return !its || (readlink("/proc/self/ns/pid", ours, sizeof ours - 1) > 0 && strcmp(its, ours) == 0);
}

/* True if the process can be looked up: it is of this host and of its present boot. */
static bool is_life_known(const struct trace *trace)
{
    uint64_t number;
    return trace->ends_with_footer ||
           (is_this_boot(trace) && is_this_namespace(trace) && trace_number(trace, "pid", &number) &&
            trace_number(trace, "start_time", &number));
}

static enum trace_life life_of(const struct trace *trace)
{
    enum { QUIET = 60 };
    uint64_t pid = 0, start = 0;
    struct stat status;
    if (trace->ends_with_footer) return LIFE_ENDED;
    trace_number(trace, "pid", &pid);
    trace_number(trace, "start_time", &start);
    if (trace->is_life_known) return start_time_of(pid) == start ? LIFE_RUNNING : LIFE_DEAD;
    int64_t modified = trace->live ? trace->live->modified : 0;
    if (trace->fd >= 0 && tfi_fstat(trace->fd, &status) == 0) modified = MAX(modified, status.st_mtime);
    return trace->live && time(NULL) - modified < QUIET ? LIFE_RUNNING : LIFE_DEAD;
}

/* Merges the content of the live file; live chunks follow those of the .tfr. */
static void add_live(struct trace *trace)
{
    struct live *live = trace->live;
    for (size_t i = 0; i < live->count; i++) {
        const struct live_chunk *chunk = &live->chunk[i];
        struct tfi_block head = {.serial = chunk->serial,
                                 .thread = chunk->thread,
                                 .tid = chunk->tid,
                                 .stored = chunk->bytes,
                                 .raw = chunk->bytes,
                                 .records = chunk->records,
                                 .flags = TFI_FLAG_ROWS};
        add_piece(trace, chunk->offset, &head);
        trace->piece[trace->pieces - 1].is_live = true;
        trace->piece[trace->pieces - 1].rows = chunk->rows;
    }
    struct strings *strings = &trace->strings;
    for (size_t i = 0; i < live->strings.count; i++) {
        strings->string = mem_grow(strings->string, &strings->capacity, strings->count + 1, sizeof *strings->string);
        strings->string[strings->count++] = live->strings.string[i];
    }
    live->strings.count = 0; /* the trace owns their texts now */
    if (!trace->schema.count) {
        trace->schema = live->schema;
        live->schema = (struct schema){0};
    }
}

/* Returns how many records a file may have. The densest recordings need 2.6 bytes for one; equal ones need less, so a small file
 * may have more. */
static uint64_t most_records(const struct trace *trace)
{
    enum { FEW_RECORDS = 1000000, MANY_RECORDS = 16 << 20 };
    uint64_t bytes = trace->size + (trace->live ? trace->live->count * 65536 : 0);
    return MIN(FEW_RECORDS + 16 * bytes, MAX((uint64_t)MANY_RECORDS, bytes / 2));
}

/* A .tfr is empty if the disk was full at its creation; its live file still has everything. A .tfr of a newer format
 * is refused together with its live file. */
static bool live_alone(const struct trace *trace, struct notes *notes)
{
    if (trace->is_newer) return false;
    for (size_t i = 0; trace->live && i < notes->count; i++) notes->note[i].level = MIN(notes->note[i].level, NOTE);
    return trace->live != NULL;
}

/* True if the process was killed while it opened the trace: the .tfr has its head at most, and the live file none. An
 * empty .tfr without a live file is what a full disk leaves, unless it was made a moment ago: the head comes next. */
static bool is_unbegun(const struct trace *trace, const char *live_path)
{
    if (trace->fd < 0 || trace->live || trace->size > sizeof(struct tfi_file_head)) return false;
    return live_path ? live_is_blank(live_path) : trace->size == sizeof(struct tfi_file_head) || trace->is_new;
}

bool trace_open(struct trace *trace, const char *path, const char *live_path, enum file_how how, struct notes *notes)
{
    char *why = NULL;
    bool lone = live_path && strcmp(path, live_path) == 0;
    uint64_t start = 0;
    *trace = (struct trace){.path = string_format("%s", path), .fd = -1};
    trace->live = live_path ? live_read(live_path, lone ? how : FILE_FOUND, &why) : NULL;
    if (lone && !trace->live && !why) why = string_format("its process has ended meanwhile");
    bool opened = !lone && open_file(trace, path, how, notes), unbegun = opened && is_unbegun(trace, live_path);
    bool blank = !lone && why && live_is_blank(live_path); /* a process also leaves one where it may not remove files */
    if (why && !blank)
        notes_add(notes, lone ? UNUSABLE : NOTE, "%s%scannot be used: %s", lone ? "" : live_path, lone ? "" : " ", why);
    free(why);
    if (unbegun)
        notes_add(notes, NOTE,
                  !trace->size && !live_path ? "its process has just begun"
                                             : "its process was killed before it recorded anything");
    if (unbegun || (lone && !trace->live)) return false;
    if (!lone) {
        start = opened ? check_start(trace, notes) : 0;
        if (!start && !live_alone(trace, notes)) return false;
        if (!trace->live) find_live_elsewhere(trace, start);
        if (start) find_blocks(trace, start);
    }
    if (trace->live) add_live(trace);
    trace->room = most_records(trace);
    if (!trace->schema.count) {
        trace->schema_damaged = trace->pieces > 0;
        schema_builtin(&trace->schema);
    }
    strings_sort(&trace->strings);
    trace->is_life_known = is_life_known(trace);
    trace->life = life_of(trace);
    trace->owner = trace->fd < 0 && trace->live ? trace->live->owner : trace->owner;
    trace->is_of_reader = trace->owner == geteuid() && is_this_boot(trace);
    return true;
}

void trace_read_ahead(struct trace *trace)
{
    trace->ahead = ahead_open(trace);
}

void trace_end_ahead(struct trace *trace)
{
    ahead_close(trace->ahead);
    trace->ahead = NULL;
}

void trace_close(struct trace *trace)
{
    trace_end_ahead(trace);
    if (trace->fd >= 0) close(trace->fd);
    live_free(trace->live);
    pairs_free(&trace->info);
    pairs_free(&trace->footer);
    schema_free(&trace->schema);
    strings_free(&trace->strings);
    map_free(&trace->serials);
    free(trace->piece);
    free(trace->path);
    *trace = (struct trace){.fd = -1};
}
