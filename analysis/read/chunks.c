/* chunks.c - reads the chunks of an opened trace, each once, and determines what is missing.
 *
 * The first pass over a trace chooses between two copies of a chunk. An intact block of the .tfr wins over the live
 * file's copy, unless that copy has more records (a thread was still inside the recorder when its chunk was
 * appended). Later passes read the same chunks in the same order.
 */
#include "crc.h"
#include "read/ahead.h"
#include "read/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- inflating ---- */

bool inflate_all(z_stream *stream, bool *ready, const uint8_t *from, uint32_t stored, uint8_t *to, uint32_t raw)
{
    if ((*ready ? inflateReset(stream) : inflateInit2(stream, -15)) != Z_OK) return false;
    *ready = true;
    stream->next_in = (Bytef *)from;
    stream->avail_in = stored;
    stream->next_out = to;
    stream->avail_out = raw;
    return inflate(stream, Z_FINISH) == Z_STREAM_END && stream->avail_out == 0;
}

bool is_deflated(const struct piece *piece)
{
    return piece->flags & TFI_FLAG_DEFLATED && !piece->is_live;
}

void inflater_room(struct inflater *inflater, const struct piece *piece)
{
    inflater->stored = mem_grow(inflater->stored, &inflater->stored_size, piece->stored, 1);
    if (is_deflated(piece)) inflater->raw = mem_grow(inflater->raw, &inflater->raw_size, piece->raw, 1);
}

static bool read_stored(const struct inflater *inflater, int fd, const struct piece *piece)
{
    for (size_t done = 0; done < piece->stored;) {
        ssize_t n = pread(fd, inflater->stored + done, piece->stored - done,
                          (off_t)(piece->offset + sizeof(struct tfi_block) + done));
        if (n <= 0 && !(n < 0 && errno == EINTR)) return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return tfi_crc(0, inflater->stored, piece->stored) == piece->crc;
}

const uint8_t *inflater_read(struct inflater *inflater, int fd, const struct piece *piece)
{
    bool good = read_stored(inflater, fd, piece);
    if (!is_deflated(piece)) return good && piece->raw == piece->stored ? inflater->stored : NULL;
    return good && inflate_all(&inflater->stream, &inflater->is_ready, inflater->stored, piece->stored, inflater->raw,
                               piece->raw)
               ? inflater->raw
               : NULL;
}

void inflater_free(struct inflater *inflater)
{
    if (inflater->is_ready) inflateEnd(&inflater->stream);
    free(inflater->stored);
    free(inflater->raw);
    *inflater = (struct inflater){0};
}

/* ---- one chunk ---- */

static const uint8_t *payload_of(struct reader *reader, const struct piece *piece)
{
    const struct trace *trace = reader->trace;
    if (piece->is_live) return piece->raw == piece->stored ? piece->rows : NULL;
    if (piece->state == PIECE_NEW && trace->ahead && is_deflated(piece))
        return ahead_payload(trace->ahead, (size_t)(piece - trace->piece));
    inflater_room(&reader->inflater, piece);
    return inflater_read(&reader->inflater, trace->fd, piece);
}

static bool read_piece(struct reader *reader, const struct piece *piece, struct chunk *chunk)
{
    const uint8_t *payload = payload_of(reader, piece);
    if (!payload) return false;
    bool rows = piece->flags & TFI_FLAG_ROWS;
    return (rows ? decode_rows : decode_columns)(&reader->decoder, &reader->trace->schema, payload, piece->raw, chunk);
}

/* ---- choice between two copies ---- */

/* Finds the live copy of a chunk. Chunks of the live file are at the end of the array, sorted by serial. */
static const struct piece *live_copy(const struct trace *trace, uint64_t serial)
{
    size_t low = trace->pieces - (trace->live ? trace->live->count : 0), high = trace->pieces;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (trace->piece[middle].serial < serial) low = middle + 1;
        else high = middle;
    }
    return low < trace->pieces && trace->piece[low].serial == serial ? &trace->piece[low] : NULL;
}

static bool has_more(const struct piece *copy, const struct piece *piece)
{
    return copy->records > piece->records && copy->thread == piece->thread && copy->tid == piece->tid;
}

