/* out.c - writes bytes, numbers and JSON strings to an output. */
#include "write/out.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/progress.h"
#include "sixteen.h"

static void fail(struct out *out, const char *why)
{
    if (!out->failed) complain(out->path ? out->path : "stdout", "cannot be written (%s)", why);
    out->failed = true;
}

static bool begin_output(struct out *out, const char *path, bool created, const char *why)
{
    size_t length = strlen(path);
    if (!created) {
        fail(out, why);
        return false;
    }
    out->fd = out->file.fd;
    if (length > 3 && strcmp(path + length - 3, ".gz") == 0) out->packed = gzip_out_open(out->fd);
    return true;
}

static void init(struct out *out, const char *path)
{
    *out = (struct out){.fd = -1, .buffer = mem_resize(NULL, OUT_BUFFER, 1), .path = string_format("%s", path)};
}

bool out_open(struct out *out, const char *path)
{
    const char *why = NULL;
    if (!path) {
        *out = (struct out){.fd = STDOUT_FILENO, .buffer = mem_resize(NULL, OUT_BUFFER, 1)};
        out->file = (struct file_out){.fd = -1, .directory = -1, .pending = -1};
        return true;
    }
    init(out, path);
    bool created = file_create(&out->file, path, &why);
    return begin_output(out, path, created, why);
}

void out_hide(struct out *out)
{
    if (out->file.fd >= 0) fchmod(out->file.fd, 0600);
}

bool out_open_in(struct out *out, int directory, const char *path, unsigned mode)
{
    const char *why = NULL, *slash = strrchr(path, '/');
    init(out, path);
    bool created = file_create_in(&out->file, directory, slash ? slash + 1 : path, mode, &why);
    return begin_output(out, path, created, why);
}

static void flush(struct out *out)
{
    size_t done = 0;
    if (out->fd == STDOUT_FILENO && isatty(STDOUT_FILENO)) progress_end(); /* the line would stand in the answer */
    else progress_wrote(out->used);
    int error = out->packed && !out->failed ? gzip_out_write(out->packed, out->buffer, out->used) : 0;
    if (error) fail(out, strerror(error));
    while (!out->packed && done < out->used && !out->failed) {
        ssize_t n = write(out->fd, out->buffer + done, out->used - done);
        if (n > 0) done += (size_t)n;
        else if (errno != EINTR) fail(out, strerror(errno));
    }
    out->used = 0;
}

void out_memory(struct out *out)
{
    *out = (struct out){.fd = -1, .buffer = mem_resize(NULL, OUT_BUFFER, 1), .room = OUT_BUFFER};
    out->file = (struct file_out){.fd = -1, .directory = -1, .pending = -1};
}

char *out_room(struct out *out, size_t more)
{
    out->buffer = mem_grow(out->buffer, &out->room, out->used + more, 1);
    return out->buffer + out->used;
}

void out_write_beyond(struct out *out, const char *bytes, size_t length)
{
    if (out->room) {
        memcpy(out_room(out, length), bytes, length);
        out->used += length;
        return;
    }
    while (length) {
        size_t part = MIN(length, OUT_BUFFER - out->used);
        memcpy(out->buffer + out->used, bytes, part);
        out->used += part;
        bytes += part;
        length -= part;
        if (out->used == OUT_BUFFER) flush(out);
    }
}

void out_spaces(struct out *out, size_t count)
{
    for (; count; count--) out_write(out, " ", 1);
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
    int error = 0;
    if (out->packed && out->failed) gzip_out_discard(out->packed);
    else if (out->packed) error = gzip_out_close(out->packed);
    else if (out->path && out->fd >= 0 && close(out->fd) != 0) error = errno;
    if (error) fail(out, strerror(error));
    out->packed = NULL;
    out->fd = -1;
}

bool out_close(struct out *out)
{
    flush(out);
    release(out);
    const char *why = NULL;
    if (!out->failed && !file_finish(&out->file, &why)) fail(out, why);
    bool good = !out->failed;
    file_drop(&out->file);
    free(out->path);
    free(out->buffer);
    *out = (struct out){.fd = -1};
    return good;
}

void out_forget(struct out *out)
{
    out->used = 0;
    out->failed = true; /* suppresses messages */
}

void out_discard(struct out *out)
{
    out_forget(out);
    if (out->buffer) out_close(out);
}

/* ---- JSON ---- */

