/* tfi_trace.h - specifies the trace on disk, together with the two tables it includes.
 *
 * A process writes two files. `NAME.tfr` is a sequence of blocks, only ever appended to; with TFI_MODE=flight a shorter
 * one replaces it now and then. `NAME.tfr.live` is a shared mapping of the records not appended yet; it is removed at a
 * clean end. After SIGKILL the two together hold every committed record. All numbers are little-endian. Nothing here is
 * ever renumbered or reused.
 *
 * ---- NAME.tfr -----------------------------------------------------------------------------------------------------
 *
 *   struct tfi_file_head, then blocks: struct tfi_block followed by `stored` bytes, padded with zeros to 8.
 *
 *   The head of a block has its own CRC, so that its size can be trusted when its content is damaged. After damage a
 *   reader finds the next block by searching for TFI_BLOCK_MAGIC with a correct head_crc. It skips a block of unknown
 *   type.
 *
 *   HEADER   pairs of zero-terminated strings, key then value: host, boot_id, pid, pid_namespace (link
 *            /proc/PID/ns/pid), start_time (field 22 of /proc/PID/stat), rank, world, command, directory, clock, live,
 *            version, activities (words of TFI_ACTIVITIES, those in force), preloaded ("no": the wrappers get no calls),
 *            env.NAME, meta.NAME ... There may be several; a later value wins. clock.ticks, clock.monotonic,
 *            clock.realtime and clock.error are one more pair of clock records, taken when the library was loaded.
 *            With TFI_MODE=flight a second one has flight.chunks and flight.records, left out to keep the file small, and
 *            flight.since, ticks: the trace has every record that was complete after that, and some before. Their serials
 *            are missing; a chunk of definitions that were among them has the serial of one.
 *   SCHEMA   the record kinds of this file as lines: "number kind column:ctype:TYPE:CODEC column:...\n". A list has
 *            the codec LIST and is the last column.
 *   STRINGS  struct tfi_string entries, each padded to 8. A string precedes every chunk that uses it.
 *            Strings are any bytes, not zero-terminated. Number 0 is "no string", TFI_STRING_LOST a lost one.
 *   CHUNK    records of one thread. `serial` is unique in the process. A serial may also be in the live file; the chunk
 *            then counts once. Serials are given without gaps: one that is in neither file belongs to a chunk that was
 *            just given to a thread (state TAKEN, or OPEN and empty), was dropped and counted, or is lost.
 *            Flag ROWS: the payload is the rows as they lay in memory; otherwise it is columns, see below. The rows,
 *            also those rebuilt from columns, are never more than TFI_BLOCK_MAX bytes.
 *   FOOTER   as HEADER: reason, ticks, realtime_ns, records, chunks, strings, cost_ns, drop.NAME (as in drops.def). The
 *            trace is complete if, and only if, the last block is a FOOTER. After an exec that failed the process
 *            writes a new trace. A reader nevertheless accepts blocks behind a FOOTER.
 *
 * ---- rows ---------------------------------------------------------------------------------------------------------
 *
 *   struct tfi_rec {kind, size}, then the columns of records.def in their order without padding; `size` is in bytes,
 *   a multiple of 8, and larger than the reader's own struct if the writer knows more columns. A LIST fills the rest of
 *   the size with 64-bit values.
 *   A row of kind TFI_ROW_AGAIN is struct tfi_again and stands for a `call`. It repeats the `call` row that begins
 *   8 * `back` bytes before it in the same chunk, with its own time, duration and error. Arguments whose bits are set
 *   in `changed` have new values, which follow in order, 64 bits each. Columns contain no such rows.
 *
 * ---- columns ------------------------------------------------------------------------------------------------------
 *
 *   struct tfi_columns {kinds, order_bytes}, then `order_bytes` of the order, then one group for each kind:
 *   struct tfi_group {kind, columns, count, bytes}, then for each column struct tfi_column {field, codec, bytes} and
 *   its bytes. The order says how records of different kinds follow each other: pairs of varints (index of the group,
 *   length of the run). A reader skips an unknown group or column by its `bytes`. `field` is the index in the file's
 *   SCHEMA. All values are 64 bits wide (signed columns are sign-extended):
 *
 *   PLAIN    varint of the value, zigzag for signed columns
 *   DELTA    varint of zigzag(value - previous value of this column in this group), the first one against 0
 *   KEYED    as DELTA, but against the previous value in a record with the same key. The key is the value of the
 *            first column stored in the group (which is neither KEYED nor LIST) modulo TFI_KEYS. All previous values
 *            begin as 0
 *   LIST     varint of the number of values, then each as KEYED with the key above for each of the first
 *            TFI_LIST_KEYED positions, as PLAIN zigzag after them
 *   RUNS     pairs of varints: zigzag(value), number of repetitions; used instead of the codec of the schema where a
 *            column hardly changes, never for a list
 *
 *   A varint has seven bits a byte, the lowest first, the high bit set on all bytes but the last (LEB128).
 *   The payload is deflated (raw, RFC 1951) if the block's flag DEFLATED is set. Each chunk is decoded on its own.
 *
 * ---- NAME.tfr.live ------------------------------------------------------------------------------------------------
 *
 *   struct tfi_live at 0 gives the place of each region. `info` is a HEADER payload, `schema` a SCHEMA payload.
 *   Slots: one a thread, with the calls and stages it has open, and the collective it is in. Strings: as the STRINGS
 *   payload; `strings_used` bytes of it are valid. The region is emptied when it is full, after all of it was
 *   appended, so a reader needs the strings of both files. Chunks, small and large: struct tfi_chunk, then
 *   `committed` bytes of rows. Every store of a count has release order, so the bytes it covers are complete. A chunk
 *   counts if its state is OPEN or CLOSED and its serial is not in the .tfr. The file is dead when boot_id, pid and
 *   start_time no longer match a process of this host. If host, boot_id or pid_namespace differs from the reader's,
 *   the file is dead a minute after its last change.
 *
 * ---- time ---------------------------------------------------------------------------------------------------------
 *
 *   Ticks are values of one invariant counter of the machine. HEADER clock names it: "tsc", or "monotonic", whose ticks
 *   are nanoseconds. Clock records pair the counter with other clocks; a reader interpolates between them. Realtime
 *   puts processes and hosts on one axis. Monotonic shows when realtime was stepped.
 *
 * ---- functions ----------------------------------------------------------------------------------------------------
 *
 *   A FUNC string describes an intercepted function:
 *   "library\x1f" "class\x1f" "name\x1f" "argument:TYPE,argument:TYPE".
 *
 * ---- call stacks --------------------------------------------------------------------------------------------------
 *
 *   A STACK string lists the frames of a call stack, the innermost first, at most TFI_STACK_FRAMES. Each frame is the
 *   number of its string in lower-case hexadecimal, with one space between; ffffffff if the string was lost. A frame's
 *   string is "function\tfile\tline", line 0 for native code. It has no control characters but these two tabs.
 *
 * ---- versions -----------------------------------------------------------------------------------------------------
 *
 *   `minor` grows with an addition that an old reader may skip, `major` with one that it may not skip. A reader accepts
 *   any minor of its major and says so if the file is newer. It refuses a newer major, and names it.
 */
