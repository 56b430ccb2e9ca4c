/* trace.h - one trace of ours: NAME.tfr and NAME.tfr.live put together, and what of it cannot be read.
 *
 * Opening finds the blocks, the strings, the schema and the descriptions; chunks are then read one after the other,
 * as often as wanted. The live file is copied first: what a running process appends meanwhile is then in both and
 * counts once. Nothing is mapped: files may shrink while they are read.
 */
#ifndef TFA_TRACE_H
#define TFA_TRACE_H

#include <zlib.h>

#include "decode.h"
#include "file_in.h"
#include "names.h"

/* ---- what there is to say about an input ---- */
enum note_level {
    NOTE,     /* good to know */
    LOSS,     /* the result is not of the whole: exit 3 */
    UNUSABLE, /* there is no result of it */
};
struct note {
    enum note_level level;
    char *text;
};
struct notes {
    struct note *note;
    size_t count, capacity;
};
void notes_add(struct notes *notes, enum note_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool notes_have(const struct notes *notes, enum note_level level);
void notes_free(struct notes *notes);

/* ---- HEADER and FOOTER payloads ---- */
struct pair {
    char *key;
    char *value;
};
struct pairs {
    struct pair *pair;
    size_t count, capacity;
    struct map place; /* by the hash of a key: the first that has it */
};
void pairs_parse(struct pairs *pairs, const char *payload, size_t bytes); /* a later value wins */
const char *pairs_get(const struct pairs *pairs, const char *key);        /* NULL if it is not there */
bool pairs_number(const struct pairs *pairs, const char *key, uint64_t *value);
void pairs_free(struct pairs *pairs);

/* ---- the live file ---- */
struct live_chunk {
    uint64_t offset, serial;
    uint32_t thread, tid, bytes, records;
    uint8_t *rows; /* a copy */
};
struct live {
    char *path;
    int64_t modified; /* seconds of CLOCK_REALTIME */
    uid_t owner;
    struct pairs info;
    struct schema schema;
    struct strings strings;
    struct live_chunk *chunk;
    size_t count, capacity;
    unsigned taken; /* chunks that are being given to a thread: their serials are given out and in no file */
    uint64_t serial;
    uint64_t drops[TFI_MAX_DROPS];
    uint16_t minor;
};
/* NULL if it cannot be used; then *why, which is to be freed, says the reason. */
struct live *live_read(const char *path, enum file_how how, char **why);
void live_free(struct live *live);

/* ---- the trace ---- */
enum piece_state { PIECE_NEW, PIECE_GOOD, PIECE_TWICE, PIECE_DAMAGED };
struct piece { /* a chunk, in the file or in the live file */
    uint64_t offset;
    uint64_t serial;
    uint32_t thread, tid, stored, raw, records, crc;
    uint16_t flags;
    uint8_t state;
    bool is_live;
    const uint8_t *rows; /* of the live file */
};

enum trace_life { LIFE_ENDED, LIFE_RUNNING, LIFE_DEAD };

struct trace {
    char *path;
    int fd; /* -1: there is only a live file */
    uint64_t size;
    uid_t owner;
    bool is_of_reader; /* recorded by this user, on this host, since it was started */
    struct live *live;
    struct pairs info, footer;
    bool ends_with_footer;
    enum trace_life life;
    struct schema schema;
    struct strings strings;
    struct piece *piece;
    size_t pieces, capacity;
    struct map serials; /* of the chunks that were read */
    bool settled;
    /* what is wrong with it */
    bool is_newer; /* of a major version this program does not read */
    bool head_damaged, schema_damaged;
    bool torn; /* the last block is not whole */
    uint64_t torn_at;
    unsigned places;       /* where blocks are damaged, the torn one apart */
    uint64_t first_place;  /* offset */
    uint64_t gap_bytes;    /* between blocks */
    uint64_t bad_records;  /* in chunks that are whole and make no sense */
    uint64_t bad_bytes;    /* the same, where their number is not known */
    uint64_t lost_damaged; /* records, after trace_settle */
    uint64_t lost_missing; /* at least */
    uint64_t missing_chunks;
    unsigned unknown_blocks;
};

/* Opens NAME.tfr, or a live file that has none. `live_path` may be NULL. False: unusable, and a note says why;
 * trace_close() is due in both cases. */
bool trace_open(struct trace *trace, const char *path, const char *live_path, enum file_how how, struct notes *notes);
void trace_close(struct trace *trace);
/* A value of the header, of the live file where the .tfr lacks it. */
const char *trace_info(const struct trace *trace, const char *key);
bool trace_number(const struct trace *trace, const char *key, uint64_t *value);

/* Inflates `stored` bytes into exactly `raw` ones; `*ready` says whether the stream was used before. */
bool inflate_all(z_stream *stream, bool *ready, const uint8_t *from, uint32_t stored, uint8_t *to, uint32_t raw);

struct reader {
    struct trace *trace;
    size_t next;
    struct decoder decoder;
    z_stream stream;
    bool stream_ready;
    uint8_t *stored, *raw;
    size_t stored_size, raw_size;
};
/* The next chunk, or NULL at the end. The first reader of a trace that gets there settles what is lost. */
const struct piece *reader_next(struct reader *reader, struct chunk *chunk);
void reader_free(struct reader *reader);

/* How many records the library itself counted as lost or worth counting, by number in drops.def. */
void trace_drops(const struct trace *trace, uint64_t drops[TFI_MAX_DROPS]);
/* Says in lines for people what is wrong; `drops` with those of the drop records. Returns the records lost. */
uint64_t trace_judge(const struct trace *trace, const uint64_t drops[TFI_MAX_DROPS], struct notes *notes);

/* drops.def */
struct drop {
    int number;
    const char *name; /* as in drops.def; shown in lower case */
    bool lost;
    const char *text;
};
extern const struct drop drop_table[];
extern const size_t drop_count;

#endif
