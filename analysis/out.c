/* out.c - writes bytes, numbers and JSON strings to wherever the answer goes. */
#include "out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER = 1 << 16 };

static void fail(struct out *out, const char *why)
{
    if (!out->failed) {
        complain(out->path ? out->path : "stdout", "can't be written (%s)", why);
    }
    out->failed = true;
}

/* Devices and pipes are written as they are; a name that is a link stands for what it points to. */
static bool create_temporary(struct out *out)
{
    struct stat status;
    char *real = realpath(out->path, NULL);
    bool device = real && stat(real, &status) == 0 && !S_ISREG(status.st_mode);
    bool dangling = !real && lstat(out->path, &status) == 0;
    if (device || dangling) {
        out->fd = open(out->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    } else {
        char *target = real ? real : out->path;
        if (real) {
            free(out->path);
            real = NULL;
        }
        out->path = target;
        out->temporary = string_format("%s.%d.tmp", out->path, (int)getpid());
        out->fd = open(out->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    }
    free(real);
    return out->fd >= 0;
}

bool out_open(struct out *out, const char *path)
{
    size_t length = path ? strlen(path) : 0;
    *out = (struct out){.fd = STDOUT_FILENO, .buffer = mem_resize(NULL, BUFFER, 1)};
    if (!path) {
        return true;
    }
    out->path = string_format("%s", path);
    if (!create_temporary(out)) {
        fail(out, strerror(errno));
        return false;
    }
    if (length > 3 && strcmp(path + length - 3, ".gz") == 0) {
        out->packed = gzdopen(out->fd, "wb6");
        if (!out->packed) {
            fail(out, "no memory");
            return false;
        }
    }
    return true;
}

static void flush(struct out *out)
{
    size_t done = 0;
    while (done < out->used && !out->failed) {
        ssize_t n = out->packed ? gzwrite(out->packed, out->buffer + done, (unsigned)(out->used - done))
                                : write(out->fd, out->buffer + done, out->used - done);
        if (n > 0) {
            done += (size_t)n;
        } else if (errno != EINTR) {
            fail(out, strerror(errno));
        }
    }
    out->used = 0;
}

void out_write(struct out *out, const char *bytes, size_t length)
{
    while (length) {
        size_t part = MIN(length, BUFFER - out->used);
        memcpy(out->buffer + out->used, bytes, part);
        out->used += part;
        bytes += part;
        length -= part;
        if (out->used == BUFFER) {
            flush(out);
        }
    }
}

void out_puts(struct out *out, const char *string)
{
    out_write(out, string, strlen(string));
}

void out_format(struct out *out, const char *format, ...)
{
    char small[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(small, sizeof small, format, arguments);
    va_end(arguments);
    out_write(out, small,
              MIN((size_t)MAX(length, 0), sizeof small - 1)); /* only numbers and short words are formatted */
}

static void release(struct out *out)
{
    if (out->packed && gzclose(out->packed) != Z_OK) {
        fail(out, strerror(errno));
    } else if (!out->packed && out->path && out->fd >= 0 && close(out->fd) != 0) {
        fail(out, strerror(errno));
    }
    out->packed = NULL;
    out->fd = -1;
}

bool out_close(struct out *out)
{
    flush(out);
    release(out);
    if (out->temporary && !out->failed && rename(out->temporary, out->path) != 0) {
        fail(out, strerror(errno));
    }
    bool good = !out->failed;
    if (!good && out->temporary) {
        unlink(out->temporary);
    }
    free(out->temporary);
    free(out->path);
    free(out->buffer);
    *out = (struct out){.fd = -1};
    return good;
}

void out_discard(struct out *out)
{
    out->used = 0;
    out->failed = true; /* nobody is told */
    if (out->buffer) {
        out_close(out);
    }
}

/* ---- JSON ---- */

size_t utf8_length(const char *p, const char *end)
{
    const unsigned char *u = (const unsigned char *)p;
    size_t left = (size_t)(end - p), length = u[0] < 0x80 ? 1 : u[0] < 0xc2 ? 0 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;
    if (!length || length > left || u[0] > 0xf4) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((u[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool bad = (u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xed && u[1] > 0x9f) || (u[0] == 0xf0 && u[1] < 0x90) ||
               (u[0] == 0xf4 && u[1] > 0x8f);
    return bad ? 0 : length;
}

static void json_escape(struct out *out, unsigned char c)
{
    static const char letters[] = {['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    if (c == '"' || c == '\\') {
        out_format(out, "\\%c", c);
    } else if (c < sizeof letters && letters[c]) {
        out_format(out, "\\%c", letters[c]);
    } else {
        out_format(out, "\\u%04x", c);
    }
}

void out_json_string(struct out *out, const char *bytes, size_t length)
{
    const char *end = bytes + length, *plain = bytes, *p = bytes;
    out_write(out, "\"", 1);
    while (p < end) {
        unsigned char c = (unsigned char)*p;
        size_t step = utf8_length(p, end);
        if (step && c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
            p += step;
            continue;
        }
        out_write(out, plain, (size_t)(p - plain));
        if (step) {
            json_escape(out, c);
        } else {
            out_puts(out, "\xef\xbf\xbd");
        }
        plain = ++p;
    }
    out_write(out, plain, (size_t)(p - plain));
    out_write(out, "\"", 1);
}

void out_number(struct out *out, uint64_t number)
{
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    out_write(out, digits + at, sizeof digits - at);
}

void out_us(struct out *out, int64_t ns)
{
    uint64_t whole = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    unsigned rest = (unsigned)(whole % 1000);
    char fraction[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10), (char)('0' + rest % 10)};
    if (ns < 0) {
        out_write(out, "-", 1);
    }
    out_number(out, whole / 1000);
    out_write(out, fraction, sizeof fraction);
}