#ifndef TFI_TRACE_H
#define TFI_TRACE_H

#include <stddef.h>
#include <stdint.h>

#define TFI_FILE_MAGIC "TFITRACE"
#define TFI_LIVE_MAGIC "TFILIVE"
#define TFI_MAJOR 1
#define TFI_MINOR 4

struct tfi_file_head {
    char magic[8]; /* TFI_FILE_MAGIC, without its terminating zero */
    uint16_t major;
    uint16_t minor;
    uint32_t head_bytes; /* offset of the first block */
};

#define TFI_BLOCK_MAGIC 0x424b5446u /* "FTKB" */
#define TFI_BLOCK_MAX (4u << 20)    /* no payload is larger, stored or raw: a reader refuses more */

enum tfi_block_type {
    TFI_BLOCK_HEADER = 1,
    TFI_BLOCK_SCHEMA = 2,
    TFI_BLOCK_STRINGS = 3,
    TFI_BLOCK_CHUNK = 4,
    TFI_BLOCK_FOOTER = 5,
};

enum tfi_block_flag {
    TFI_FLAG_DEFLATED = 1,
    TFI_FLAG_ROWS = 2,
};

struct tfi_block {
    uint32_t magic;
    uint16_t type;  /* enum tfi_block_type */
    uint16_t flags; /* enum tfi_block_flag */
    uint64_t serial;
    uint32_t thread;  /* CHUNK: serial of the thread, 0 for the library's own */
    uint32_t tid;     /* CHUNK: its kernel thread id */
    uint32_t stored;  /* bytes of payload in the file */
    uint32_t raw;     /* bytes of payload after inflation */
    uint32_t records; /* CHUNK: records in it, so that a damaged one can be counted */
    uint32_t crc;     /* CRC-32 of the stored payload */
    uint32_t reserved;
    uint32_t head_crc; /* CRC-32 of the bytes of this struct before it */
};

