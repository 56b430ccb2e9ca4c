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

/* Returns the window that has these bytes, or the one that was used longest ago. */
static struct scratch_window *find_window(struct scratch *s, uint64_t offset, size_t length)
{
    struct scratch_window *oldest = s->window;
    for (struct scratch_window *w = s->window; w < s->window + SCRATCH_WINDOWS; w++) {
        if (offset >= w->at && offset + length <= w->at + w->length) return w;
        if (w->used < oldest->used) oldest = w;
    }
    return oldest;
}

/* Fills a window with the bytes of the file from `offset` on. Returns false if there are less than `length`. */
static bool fill_window(const struct scratch *s, struct scratch_window *w, uint64_t offset, size_t length)
{
    size_t want = MAX(length, (size_t)WINDOW);
    w->data = mem_grow(w->data, &w->room, want, 1);
    w->at = offset;
    w->length = 0;
    want = MIN(want, s->spilled - offset);
    while (w->length < want) {
        ssize_t n = pread(s->fd, w->data + w->length, want - w->length, (off_t)(offset + w->length));
        if (n > 0) w->length += (size_t)n;
        else if (n == 0 || errno != EINTR) break;
    }
    return w->length >= length;
}

const char *scratch_get(struct scratch *s, uint64_t offset, size_t length)
{
    if (s->failed) return NULL;
    if (offset >= s->spilled) return s->buffer + (offset - s->spilled);
    struct scratch_window *w = find_window(s, offset, length);
    bool there = offset >= w->at && offset + length <= w->at + w->length;
    if (!there && !fill_window(s, w, offset, length)) {
        fail(s);
        return NULL;
    }
    w->used = ++s->gets;
    return w->data + (offset - w->at);
}

void scratch_free(struct scratch *s)
{
    if (s->fd >= 0) close(s->fd);
    free(s->buffer);
    for (size_t i = 0; i < SCRATCH_WINDOWS; i++) free(s->window[i].data);
    *s = (struct scratch){.fd = -1};
}
