/* dftracer.c - distinguishes a dftracer trace from a PyTorch trace: it has one event per line and no commas between
 * events. */
#include "read/dftracer.h"

#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "read/json.h"
#include "read/stream.h"

enum { PACKED = 16384, LOOKED_AT = 65536 };

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), n = strlen(end);
    return length > n && strcmp(text + length - n, end) == 0;
}

bool is_dftracer_name(const char *name)
{
    return ends_with(name, ".pfw") || ends_with(name, ".pfw.gz");
}

/* Reads the first bytes of a file, inflated if packed. Returns their number. */
static size_t first_bytes(const char *path, enum file_how how, char *to, size_t size)
{
    char packed[PACKED];
    struct stat status;
    const char *why;
    z_stream z = {.next_out = (Bytef *)to, .avail_out = (uInt)size};
    int fd = file_open(path, how, &status, &why);
    ssize_t got = fd >= 0 ? read(fd, packed, sizeof packed) : -1;
    if (fd >= 0) close(fd);
    if (got < 2 || packed[0] != '\x1f' || packed[1] != '\x8b') {
        memcpy(to, packed, (size_t)MAX(got, 0));
        return (size_t)MAX(got, 0);
    }
    z.next_in = (Bytef *)packed;
    z.avail_in = (uInt)got;
    if (inflateInit2(&z, 15 + 16) != Z_OK) return 0;
    inflate(&z, Z_SYNC_FLUSH); /* the reader of the file reports its faults */
    inflateEnd(&z);
    return size - z.avail_out;
}

static bool is_event(struct slice object)
{
    return json_member(object, "name").length && json_member(object, "cat").length &&
           json_member(object, "pid").length && json_member(object, "ph").length;
}

/* Recognises dftracer's own metadata events (hosts, files, processes). The text after the first event decides for
 * other events. */
static bool is_described(struct slice object)
{
    struct slice category = json_member(object, "cat");
    return is_event(object) && category.length == 10 && memcmp(category.at, "\"dftracer\"", 10) == 0;
}

bool is_dftracer_file(const char *path, enum file_how how)
{
    static _Thread_local char text[LOOKED_AT + STREAM_PAD];
    const char *stopped, *at = text, *end;
    size_t length = first_bytes(path, how, text, LOOKED_AT);
    text[length] = 0;
    memset(text + length + 1, '"', STREAM_PAD - 1);
    at = json_space(strncmp(at, "\xef\xbb\xbf", 3) == 0 ? at + 3 : at);
    at = *at == '[' ? json_space(at + 1) : at;
    end = *at == '{' ? json_skip(at, &stopped) : NULL;
    if (!end || end > text + length) return false;
    struct slice first = {.at = at, .length = (size_t)(end - at)};
    return is_described(first) || (is_event(first) && *json_space(end) == '{');
}