struct tfi_string {
    uint32_t id;
    uint32_t length; /* bytes that follow, before padding to 8 */
};
#define TFI_STRING_MAX 65536u       /* longer names are cut */
#define TFI_STRING_LOST 0xffffffffu /* the table of names was full */
#define TFI_STACK_FRAMES 256u       /* a call stack has no more; the outermost are left out */

struct tfi_columns {
    uint32_t kinds;
    uint32_t order_bytes;
};

struct tfi_group {
    uint16_t kind;
    uint16_t columns;
    uint32_t count; /* records */
    uint32_t bytes; /* of all its columns, their heads included */
};

struct tfi_column {
    uint16_t field;
    uint16_t codec; /* enum tfi_codec */
    uint32_t bytes; /* after this head */
};

enum tfi_codec { TFI_PLAIN = 1, TFI_DELTA = 2, TFI_KEYED = 3, TFI_LIST = 4, TFI_RUNS = 5 };
#define TFI_KEYS 256u
#define TFI_LIST_KEYED 8u

/* The meaning of a value. SCHEMA contains the names; a reader shows a type it does not know as UINT. */
enum tfi_type {
    TFI_TYPE_UINT,
    TFI_TYPE_INT,
    TFI_TYPE_HEX,
    TFI_TYPE_ADDRESS,
    TFI_TYPE_BYTES,
    TFI_TYPE_TICKS,     /* a moment */
    TFI_TYPE_DURATION,  /* in ticks */
    TFI_TYPE_DEVICE_NS, /* a moment of the device library's clock */
    TFI_TYPE_STRING,    /* number of a string */
    TFI_TYPE_FUNC,      /* number of a string that describes a function */
    TFI_TYPE_CLOCK,     /* enum tfi_clock */
    TFI_TYPE_DROP,      /* number in drops.def */
    TFI_TYPE_PAYLOAD,   /* bits of an NVTX payload */
    TFI_TYPE_STACK,     /* number of a string that lists a call stack's frames */
};

enum tfi_clock { TFI_CLOCK_REALTIME = 1, TFI_CLOCK_MONOTONIC = 2, TFI_CLOCK_DEVICE = 3 };

enum tfi_range_flag {
    TFI_RANGE_NESTED = 1,    /* push and pop; otherwise start and end, from any thread in any order */
    TFI_RANGE_STAGE = 2,     /* a stage; otherwise a library's own range, shown as a mark with a duration */
    TFI_RANGE_UNTRACKED = 4, /* its beginning was not found or not kept: duration is 0 */
    TFI_RANGE_NVTX = 0x100,  /* this flag and the next ones: the range's source */
    TFI_RANGE_API = 0x200,
    TFI_RANGE_TORCH = 0x400,      /* record_function and every other USER_SCOPE range of libtorch */
    TFI_RANGE_FUNCTION = 0x800,   /* a Python function of TFI_STAGES */
    TFI_RANGE_AUTO = 0x1000,      /* a pipeline's part, by TFI_STAGES=auto */
    TFI_RANGE_MODULE = 0x2000,    /* a torch.nn module, by TFI_MODULE_DEPTH */
    TFI_RANGE_TELEFUSER = 0x4000, /* a context of telefuser.utils.profiler */
    TFI_RANGE_CACHE_DIT = 0x8000, /* a context of cache_dit.profiler whose own profiler did not run */
    TFI_RANGE_PAUSES = 0x10000,   /* a coroutine or generator: its own time excludes its pauses */
    TFI_RANGE_ASYNC = 0x20000,    /* a TORCH range that another thread ended, or that is asynchronous (gloo:, nccl:) */
    TFI_RANGE_DFTRACER = 0x40000, /* an event of dftracer's interface */
    TFI_RANGE_WAITS = 0x80000,    /* it waited for the device before its beginning and before its end */
};