static void json_escape(struct out *out, uint32_t code)
{
    static const char letters[] = {['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    if (code == '"' || code == '\\') out_format(out, "\\%c", (int)code);
    else if (code < sizeof letters && letters[code]) out_format(out, "\\%c", letters[code]);
    else out_format(out, "\\u%04x", code);
}

/* The common case: a character of ASCII that stands for itself. */
static inline bool is_letter(char c)
{
    return (unsigned char)c >= ' ' && (unsigned char)c < 0x7f && c != '"' && c != '\\';
}

/* Tells whether all of sixteen characters are letters. */
static inline bool are_letters(tfi_sixteen bytes)
{
    return !tfi_sixteen_bits((bytes < tfi_sixteen_of(' ')) | (bytes == tfi_sixteen_of(0x7f)) | /* 0x80 is negative */
                             (bytes == tfi_sixteen_of('"')) | (bytes == tfi_sixteen_of('\\')));
}

/* The same for any length. The last steps of a text overlap, because most keys and names are short. */
static inline bool is_all_letters(const char *p, size_t length)
{
    uint64_t word[2];
    uint32_t half[2];
    const char *end = p + length;
    for (; end - p >= 16; p += 16)
        if (!are_letters(tfi_sixteen_at(p))) return false;
    if (end - p >= 8) {
        memcpy(&word[0], p, 8);
        memcpy(&word[1], end - 8, 8);
        return are_letters(tfi_sixteen_at(word));
    }
    if (end - p >= 4) {
        memcpy(&half[0], p, 4);
        memcpy(&half[1], end - 4, 4);
        word[0] = word[1] = half[0] | (uint64_t)half[1] << 32;
        return are_letters(tfi_sixteen_at(word));
    }
    while (p < end && is_letter(*p)) p++;
    return p == end;
}

void out_json_string(struct out *out, const char *bytes, size_t length)
{
    const char *end = bytes + length, *plain = bytes, *p = bytes;
    if (!out->room && length + 2 < OUT_BUFFER - out->used && is_all_letters(bytes, length)) {
        char *to = out->buffer + out->used;
        to[0] = to[length + 1] = '"';
        if (length) memcpy(to + 1, bytes, length);
        out->used += length + 2;
        return;
    }
    out_write(out, "\"", 1);
    while (p < end) {
        size_t step;
        uint32_t code;
        if (is_letter(*p)) {
            p++;
            continue;
        }
        if (!is_unsafe(p, end, &step, &code) && *p != '"' && *p != '\\') {
            p += step;
            continue;
        }
        out_write(out, plain, (size_t)(p - plain));
        if (step) json_escape(out, code);
        else out_puts(out, "\xef\xbf\xbd");
        p += step ? step : 1;
        plain = p;
    }
    out_write(out, plain, (size_t)(p - plain));
    out_write(out, "\"", 1);
}

void out_json_raw(struct out *out, const char *json, size_t length)
{
    if (json_is_safe(json, length)) {
        out_write(out, json, length);
        return;
    }
    struct text text = {0};
    text_json(&text, json, length);
    out_write(out, text.data, text.length);
    text_free(&text);
}

static size_t digits_of(uint64_t number)
{
    size_t digits = 1;
    for (; number >= 10000; number /= 10000) digits += 4;
    return digits + (number >= 10) + (number >= 100) + (number >= 1000);
}

size_t number_write(char to[NUMBER_DIGITS], uint64_t number)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                                "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                                "8081828384858687888990919293949596979899";
    size_t length = digits_of(number), at = length;
    for (; number >= 100; number /= 100) memcpy(to + (at -= 2), pairs + 2 * (number % 100), 2);
    to[--at] = (char)('0' + number % 10);
    if (at) to[0] = (char)('0' + number / 10);
    return length;
}

size_t us_write(char to[US_LENGTH], int64_t ns)
{
    uint64_t whole = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    unsigned rest = (unsigned)(whole % 1000);
    const char fraction[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10), (char)('0' + rest % 10)};
    size_t sign = ns < 0, length = sign + number_write(to + sign, whole / 1000);
    if (sign) to[0] = '-';
    memcpy(to + length, fraction, sizeof fraction);
    return length + sizeof fraction;
}

/* Numbers are written where they belong, if the buffer has room: copying a few bytes costs as much as making them. */
static inline char *place_for(struct out *out, size_t most, char *elsewhere)
{
    return out->room || most >= OUT_BUFFER - out->used ? elsewhere : out->buffer + out->used;
}

static inline void write_placed(struct out *out, const char *placed, size_t length)
{
    if (placed == out->buffer + out->used) out->used += length;
    else out_write(out, placed, length);
}

void out_number(struct out *out, uint64_t number)
{
    char elsewhere[NUMBER_DIGITS], *to = place_for(out, NUMBER_DIGITS, elsewhere);
    write_placed(out, to, number_write(to, number));
}

void out_int(struct out *out, int64_t number)
{
    out_write(out, "-", number < 0);
    out_number(out, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

void out_us(struct out *out, int64_t ns)
{
    char elsewhere[US_LENGTH], *to = place_for(out, US_LENGTH, elsewhere);
    write_placed(out, to, us_write(to, ns));
}

void out_hex(struct out *out, uint64_t number)
{
    static const char digits[] = "0123456789abcdef";
    char elsewhere[18], *to = place_for(out, sizeof elsewhere, elsewhere);
    size_t length = 2 + (67 - (size_t)__builtin_clzll(number | 1)) / 4;
    to[0] = '0';
    to[1] = 'x';
    for (size_t at = length; at > 2; number >>= 4) to[--at] = digits[number & 15];
    write_placed(out, to, length);
}

void out_ms(struct out *out, int64_t ns)
{
    uint64_t whole = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    unsigned rest = (unsigned)(whole % 1000000);
    char fraction[7] = {'.'};
    for (size_t i = sizeof fraction - 1; i; i--, rest /= 10) fraction[i] = (char)('0' + rest % 10);
    if (ns < 0) out_write(out, "-", 1);
    out_number(out, whole / 1000000);
    out_write(out, fraction, sizeof fraction);
}
