/* trace.h - joins NAME.tfr and NAME.tfr.live into one trace, and records what of it cannot be read.
 *
 * Opening finds the blocks, the strings, the schema and the descriptions. Chunks are read one after the other, as
 * often as needed. The live file is copied first: a chunk that a running process appends meanwhile is then in both
 * files and counts once. Nothing is mapped, because files may shrink during reading.
 */
#ifndef TFA_TRACE_H
#define TFA_TRACE_H

#include <zlib.h>

#include "base/file_in.h"
#include "read/decode.h"
#include "read/strings.h"

/* ---- notes on an input ---- */
enum note_level {
    NOTE,     /* information only */
    LOSS,     /* the result is incomplete: exit status 3 */
    UNUSABLE, /* the input has no result */
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
void notes_cut(struct notes *notes, size_t count); /* forgets all but the first ones */
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
    struct map place; /* by hash of a key: the first pair with that hash */
};
void pairs_parse(struct pairs *pairs, const char *payload, size_t bytes); /* a later value wins */
void pairs_add(struct pairs *pairs, const char *key, const char *value);  /* a later value wins */
const char *pairs_get(const struct pairs *pairs, const char *key);        /* NULL if absent */
bool pairs_number(const struct pairs *pairs, const char *key, uint64_t *value);
void pairs_free(struct pairs *pairs);

/* ---- the live file ---- */
struct live_chunk {
    uint64_t offset, serial;
    uint32_t thread, tid, bytes, records;
    uint8_t *rows; /* a copy of the rows */
};
struct live {
    char *path;
    int64_t modified; /* seconds of CLOCK_REALTIME */
    int64_t read_at;  /* nanoseconds of CLOCK_REALTIME, before the first byte was read */
    uid_t owner;
    struct pairs info;
    struct schema schema;
    struct strings strings;
    struct tfi_slot *slot; /* the used ones, in the byte order of this machine */
    size_t slots;
    struct live_chunk *chunk;
    size_t count, capacity;
    unsigned taken; /* chunks being given to a thread: their serials are assigned, but in no file */
    uint64_t serial;
    uint64_t drops[TFI_MAX_DROPS];
    uint16_t minor;
};
/* Returns NULL if the file cannot be used, with the reason in *why, which the caller frees; without one if its process has
 * ended meanwhile. */
struct live *live_read(const char *path, enum file_how how, char **why);
/* True if the file has no head yet: its process was still opening it. */
bool live_is_blank(const char *path);
void live_free(struct live *live);

/* ---- the trace ---- */
enum piece_state { PIECE_NEW, PIECE_GOOD, PIECE_TWICE, PIECE_DAMAGED, PIECE_BEYOND };
struct piece { /* a chunk in the .tfr or in the live file */
    uint64_t offset;
    uint64_t serial;
    uint32_t thread, tid, stored, raw, records, crc;
    uint16_t flags;
    uint8_t state;
    bool is_live;
    const uint8_t *rows; /* rows of a live chunk */
};

enum trace_life { LIFE_ENDED, LIFE_RUNNING, LIFE_DEAD };

struct trace {
    char *path;
    int fd; /* -1: there is only a live file */
    uint64_t size;
    bool is_new; /* it was written to in the last second */
    uid_t owner;
    bool is_of_reader; /* recorded by this user, on this host, since its boot */
    struct live *live;
    struct pairs info, footer;
    bool ends_with_footer;
    enum trace_life life;
    bool is_life_known; /* `life` is a fact; else it follows from the age of the .live file */
    struct schema schema;
    struct strings strings;
    struct piece *piece;
    size_t pieces, capacity;
    struct map serials;  /* of the chunks read */
    struct ahead *ahead; /* inflates for the first reading; NULL: the reader does */
    uint64_t room;       /* for records: how many more a file of its size may have */
    bool settled;
    /* damage */
    bool is_newer; /* the file has a newer major version, which this program cannot read */
    bool head_damaged, schema_damaged;
    bool torn; /* the last block is incomplete */
    uint64_t torn_at;
    unsigned places;       /* number of damaged places, without the torn end */
    uint64_t first_place;  /* its offset */
    uint64_t unread;       /* records that a later reading of the file could not read any more */
    uint64_t gap_bytes;    /* unreadable bytes between blocks */
    uint64_t beyond;       /* records of intact chunks for which there was no room */
    uint64_t bad_records;  /* invalid records in intact chunks */
    uint64_t bad_bytes;    /* the same in bytes, if the number of records is unknown */
    uint64_t lost_damaged; /* records; valid once the first reader reached the end */
    uint64_t lost_missing; /* records; a lower bound */
    uint64_t missing_chunks;
    unsigned unknown_blocks;
};

