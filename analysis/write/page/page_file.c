/* page_file.c - writes a page: the data are text while they are few, else gzip in base64. */
#include "write/page/page_file.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { PLAIN_MOST = 1 << 17, GZIP_WINDOW = 15 + 16 };

/* JSON has `<` in strings alone, where an escape stands for it. No data can end their element then. */
static void put_plain(struct out *out, const char *json, size_t length)
{
    size_t from = 0;
    for (size_t i = 0; i < length; i++) {
        if (json[i] != '<') continue;
        out_write(out, json + from, i - from);
        out_puts(out, "\\u003c");
        from = i + 1;
    }
    out_write(out, json + from, length - from);
}

static void put_base64(struct out *out, const unsigned char *bytes, size_t length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < length; i += 3) {
        size_t left = length - i;
        unsigned bits = (unsigned)bytes[i] << 16 | (left > 1 ? (unsigned)bytes[i + 1] << 8 : 0) |
                        (left > 2 ? (unsigned)bytes[i + 2] : 0);
        const char four[4] = {digits[bits >> 18], digits[bits >> 12 & 63], left > 1 ? digits[bits >> 6 & 63] : '=',
                              left > 2 ? digits[bits & 63] : '='};
        out_write(out, four, sizeof four);
    }
}

/* Deflates into a buffer that the caller frees. Returns NULL where that is impossible. */
static unsigned char *pack(const char *json, size_t length, size_t *packed)
{
    z_stream z = {0};
    if (length > UINT32_MAX / 2 || deflateInit2(&z, 9, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return NULL;
    size_t room = deflateBound(&z, (uLong)length);
    unsigned char *bytes = mem_resize(NULL, room, 1);
    z.next_in = (unsigned char *)json;
    z.avail_in = (unsigned)length;
    z.next_out = bytes;
    z.avail_out = (unsigned)room;
    bool good = deflate(&z, Z_FINISH) == Z_STREAM_END;
    *packed = z.total_out;
    deflateEnd(&z);
    if (good) return bytes;
    free(bytes);
    return NULL;
}

void page_begin(struct out *data, const char *kind)
{
    out_puts(data, "{\"kind\": \"");
    out_puts(data, kind);
    out_puts(data, "\", \"version\": ");
    out_json_string(data, TFI_VERSION, strlen(TFI_VERSION));
    out_puts(data, ", \"runs\": [");
}

void page_write(struct out *out, const char *json, size_t length)
{
    size_t size = 0;
    unsigned char *packed = length > PLAIN_MOST ? pack(json, length, &size) : NULL;
    out_puts(out, page_head);
    out_puts(out,
             packed ? "<script type=\"text/plain\" id=\"packed\">" : "<script type=\"application/json\" id=\"data\">");
    if (packed) put_base64(out, packed, size);
    else put_plain(out, json, length);
    out_puts(out, "</script>\n");
    out_puts(out, page_foot);
    free(packed);
}
