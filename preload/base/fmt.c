/* fmt.c - formats text without stdio, which may allocate and takes locks of the program's streams. */
#include "base/fmt.h"

#include <stdbool.h>
#include <string.h>

#include "utf8.h"

struct out {
    char *data;
    size_t size;
    size_t used;
};

static void put(struct out *out, char c)
{
    if (out->used + 1 < out->size) out->data[out->used++] = c;
}

static void put_number(struct out *out, uint64_t value, unsigned base)
{
    char digits[24];
    int n = 0;
    do {
        digits[n++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value);
    while (n) put(out, digits[--n]);
}

static void put_signed(struct out *out, int64_t value)
{
    if (value < 0) put(out, '-');
    put_number(out, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 10);
}

size_t tfi_vfmt(char *buf, size_t size, const char *format, va_list args)
{
    struct out out = {buf, size, 0};
    for (const char *f = format; *f; f++) {
        if (*f != '%') {
            put(&out, *f);
            continue;
        }
        bool wide = f[1] == 'l';
        f += wide ? 2 : 1;
        switch (*f) {
        case 's':
            for (const char *s = va_arg(args, const char *); s && *s; s++) put(&out, *s);
            break;
        case 'c': put(&out, (char)va_arg(args, int)); break;
        case 'd': put_signed(&out, wide ? va_arg(args, long) : va_arg(args, int)); break;
        case 'u': put_number(&out, wide ? va_arg(args, unsigned long) : va_arg(args, unsigned), 10); break;
        case 'x': put_number(&out, wide ? va_arg(args, unsigned long) : va_arg(args, unsigned), 16); break;
        case 0: f--; break;
        default: put(&out, *f);
        }
    }
    if (size) buf[out.used] = 0;
    return out.used;
}

size_t tfi_fmt(char *buf, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t n = tfi_vfmt(buf, size, format, args);
    va_end(args);
    return n;
}

void tfi_text_bytes(struct tfi_text *text, const void *bytes, size_t count)
{
    if (text->full || count > text->size - text->used) {
        text->full = 1;
        return;
    }
    memcpy(text->data + text->used, bytes, count);
    text->used += count;
}

void tfi_text_add(struct tfi_text *text, const char *format, ...)
{
    char piece[512];
    va_list args;
    va_start(args, format);
    size_t n = tfi_vfmt(piece, sizeof piece, format, args);
    va_end(args);
    tfi_text_bytes(text, piece, n);
}

void tfi_text_json(struct tfi_text *text, const char *bytes, size_t count)
{
    const unsigned char *s = (const unsigned char *)bytes;
    tfi_text_bytes(text, "\"", 1);
    for (size_t i = 0; i < count;) {
        size_t n = tfi_utf8_length(bytes + i, count - i);
        if (n == 0) {
            tfi_text_bytes(text, "\\ufffd", 6);
            n = 1;
        } else if (s[i] == '"' || s[i] == '\\') {
            tfi_text_add(text, "\\%c", s[i]);
        } else if (s[i] < 0x20 || s[i] == 0x7f) {
            tfi_text_add(text, "\\u00%c%c", "0123456789abcdef"[s[i] >> 4], "0123456789abcdef"[s[i] & 15]);
        } else {
            tfi_text_bytes(text, s + i, n);
        }
        i += n;
    }
    tfi_text_bytes(text, "\"", 1);
}

void tfi_text_plain(char *text, size_t count)
{
    for (size_t i = 0; i < count;) {
        size_t length;
        uint32_t code;
        bool acts = tfi_utf8_acts(text + i, count - i, &length, &code);
        if (!length) length = 1;
        if (acts) memset(text + i, '?', length);
        i += length;
    }
}

void tfi_text_ms(struct tfi_text *text, uint64_t ns)
{
    char digits[7];
    uint64_t rest = ns % 1000000;
    for (int i = 5; i >= 0; i--) {
        digits[i] = (char)('0' + rest % 10);
        rest /= 10;
    }
    digits[6] = 0;
    tfi_text_add(text, "%lu.%s", (unsigned long)(ns / 1000000), digits);
}
