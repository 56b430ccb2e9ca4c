/* files.c - implements the sums and findings of one file. */
#include "ask/io/files.h"

#include "base/util.h"

enum { PAGE = 4096, MANY = 100, STORM = 10 };

const char *const io_finding_names[NR_IO_FINDINGS] = {
    [IO_NEVER_READ] = "never read",         [IO_SMALL_READS] = "small reads",
    [IO_SMALL_WRITES] = "small writes",     [IO_UNALIGNED_READS] = "unaligned reads",
    [IO_REPEATED_READS] = "repeated reads", [IO_METADATA_STORM] = "metadata storm"};

static void add_read(struct io_file *file, const struct ios *ios, size_t call)
{
    uint64_t bytes = ios_bytes(ios, call), calls = ios_calls(ios, call);
    int64_t offset = ios->offset[call];
    bool is_one = ios->sum[call] == IO_ONE_CALL;
    file->reads += calls;
    file->read_bytes += bytes;
    if (!bytes) return;
    if (bytes / calls < PAGE) file->small += calls;
    if (!is_one || offset < 0) {
        file->has_unknown = true;
        return;
    }
    file->unaligned += offset % PAGE != 0;
    intervals_add_merging(&file->positions, offset, add_ns(offset, (int64_t)MIN(bytes, (uint64_t)INT64_MAX)));
}

void io_file_call(struct io_file *file, const struct ios *ios, size_t call)
{
    uint64_t calls = ios_calls(ios, call);
    switch (ios->of_name[ios->function[call]].kind) {
    case IO_READ: add_read(file, ios, call); break;
    case IO_COPY: /* its file is the one that it reads */
        file->reads += calls;
        file->read_bytes += ios_bytes(ios, call);
        file->has_unknown = true;
        break;
    case IO_WRITE:
        file->writes += calls;
        file->write_bytes += ios_bytes(ios, call);
        if (ios_bytes(ios, call) && ios_bytes(ios, call) / calls < PAGE) file->small_writes += calls;
        break;
    case IO_OPEN:
        file->opens += calls - ios_errors(ios, call);
        file->metadata += calls;
        break;
    case IO_MAP: file->mapped += calls; break;
    case IO_CLOSE:
    case IO_SEEK:
    case IO_METADATA: file->metadata += calls; break;
    default: break;
    }
}

void io_file_settle(struct io_file *file)
{
    intervals_merge(&file->positions);
    file->distinct += (uint64_t)intervals_total(&file->positions);
    intervals_free(&file->positions);
}

void io_file_add(struct io_file *file, const struct io_file *from)
{
    file->opens += from->opens;
    file->reads += from->reads;
    file->writes += from->writes;
    file->metadata += from->metadata;
    file->read_bytes += from->read_bytes;
    file->write_bytes += from->write_bytes;
    file->small += from->small;
    file->small_writes += from->small_writes;
    file->unaligned += from->unaligned;
    file->mapped += from->mapped;
    file->has_unknown |= from->has_unknown;
    file->distinct += from->distinct;
}

int64_t io_file_repeated(const struct io_file *file)
{
    if (file->has_unknown) return -1;
    return file->read_bytes > file->distinct ? (int64_t)(file->read_bytes - file->distinct) : 0;
}

bool io_file_has(const struct io_file *file, enum io_finding finding)
{
    switch (finding) {
    case IO_NEVER_READ: return file->opens && !file->reads && !file->writes && !file->mapped;
    case IO_SMALL_READS: return file->small >= MANY && file->small > file->reads / 2;
    case IO_SMALL_WRITES: return file->small_writes >= MANY && file->small_writes > file->writes / 2;
    case IO_UNALIGNED_READS: return file->unaligned >= MANY && file->unaligned > file->reads / 2;
    case IO_REPEATED_READS: return io_file_repeated(file) > 0 && (uint64_t)io_file_repeated(file) >= file->distinct;
    case IO_METADATA_STORM: return file->metadata >= MANY && file->metadata / STORM >= file->reads + file->writes;
    default: return false;
    }
}
