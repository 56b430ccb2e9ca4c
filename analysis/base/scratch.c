/* scratch.c - bytes that are written once and read again later, in a temporary file without a name. */
#include "base/scratch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_out.h"

enum { BUFFER = 1 << 20, WINDOW = 1 << 14 };

void scratch_init(struct scratch *scratch)
{
    *scratch = (struct scratch){.fd = -1, .buffer = mem_resize(NULL, BUFFER, 1)};
}

static void fail(struct scratch *s)
{
    if (!s->failed)
        complain(scratch_directory(),
                 "a temporary file there cannot be written (%s); set TMPDIR to a directory with space",
                 strerror(errno));
    s->failed = true;
}

static bool create(struct scratch *s)
{
    s->fd = file_scratch();
    if (s->fd < 0) fail(s);
    return s->fd >= 0;
}

static void write_all(struct scratch *s, const char *bytes, size_t length)
{
    while (length && !s->failed && (s->fd >= 0 || create(s))) {
        ssize_t n = pwrite(s->fd, bytes, length, (off_t)s->spilled);
        if (n > 0) {
            s->spilled += (uint64_t)n;
            bytes += n;
            length -= (size_t)n;
        } else if (errno != EINTR) {
            fail(s);
        }
    }
}

uint64_t scratch_add(struct scratch *s, const char *bytes, size_t length)
{
    if (length > BUFFER - s->used) {
        write_all(s, s->buffer, s->used);
        s->used = 0;
    }
    uint64_t offset = s->spilled + s->used;
    if (length > BUFFER) {
        write_all(s, bytes, length);
    } else {
        memcpy(s->buffer + s->used, bytes, length);
        s->used += length;
    }
    return offset;
}

/* Reads the window of the file that begins at `offset`. Returns false if it has less than `length` bytes. */
static bool read_window(struct scratch *s, uint64_t offset, size_t length)
{
    size_t want = MAX(length, (size_t)WINDOW);
    s->window = mem_grow(s->window, &s->window_room, want, 1);
    s->window_at = offset;
    s->window_length = 0;
    want = MIN(want, s->spilled - offset);
    while (s->window_length < want) {
        ssize_t n =
            pread(s->fd, s->window + s->window_length, want - s->window_length, (off_t)(offset + s->window_length));
        if (n > 0) s->window_length += (size_t)n;
        else if (n == 0 || errno != EINTR) break;
    }
    return s->window_length >= length;
}

const char *scratch_get(struct scratch *s, uint64_t offset, size_t length)
{
    if (s->failed) return NULL;
    if (offset >= s->spilled) return s->buffer + (offset - s->spilled);
    bool there = offset >= s->window_at && offset + length <= s->window_at + s->window_length;
    if (!there && !read_window(s, offset, length)) {
        fail(s);
        return NULL;
    }
    return s->window + (offset - s->window_at);
}

void scratch_free(struct scratch *s)
{
    if (s->fd >= 0) close(s->fd);
    free(s->buffer);
    free(s->window);
    *s = (struct scratch){.fd = -1};
}
