/* io_calls.c - implements the columns of calls on files, and tells from a function's name what it does. */
#include "model/io_calls.h"

#include <stdlib.h>
#include <string.h>

#include "model/names.h"

/* ---- kinds of functions ---- */

struct io_name {
    const char *name;
    enum io_kind kind;
};

/* Names without leading underscores and without the endings that io_kind takes away. A name that is absent is
 * IO_METADATA. */
static const struct io_name io_names[] = {
    {"read", IO_READ},
    {"pread", IO_READ},
    {"readv", IO_READ},
    {"preadv", IO_READ},
    {"preadv2", IO_READ},
    {"fread", IO_READ},
    {"fgets", IO_READ},
    {"fgetc", IO_READ},
    {"getc", IO_READ},
    {"getline", IO_READ},
    {"getdelim", IO_READ},
    {"fscanf", IO_READ},
    {"aio_read", IO_READ},
    {"H5Dread", IO_READ},
    {"write", IO_WRITE},
    {"pwrite", IO_WRITE},
    {"writev", IO_WRITE},
    {"pwritev", IO_WRITE},
    {"pwritev2", IO_WRITE},
    {"fwrite", IO_WRITE},
    {"fputs", IO_WRITE},
    {"fputc", IO_WRITE},
    {"putc", IO_WRITE},
    {"fprintf", IO_WRITE},
    {"vfprintf", IO_WRITE},
    {"dprintf", IO_WRITE},
    {"vdprintf", IO_WRITE},
    {"aio_write", IO_WRITE},
    {"H5Dwrite", IO_WRITE},
    {"sendfile", IO_COPY},
    {"copy_file_range", IO_COPY},
    {"splice", IO_COPY},
    {"tee", IO_COPY},
    {"vmsplice", IO_COPY},
    {"open", IO_OPEN},
    {"openat", IO_OPEN},
    {"openat2", IO_OPEN},
    {"creat", IO_OPEN},
    {"fopen", IO_OPEN},
    {"fdopen", IO_OPEN},
    {"freopen", IO_OPEN},
    {"opendir", IO_OPEN},
    {"fdopendir", IO_OPEN},
    {"H5Fopen", IO_OPEN},
    {"H5Fcreate", IO_OPEN},
    {"close", IO_CLOSE},
    {"close_range", IO_CLOSE},
    {"closefrom", IO_CLOSE},
    {"fclose", IO_CLOSE},
    {"closedir", IO_CLOSE},
    {"H5Fclose", IO_CLOSE},
    {"lseek", IO_SEEK},
    {"llseek", IO_SEEK},
    {"fseek", IO_SEEK},
    {"fseeko", IO_SEEK},
    {"ftell", IO_SEEK},
    {"ftello", IO_SEEK},
    {"rewind", IO_SEEK},
    {"fsetpos", IO_SEEK},
    {"fgetpos", IO_SEEK},
    {"fsync", IO_SYNC},
    {"fdatasync", IO_SYNC},
    {"sync", IO_SYNC},
    {"syncfs", IO_SYNC},
    {"sync_file_range", IO_SYNC},
    {"msync", IO_SYNC},
    {"fflush", IO_SYNC},
    {"aio_fsync", IO_SYNC},
    {"mmap", IO_MAP},
    {"munmap", IO_MAP},
    {"mremap", IO_MAP},
    {"madvise", IO_MAP},
    {"fork", IO_PROCESS},
    {"vfork", IO_PROCESS},
    {"execl", IO_PROCESS},
    {"execlp", IO_PROCESS},
    {"execle", IO_PROCESS},
    {"execv", IO_PROCESS},
    {"execvp", IO_PROCESS},
    {"execve", IO_PROCESS},
    {"execvpe", IO_PROCESS},
    {"execveat", IO_PROCESS},
    {"fexecve", IO_PROCESS},
    {"exit", IO_PROCESS},
    {"wait", IO_PROCESS},
    {"waitpid", IO_PROCESS},
    {"wait3", IO_PROCESS},
    {"wait4", IO_PROCESS},
    {"waitid", IO_PROCESS},
    {"posix_spawn", IO_PROCESS},
    {"posix_spawnp", IO_PROCESS},
};

/* MPI has many functions of each kind, with the same beginnings. */
static const struct io_name mpi_beginnings[] = {
    {"MPI_File_read", IO_READ},    {"MPI_File_iread", IO_READ}, {"MPI_File_write", IO_WRITE},
    {"MPI_File_iwrite", IO_WRITE}, {"MPI_File_open", IO_OPEN},  {"MPI_File_close", IO_CLOSE},
    {"MPI_File_seek", IO_SEEK},    {"MPI_File_sync", IO_SYNC},
};