/* An aggregate sums values of one of these. */
enum tfi_aggregate_what {
    TFI_AGGREGATE_STAGE = 1,
    TFI_AGGREGATE_KERNEL = 2,
    TFI_AGGREGATE_COLLECTIVE = 3,
    TFI_AGGREGATE_LINE = 4,
    TFI_AGGREGATE_END = 5,
};
#define TFI_AGGREGATE_COUNT_BITS 38u /* of a bucket */

/* Why the seconds before a moment are kept. */
enum tfi_moment_cause {
    TFI_MOMENT_SLOW = 1,
    TFI_MOMENT_ERROR = 2,
    TFI_MOMENT_TRIGGER = 3,
    TFI_MOMENT_END = 4,
};
enum tfi_kept_flag { TFI_KEPT_CUT = 1 };

/* What a piece of the start of a process is. */
enum tfi_startup_what {
    TFI_STARTUP_INTERPRETER = 1,
    TFI_STARTUP_IMPORT = 2,
    TFI_STARTUP_LOADING = 3,
    TFI_STARTUP_DEVICE = 4,
};

/* The framework's scopes (at::RecordScope), and one more. */
enum tfi_scope {
    TFI_SCOPE_FUNCTION = 0,
    TFI_SCOPE_BACKWARD = 1,
    TFI_SCOPE_USER = 7,
    TFI_SCOPE_OTHER = 99,   /* a scope that could not be read */
    TFI_SCOPE_NATIVE = 100, /* a builtin function of a module in TFI_NATIVE */
};

/* A collective's circumstances. */
enum tfi_collective_flag {
    TFI_COLLECTIVE_GROUPED = 1,  /* called between the start and the end of a group, which launches it */
    TFI_COLLECTIVE_CAPTURED = 2, /* its stream was being captured: it runs with each replay of the graph */
};

/* Which side of a framework's collective a record is. */
enum tfi_framework_flag {
    TFI_FRAMEWORK_WORK = 1,        /* the work of a backend; else the call */
    TFI_FRAMEWORK_DESCRIPTION = 2, /* the framework's description of a collective, inside the call if there is one */
    TFI_FRAMEWORK_BEGUN = 4,       /* a call at its entry; the finished call follows unless the process dies inside */
};

/* How a graph got its nodes. */
enum tfi_graph_relation {
    TFI_GRAPH_INSTANTIATED = 1,
    TFI_GRAPH_UPDATED = 2, /* from here on it has the nodes of the other graph */
    TFI_GRAPH_COPIED = 3,
    TFI_GRAPH_PART = 4, /* it got no nodes: it is a child, or the body of a condition, in the other graph */
};

/* The columns of a device_sample that have a value. */
enum tfi_sample_known {
    TFI_SAMPLE_SM_CLOCK = 1,
    TFI_SAMPLE_MEMORY_CLOCK = 2,
    TFI_SAMPLE_POWER = 4,
    TFI_SAMPLE_TEMPERATURE = 8,
    TFI_SAMPLE_BUSY = 16, /* both shares */
    TFI_SAMPLE_REASONS = 32,
};
enum tfi_sample_flag { TFI_SAMPLE_WHOLE_GPU = 1 };

/* A process record says that a process forked, spawned or executed a program, or ended. */
enum tfi_process_event { TFI_PROCESS_FORK = 1, TFI_PROCESS_SPAWN = 2, TFI_PROCESS_EXEC = 3, TFI_PROCESS_END = 4 };

/* How the frames of a silent thread were read, while the thread was free to run. */
enum tfi_reading {
    TFI_READING_STILL = 1,   /* the thread did not run during the reading: the stack has all its frames */
    TFI_READING_AGREED = 2,  /* the thread ran, and several readings found the same frames, which the stack has */
    TFI_READING_OUTER = 3,   /* the thread runs Python code: the stack has only the outer frames, which did not move */
    TFI_READING_TORN = 4,    /* the thread runs Python code, and no frame was the same in all readings: no stack */
    TFI_READING_EMPTY = 5,   /* the interpreter knows the thread, which runs no Python code */
    TFI_READING_FOREIGN = 6, /* the interpreter does not know the thread */
    TFI_READING_LAYOUT = 7,  /* the frames of this interpreter cannot be read: its version, or no GIL */
    TFI_READING_REFUSED = 8, /* the kernel did not allow the reading, or gave no memory for it */
    TFI_READING_INVALID = 9, /* the interpreter's data made no sense, also after a second attempt */
    TFI_READING_RAISED = 10, /* not read from outside: frames of the traceback of an exception that nothing caught */
};
enum tfi_silence_flag { TFI_SILENCE_CUT = 1, TFI_SILENCE_ABORT = 2 };