/* Opens NAME.tfr, or a live file without one. `live_path` may be NULL. Returns false if the trace is unusable; a
 * note gives the reason. The caller calls trace_close() in both cases. */
bool trace_open(struct trace *trace, const char *path, const char *live_path, enum file_how how, struct notes *notes);
void trace_close(struct trace *trace);
/* Between these two calls, a second thread inflates for the first reading. The system may refuse the thread. */
void trace_read_ahead(struct trace *trace);
void trace_end_ahead(struct trace *trace);
/* Returns a value of the header, or of the live file's if the .tfr lacks it. */
const char *trace_info(const struct trace *trace, const char *key);
bool trace_number(const struct trace *trace, const char *key, uint64_t *value);

/* The library left this out to stay within TFI_FLIGHT_MB. */
struct whole_run;
struct ring {
    uint64_t chunks, records; /* 0: nothing */
    uint64_t since;          /* ticks; the model: nanoseconds. The trace has every record after that, and some before */
    struct whole_run *whole; /* the model's (model/host/whole_run.h), NULL: nothing is known */
};
struct ring trace_ring(const struct trace *trace);

/* Inflates `stored` bytes into exactly `raw` bytes. `*ready` tells whether the stream was used before. */
bool inflate_all(z_stream *stream, bool *ready, const uint8_t *from, uint32_t stored, uint8_t *to, uint32_t raw);

/* Reads and inflates one chunk after the other. */
struct inflater {
    z_stream stream;
    bool is_ready; /* the stream was used before */
    uint8_t *stored, *raw;
    size_t stored_size, raw_size;
};
bool is_deflated(const struct piece *piece); /* never that of a live file */
void inflater_room(struct inflater *inflater, const struct piece *piece);
/* Returns the payload of the piece that there is room for, NULL if it is damaged. Does not call mem_lack(). */
const uint8_t *inflater_read(struct inflater *inflater, int fd, const struct piece *piece);
void inflater_free(struct inflater *inflater);

#define UNREAD "%llu records could not be read again; the answer lacks them"

struct reader {
    struct trace *trace;
    size_t next;
    uint64_t unread; /* records that an earlier reader has read and this one could not: the file has changed */
    struct decoder decoder;
    struct inflater inflater;
};
/* Returns the next chunk, or NULL at the end. The first reader of a trace to reach the end determines what is lost. */
const struct piece *reader_next(struct reader *reader, struct chunk *chunk);
/* Reads a chunk that reader_next() has given before, for this reader or another one. */
bool reader_again(struct reader *reader, const struct piece *piece, struct chunk *chunk);
void reader_free(struct reader *reader);

/* Raises each entry of `drops` to the library's own count of lost or otherwise counted records, by number in
 * drops.def. */
void trace_drops(const struct trace *trace, uint64_t drops[TFI_MAX_DROPS]);
/* Describes the damage in notes; `drops` includes the counts of drop records. Returns the number of lost records. */
uint64_t trace_judge(const struct trace *trace, const uint64_t drops[TFI_MAX_DROPS], struct notes *notes);

/* The rows of drops.def. */
struct drop {
    int number;
    const char *name; /* as in drops.def; shown in lower case */
    bool lost;
    const char *text;
};
extern const struct drop drop_table[];
extern const size_t drop_count;

#endif