static void first_visit(struct reader *reader, size_t index, struct chunk *chunk)
{
    struct trace *trace = reader->trace;
    struct piece *piece = &trace->piece[index];
    const struct piece *copy = piece->is_live ? NULL : live_copy(trace, piece->serial);
    if (map_get(&trace->serials, piece->serial) != MAP_NONE || (copy && has_more(copy, piece))) {
        piece->state = PIECE_TWICE;
        return;
    }
    if (!read_piece(reader, piece, chunk)) {
        piece->state = PIECE_DAMAGED;
        return;
    }
    map_put(&trace->serials, piece->serial, (uint32_t)MIN(index, (size_t)UINT32_MAX - 1));
    if (chunk->records > trace->room) { /* damage cannot cause this, only a crafted file */
        piece->state = PIECE_BEYOND;
        trace->beyond += chunk->records;
        return;
    }
    piece->state = PIECE_GOOD;
    trace->room -= chunk->records;
    trace->bad_bytes += chunk->bad_bytes;
    if (chunk->bad_bytes && !piece->is_live && piece->records > chunk->records)
        trace->bad_records += piece->records - chunk->records;
}

/* ---- missing chunks ---- */

/* Returns the number of chunks that have a serial but are in no file, as far as that is known. */
static uint64_t count_missing(const struct trace *trace, uint64_t seen, uint64_t highest)
{
    uint64_t gone = trace_ring(trace).chunks;
    seen = seen > UINT64_MAX - gone ? UINT64_MAX : seen + gone;
    uint64_t drops[TFI_MAX_DROPS] = {0}, chunks;
    trace_drops(trace, drops);
    if (trace->life == LIFE_RUNNING || drops[TFI_DROP_APPEND] || drops[TFI_DROP_CAP] || drops[TFI_DROP_RING])
        return 0; /* missing chunks are not appended yet, or the library dropped and counted them */
    if (trace->ends_with_footer) {
        bool known = pairs_number(&trace->footer, "chunks", &chunks);
        return known && chunks > seen ? chunks - seen : 0;
    }
    uint64_t innocent = trace->live ? trace->live->taken : 0;
    uint64_t given = trace->live ? trace->live->serial : 0;
    if (given > highest && given - highest <= innocent) highest = given;
    uint64_t missing = highest > seen ? highest - seen : 0;
    return missing > innocent ? missing - innocent : 0;
}

static void count_lost_chunks(struct trace *trace)
{
    uint64_t seen = 0, highest = 0, records = 0, all = 0;
    trace->settled = true;
    for (size_t i = 0; i < trace->pieces; i++) {
        const struct piece *piece = &trace->piece[i];
        bool read = map_get(&trace->serials, piece->serial) != MAP_NONE;
        bool torn_end = trace->torn && piece->offset == trace->torn_at && !piece->is_live;
        if (torn_end && trace->life == LIFE_RUNNING) continue; /* the process is appending it */
        if (piece->state == PIECE_GOOD || piece->state == PIECE_BEYOND || (piece->state == PIECE_DAMAGED && !read)) {
            seen++;
            highest = MAX(highest, piece->serial);
            records += piece->records;
        }
        if (piece->state == PIECE_DAMAGED && !read) {
            trace->lost_damaged += piece->records;
            trace->places += !torn_end;
            if (!torn_end)
                trace->first_place = trace->places == 1 ? piece->offset : MIN(trace->first_place, piece->offset);
        }
    }
    trace->missing_chunks = count_missing(trace, seen, highest);
    if (trace->missing_chunks) {
        bool known = trace->ends_with_footer && pairs_number(&trace->footer, "records", &all) && all > records;
        records += MIN(trace_ring(trace).records, UINT64_MAX - records);
        known &= all > records;
        trace->lost_missing = known ? all - records : trace->missing_chunks;
    }
}

bool reader_again(struct reader *reader, const struct piece *piece, struct chunk *chunk)
{
    bool good = read_piece(reader, piece, chunk);
    if (!good) reader->unread += piece->records;
    return good;
}

const struct piece *reader_next(struct reader *reader, struct chunk *chunk)
{
    struct trace *trace = reader->trace;
    while (reader->next < trace->pieces) {
        size_t index = reader->next++;
        struct piece *piece = &trace->piece[index];
        if (piece->state == PIECE_NEW) {
            first_visit(reader, index, chunk);
            if (piece->state == PIECE_GOOD) return piece;
        } else if (piece->state == PIECE_GOOD && reader_again(reader, piece, chunk)) {
            return piece;
        }
    }
    if (!trace->settled) count_lost_chunks(trace);
    return NULL;
}

void reader_free(struct reader *reader)
{
    inflater_free(&reader->inflater);
    decoder_free(&reader->decoder);
    *reader = (struct reader){0};
}