/* Of a sample. */
enum tfi_sampled {
    TFI_SAMPLED_INNER_CUT = 1,  /* the innermost frames are missing: they were not proven */
    TFI_SAMPLED_OUTER_CUT = 2,  /* the outermost frames are missing: the stack has more than a record keeps */
    TFI_SAMPLED_UNREADABLE = 4, /* no frame was proven, or the tables were full: no stack */
    TFI_SAMPLED_NO_PYTHON = 8,  /* the interpreter knows the thread, which ran no Python code */
    TFI_SAMPLED_FOREIGN = 16,   /* the interpreter does not know the thread */
    TFI_SAMPLED_IMPORT = 32,    /* it was importing a module */
    TFI_SAMPLED_HOLDS = 64,     /* it held the interpreter's global lock */
    TFI_SAMPLED_WANTS = 128,    /* it waited for that lock */
    TFI_SAMPLED_RUNNABLE = 256, /* it did not run, and waited for nothing but a processor */
    TFI_SAMPLED_BLIND = 512,    /* what it waited in could not be read */
    TFI_SAMPLED_RAN = 1024,     /* it ran while it was looked at */
};

enum tfi_device_flag { TFI_DEVICE_SIMULATED = 1, TFI_DEVICE_BY_EVENTS = 2 };

/* One row in memory. */
struct tfi_rec {
    uint16_t kind;
    uint16_t size; /* of the whole row in bytes, a multiple of 8 */
};

/* The row of a call that differs little from an earlier one of its chunk. */
#define TFI_ROW_AGAIN 0xffffu
#define TFI_AGAIN_ARGS 32u /* calls with more are always written whole: the rows of a chunk stay below TFI_BLOCK_MAX */
struct tfi_again {
    struct tfi_rec rec;
    uint16_t back;  /* from the start of that row to the start of this one, in units of 8 bytes */
    uint16_t error; /* `error`, `time`, `duration`: as in a call; a call with one that does not fit is written whole */
    uint64_t time;
    uint32_t duration;
    uint32_t changed;
    uint64_t args[];
};

#define RECORD(number, kind, text) TFI_KIND_##kind = number,
#define FIELD(kind, ctype, column, type, codec, text)
#define LIST(kind, column, type, text)
#define RECORD_END(kind)
enum tfi_kind {
#include "records.def"
    TFI_KIND_END
};
#undef RECORD
#undef FIELD
#undef LIST
#undef RECORD_END

#define RECORD(number, kind, text)                                                                                     \
    struct tfi_rec_##kind {                                                                                            \
        struct tfi_rec rec;
#define FIELD(kind, ctype, column, type, codec, text) ctype column;
#define LIST(kind, column, type, text) uint64_t column[];
#define RECORD_END(kind)                                                                                               \
    }                                                                                                                  \
    ;
#include "records.def"
#undef RECORD
#undef FIELD
#undef LIST
#undef RECORD_END

/* Rows have no padding: their columns add up to their size, which is a multiple of 8. */
#define RECORD(number, kind, text) _Static_assert(sizeof(struct tfi_rec_##kind) == 4
#define FIELD(kind, ctype, column, type, codec, text) +sizeof(ctype)
#define LIST(kind, column, type, text)
#define RECORD_END(kind) && sizeof(struct tfi_rec_##kind) % 8 == 0, #kind);
#include "records.def"
#undef RECORD
#undef FIELD
#undef LIST
#undef RECORD_END

/* Flags of function_begin and function_end. */
enum tfi_execution {
    TFI_EXECUTION_CUT = 1,     /* the values did not fit, or are nested too deeply: some are missing */
    TFI_EXECUTION_MISSING = 2, /* libtorch gave fewer values than the function's schema has: an operator that failed */
};

