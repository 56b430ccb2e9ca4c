/* io_calls.h - holds calls on files: those that our library recorded (record `io`) and those of dftracer's traces.
 *
 * A call is one index into several arrays. A row may also stand for several calls that the recorder added up: `sum`
 * then names their sums, and start and end are the interval in which they happened. Times are ticks while a trace of
 * ours is loaded, as everywhere in the model. Kept only with `io`.
 */
#ifndef TFA_IO_CALLS_H
#define TFA_IO_CALLS_H

#include "base/util.h"

/* Kinds of functions, by the effect on a file. A function has the kind that its name tells. */
enum io_kind {
    IO_READ,  /* bytes come from a file: read, pread, readv, fread, fgets ... */
    IO_WRITE, /* bytes go to a file */
    IO_COPY,  /* bytes go from file to file: sendfile, copy_file_range, splice */
    IO_OPEN,
    IO_CLOSE,
    IO_SEEK,
    IO_SYNC,     /* fsync, fdatasync, msync, fflush ... */
    IO_MAP,      /* mmap, munmap, madvise */
    IO_METADATA, /* everything else on names, attributes, directories and descriptors */
    IO_PROCESS   /* fork, exec, exit, wait */
};

struct io_function {
    uint32_t name;    /* in `names`, as recorded: "pread64" */
    uint32_t library; /* in `names`: "POSIX", "STDIO" ...; the category of a dftracer trace */
    enum io_kind kind;
};

/* Sums of several calls. */
struct io_sum {
    uint64_t calls, errors;           /* errors: 0 if unknown, as in a dftracer trace */
    int64_t total, shortest, longest; /* nanoseconds; -1: unknown */
    int64_t bytes, smallest, largest; /* moved bytes; -1: unknown or none */
};

#define IO_UNKNOWN (-1) /* bytes, requested, offset, fd, error: not recorded or without meaning for the function */
#define IO_NO_RESULT INT64_MIN  /* result: not recorded */
#define IO_SOME_ERROR INT32_MAX /* error: the call failed, and its errno is not recorded */
#define IO_ONE_CALL UINT32_MAX  /* sum: the row is one call */

struct ios {
    struct table table;
    int64_t *start, *end;
    int64_t *result; /* value that the call returned */
    int64_t *bytes;  /* bytes moved by IO_READ, IO_WRITE and IO_COPY; 0 if such a call failed; of a sum all of them */
    int64_t *requested; /* bytes asked for */
    int64_t *offset;    /* position in the file */
    uint32_t *function; /* index in `of_name` */
    uint32_t *path;     /* in `names`; NAME_NONE: unknown */
    uint32_t *thread;   /* serial */
    uint32_t *sum;      /* index in `sums`, or IO_ONE_CALL */
    int32_t *error;     /* errno of a failed call; 0: it succeeded */
    int32_t *fd;
    struct io_function *of_name;
    size_t functions, function_capacity;
    struct map function_of; /* index by library << 32 | name */
    struct io_sum *sums;
    size_t sum_count, sum_capacity;
};

struct process;
struct names;

/* Returns the index of a call that is added; all its columns hold "unknown", its times 0. */
size_t ios_add(struct ios *ios);
/* Returns the sums of a call, which becomes a row of several calls; all of them unknown, and one call. */
struct io_sum *ios_sum(struct ios *ios, size_t at);
/* Returns the index of a function in `of_name`. */
uint32_t ios_function(struct ios *ios, const struct names *names, uint32_t library, uint32_t name);
enum io_kind io_kind(const char *function);
/* Returns the number of calls that a row stands for. */
uint64_t ios_calls(const struct ios *ios, size_t at);
/* Returns the number of them that failed. */
uint64_t ios_errors(const struct ios *ios, size_t at);
/* Returns the bytes that a row moved, 0 if none or unknown. */
uint64_t ios_bytes(const struct ios *ios, size_t at);
/* Returns the time that the calls of a row took together. */
int64_t ios_time(const struct ios *ios, size_t at);
void ios_free(struct ios *ios);

#endif