static void take_away(size_t *length, const char *name, const char *end)
{
    size_t n = strlen(end);
    if (*length > n && strncmp(name + *length - n, end, n) == 0) *length -= n;
}

/* An operation of io_uring, in older traces, is of the kind of the function that it is named after. */
static const char uring[] = "io_uring_";

enum io_kind io_kind(const char *function)
{
    function += strspn(function, "_");
    if (strncmp(function, uring, sizeof uring - 1) == 0) function += sizeof uring - 1;
    size_t length = strlen(function);
    take_away(&length, function, "_chk");
    take_away(&length, function, "_2");
    take_away(&length, function, "_unlocked");
    take_away(&length, function, "_fixed"); /* io_uring_read_fixed */
    take_away(&length, function, "64v2");   /* preadv64v2 */
    take_away(&length, function, "64");
    for (size_t i = 0; i < ARRAY_SIZE(io_names); i++)
        if (strlen(io_names[i].name) == length && memcmp(io_names[i].name, function, length) == 0)
            return io_names[i].kind;
    for (size_t i = 0; i < ARRAY_SIZE(mpi_beginnings); i++)
        if (strncmp(function, mpi_beginnings[i].name, strlen(mpi_beginnings[i].name)) == 0)
            return mpi_beginnings[i].kind;
    return IO_METADATA;
}

/* ---- columns ---- */

#define COLUMN(column)                                                                                                 \
    {                                                                                                                  \
        offsetof(struct ios, column), sizeof *((struct ios *)0)->column                                                \
    }
static const struct layout io_layout[] = {COLUMN(start),     COLUMN(end),    COLUMN(result),   COLUMN(bytes),
                                          COLUMN(requested), COLUMN(offset), COLUMN(function), COLUMN(path),
                                          COLUMN(thread),    COLUMN(sum),    COLUMN(error),    COLUMN(fd)};

size_t ios_add(struct ios *ios)
{
    table_reserve(ios, io_layout, ARRAY_SIZE(io_layout), 1);
    size_t at = ios->table.count++;
    ios->start[at] = ios->end[at] = 0;
    ios->result[at] = IO_NO_RESULT;
    ios->bytes[at] = ios->requested[at] = ios->offset[at] = IO_UNKNOWN;
    ios->function[at] = ios->thread[at] = 0;
    ios->path[at] = NAME_NONE;
    ios->sum[at] = IO_ONE_CALL;
    ios->error[at] = ios->fd[at] = IO_UNKNOWN;
    return at;
}

struct io_sum *ios_sum(struct ios *ios, size_t at)
{
    ios->sums = mem_grow(ios->sums, &ios->sum_capacity, ios->sum_count + 1, sizeof *ios->sums);
    struct io_sum *sum = &ios->sums[ios->sum_count];
    *sum = (struct io_sum){1, 0, IO_UNKNOWN, IO_UNKNOWN, IO_UNKNOWN, IO_UNKNOWN, IO_UNKNOWN, IO_UNKNOWN};
    ios->sum[at] = (uint32_t)ios->sum_count++;
    return sum;
}

uint32_t ios_function(struct ios *ios, const struct names *names, uint32_t library, uint32_t name)
{
    uint64_t key = (uint64_t)library << 32 | name;
    uint32_t at = map_get(&ios->function_of, key);
    if (at != MAP_NONE) return at;
    at = (uint32_t)ios->functions;
    ios->of_name = mem_grow(ios->of_name, &ios->function_capacity, ios->functions + 1, sizeof *ios->of_name);
    ios->of_name[ios->functions++] = (struct io_function){name, library, io_kind(names_get(names, name)->text)};
    map_put(&ios->function_of, key, at);
    return at;
}

uint64_t ios_calls(const struct ios *ios, size_t at)
{
    return ios->sum[at] == IO_ONE_CALL ? 1 : ios->sums[ios->sum[at]].calls;
}

uint64_t ios_errors(const struct ios *ios, size_t at)
{
    const struct io_sum *sum = ios->sum[at] == IO_ONE_CALL ? NULL : &ios->sums[ios->sum[at]];
    return sum ? MIN(sum->errors, sum->calls) : ios->error[at] > 0;
}

uint64_t ios_bytes(const struct ios *ios, size_t at)
{
    return (uint64_t)MAX(ios->bytes[at], 0);
}

int64_t ios_time(const struct ios *ios, size_t at)
{
    const struct io_sum *sum = ios->sum[at] == IO_ONE_CALL ? NULL : &ios->sums[ios->sum[at]];
    return sum && sum->total >= 0 ? sum->total : ios->end[at] - ios->start[at];
}

void ios_free(struct ios *ios)
{
    table_free(ios, io_layout, ARRAY_SIZE(io_layout));
    free(ios->of_name);
    free(ios->sums);
    map_free(&ios->function_of);
    *ios = (struct ios){0};
}