#define VALUE(number, name, text) TFI_VALUE_##name = number,
#define ELEMENT(number, text, bytes, own)
#define DEVICE(number, text)
enum tfi_value {
#include "torch_values.def"
    TFI_VALUE_HAS_SIZES = 1 << 16, /* flags of a value's head */
    TFI_VALUE_HAS_STRIDES = 2 << 16,
    TFI_VALUE_HAS_STORAGE = 4 << 16,
    TFI_VALUE_IS_KNOWN = 1 << 16,
};
#undef VALUE
#undef ELEMENT
#undef DEVICE

#define DROP(number, name, lost, text) TFI_DROP_##name = number,
enum tfi_drop {
#include "drops.def"
    TFI_DROP_END
};
#undef DROP
#define TFI_MAX_DROPS 64

/* ---- the live file ---- */

enum tfi_chunk_state {
    TFI_CHUNK_FREE = 0,
    TFI_CHUNK_TAKEN = 1,  /* being given to a thread: its content does not count */
    TFI_CHUNK_OPEN = 2,   /* a thread writes into it */
    TFI_CHUNK_CLOSED = 3, /* complete, not appended yet */
};

struct tfi_chunk { /* at the start of each chunk */
    uint32_t state;
    uint32_t committed; /* bytes of rows after this head */
    uint64_t serial;
    uint32_t thread;
    uint32_t tid;
    uint32_t bytes; /* size of the chunk with this head */
    uint32_t reserved;
    uint8_t pad[32];
};

#define TFI_SLOT_CALLS 4
#define TFI_SLOT_STAGES 36

struct tfi_slot {
    uint32_t state; /* 0 free, 1 used */
    uint32_t thread;
    uint32_t tid;
    uint32_t calls;  /* calls in progress; the first TFI_SLOT_CALLS are listed, outermost first */
    uint32_t stages; /* stages it has open; the first TFI_SLOT_STAGES are listed */
    uint32_t reserved;
    uint64_t pthread;
    uint64_t start; /* ticks of its first record */
    char name[16];
    struct {
        uint64_t start; /* ticks */
        uint32_t func;  /* string */
        uint32_t reserved;
    } call[TFI_SLOT_CALLS];
    struct {
        uint64_t start; /* ticks */
        uint32_t name;  /* string */
        uint32_t id;    /* low half of the range's id */
    } stage[TFI_SLOT_STAGES];
    struct {
        uint64_t communicator;
        uint64_t sequence;
        uint64_t bytes;
        int32_t peer;  /* root or peer, -1 if none */
        uint32_t call; /* place among the calls in progress, from 1; 0: the thread is in no collective */
        uint64_t count;
        uint32_t type; /* ncclDataType_t */
        int32_t reduction;
    } collective; /* what it is asked to do, as in its record */
    uint8_t pad[280];
};

struct tfi_region {
    uint64_t offset; /* from the start of the file */
    uint64_t bytes;
};

struct tfi_live {
    char magic[8]; /* TFI_LIVE_MAGIC with its zero; stored last */
    uint16_t major;
    uint16_t minor;
    uint32_t head_bytes;
    uint64_t bytes; /* of the file */
    struct tfi_region info;
    struct tfi_region schema;
    struct tfi_region slots;   /* of slot_bytes each */
    struct tfi_region strings; /* strings_used bytes are valid */
    struct tfi_region small;   /* chunks of small_bytes each */
    struct tfi_region large;   /* chunks of large_bytes each */
    uint32_t slot_bytes;
    uint32_t small_bytes;
    uint32_t large_bytes;
    uint32_t reserved;
    uint64_t strings_used;
    uint64_t serial;               /* serials given out */
    uint64_t ticks;                /* when the process woke */
    uint64_t drops[TFI_MAX_DROPS]; /* by number in drops.def */
};

_Static_assert(sizeof(struct tfi_file_head) == 16, "file head");
_Static_assert(sizeof(struct tfi_block) == 48, "block head");
_Static_assert(sizeof(struct tfi_again) == 24, "call again");
_Static_assert(sizeof(struct tfi_chunk) == 64, "chunk head");
_Static_assert(sizeof(struct tfi_slot) == 1024, "slot");
_Static_assert(sizeof(struct tfi_live) == 24 + 6 * 16 + 16 + 24 + 8 * TFI_MAX_DROPS, "live head");

#endif
