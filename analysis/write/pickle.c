/* pickle.c - writes the opcodes of Python's pickle protocol 2 for plain data; its numbers are little-endian. */
#include "write/pickle.h"

#include <endian.h>
#include <string.h>

#include "utf8.h"

static void put(struct pickle *pickle, const char *opcode)
{
    out_puts(pickle->out, opcode);
}

static void put32(struct pickle *pickle, uint32_t number)
{
    uint32_t bytes = htole32(number);
    out_write(pickle->out, (const char *)&bytes, sizeof bytes);
}

void pickle_begin(struct pickle *pickle, struct out *out)
{
    *pickle = (struct pickle){.out = out};
    put(pickle, "\x80\x02");
}

void pickle_end(struct pickle *pickle)
{
    put(pickle, ".");
}

void pickle_open_dict(struct pickle *pickle)
{
    put(pickle, "}(");
}

void pickle_close_dict(struct pickle *pickle)
{
    put(pickle, "u");
}

void pickle_open_list(struct pickle *pickle)
{
    put(pickle, "](");
}

void pickle_close_list(struct pickle *pickle)
{
    put(pickle, "e");
}

static const char *const no_character = "\xef\xbf\xbd";

void pickle_text(struct pickle *pickle, const char *bytes, size_t length)
{
    const char *end = bytes + length;
    size_t total = 0, n;
    for (const char *p = bytes; p < end; p += n ? n : 1) {
        n = tfi_utf8_length(p, (size_t)(end - p));
        total += n ? n : strlen(no_character);
    }
    put(pickle, "X");
    put32(pickle, (uint32_t)total);
    for (const char *p = bytes; p < end; p += n ? n : 1) {
        n = tfi_utf8_length(p, (size_t)(end - p));
        out_write(pickle->out, n ? p : no_character, n ? n : strlen(no_character));
    }
}

void pickle_key(struct pickle *pickle, const char *text)
{
    pickle_text(pickle, text, strlen(text));
}

void pickle_int(struct pickle *pickle, int64_t number)
{
    uint64_t bytes = htole64((uint64_t)number);
    if (number >= INT32_MIN && number <= INT32_MAX) {
        put(pickle, "J");
        put32(pickle, (uint32_t)number);
        return;
    }
    put(pickle, "\x8a\x08");
    out_write(pickle->out, (const char *)&bytes, sizeof bytes);
}

void pickle_bool(struct pickle *pickle, bool value)
{
    put(pickle, value ? "\x88" : "\x89");
}

uint32_t pickle_remember(struct pickle *pickle)
{
    put(pickle, "r");
    put32(pickle, pickle->remembered);
    return pickle->remembered++;
}

void pickle_again(struct pickle *pickle, uint32_t number)
{
    put(pickle, "j");
    put32(pickle, number);
}
