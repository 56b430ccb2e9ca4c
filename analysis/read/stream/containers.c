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

/* Perfetto's format is a list of packets, each a line feed and a length, a varint. Text may begin with a line feed too. */
static bool is_perfetto(const char *head, size_t length)
{
    size_t at = 1, packet = 0;
    if (length < 4 || head[0] != '\n') return false;
    while (at < 5 && at < length && head[at] & '\x80') at++;
    for (size_t i = at; i && i < length; i--) packet = packet << 7 | (head[i] & 0x7f);
    if (at + 1 + packet < length) return head[at + 1 + packet] == '\n';
    return at > 1;
}

const char *container_in(const char *head, size_t length)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        bool fits = rows[i].offset + rows[i].length <= length;
        if (fits && memcmp(head + rows[i].offset, rows[i].bytes, rows[i].length) == 0) return rows[i].what;
    }
    return is_perfetto(head, length) ? "perhaps a trace of Perfetto (.pftrace); give the trace that it was made of"
                                     : NULL;
}

const char *container_of(const char *path, enum file_how how)
{
    char head[512];
    struct stat status;
    const char *why = NULL;
    int fd = file_open(path, how, &status, &why);
    ssize_t length = fd < 0 ? -1 : file_read(fd, head, sizeof head);
    if (fd >= 0) close(fd);
    return length > 0 ? container_in(head, (size_t)length) : NULL;
}

bool is_packed_name(const char *name)
{
    static const char *const ends[] = {".json.zst", ".json.xz", ".json.bz2", ".json.lz4", ".json.zip"};
    size_t length = strlen(name);
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        if (length > strlen(ends[i]) && strcmp(name + length - strlen(ends[i]), ends[i]) == 0) return true;
    return false;
}
