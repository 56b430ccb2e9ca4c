/* containers.c - compares the first bytes of a file with those of known kinds (containers.def). */
#include "read/stream/containers.h"

#include <string.h>
#include <unistd.h>

#include "base/util.h"

static const struct {
    const char *bytes;
    size_t length, offset;
    const char *what;
} rows[] = {
#define CONTAINER(bytes, length, offset, kind, instead) {bytes, length, offset, kind "; " instead},
#include "read/stream/containers.def"
#undef CONTAINER
};

const char *container_of(const char *path, enum file_how how)
{
    char head[512];
    struct stat status;
    const char *why = NULL;
    int fd = file_open(path, how, &status, &why);
    ssize_t length = fd < 0 ? -1 : file_read(fd, head, sizeof head);
    if (fd >= 0) close(fd);
    for (size_t i = 0; i < ARRAY_SIZE(rows) && length > 0; i++) {
        bool fits = rows[i].offset + rows[i].length <= (size_t)length;
        if (fits && memcmp(head + rows[i].offset, rows[i].bytes, rows[i].length) == 0) return rows[i].what;
    }
    /* The first field of Perfetto's format is a packet; text may begin with a line feed too. */
    if (length > 1 && head[0] == '\n' && !strchr(" \t\r\n{[", head[1]))
        return "perhaps a trace of Perfetto (.pftrace); give the trace that it was made of";
    return NULL;
}

bool is_packed_name(const char *name)
{
    static const char *const ends[] = {".json.zst", ".json.xz", ".json.bz2", ".json.lz4", ".json.zip"};
    size_t length = strlen(name);
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        if (length > strlen(ends[i]) && strcmp(name + length - strlen(ends[i]), ends[i]) == 0) return true;
    return false;
}
