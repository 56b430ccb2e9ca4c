/* escape.c - escapes texts of a trace so that they cannot act on a terminal or in a spreadsheet. */
#include "base/escape.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "sixteen.h"
#include "utf8.h"

bool is_unsafe(const char *p, const char *end, size_t *length, uint32_t *code)
{
    const unsigned char *u = (const unsigned char *)p;
    if (u[0] >= 0x20 && u[0] < 0x7f) { /* the common case */
        *length = 1;
        *code = u[0];
        return false;
    }
    return tfi_utf8_acts(p, (size_t)(end - p), length, code);
}

void text_visible(struct text *text, const char *bytes, size_t length)
{
    const char *end = bytes + length, *plain = bytes;
    for (const char *p = bytes; p < end;) {
        size_t step;
        uint32_t code;
        if (!is_unsafe(p, end, &step, &code)) {
            p += step;
            continue;
        }
        text_add(text, plain, (size_t)(p - plain));
        if (step > 1) text_format(text, "\\u%04x", code);
        else text_format(text, "\\x%02x", (unsigned char)*p);
        p += step ? step : 1;
        plain = p;
    }
    text_add(text, plain, (size_t)(end - plain));
}

/* Skips bytes that need no escape in JSON, sixteen at a time. Stops at most 15 bytes before the end. */
static const char *skip_plain(const char *p, const char *end)
{
    const tfi_sixteen space = tfi_sixteen_of(' '), delete = tfi_sixteen_of(0x7f);
    const tfi_sixteen tab = tfi_sixteen_of('\t'), newline = tfi_sixteen_of('\n'), carriage = tfi_sixteen_of('\r');
    for (; end - p >= 16; p += 16) {
        tfi_sixteen bytes = tfi_sixteen_at(p);
        tfi_sixteen odd = (bytes < space) | (bytes == delete); /* 0x80 is negative */
        tfi_sixteen between = (bytes == tab) | (bytes == newline) | (bytes == carriage);
        unsigned found = tfi_sixteen_bits(odd & ~between);
        if (found) return p + __builtin_ctz(found);
    }
    return p;
}

/* Returns the first character of JSON that needs an escape, or `end`. Few byte values begin one. Newlines, carriage
 * returns and tabs are skipped: they stand outside of strings. */
static const char *next_unsafe_character(const char *p, const char *end, size_t *length, uint32_t *code)
{
    for (p = skip_plain(p, end); p < end; p++) {
        unsigned char c = (unsigned char)*p;
        bool looks =
            c == 0xc2 || c == 0xd8 || c == 0xe2 || c == 0x7f || (c < 0x20 && c != '\n' && c != '\r' && c != '\t');
        if (looks && is_unsafe(p, end, length, code) && *length) return p;
    }
    return end;
}

bool json_is_safe(const char *json, size_t length)
{
    size_t step;
    uint32_t code;
    return next_unsafe_character(json, json + length, &step, &code) == json + length;
}

void text_json(struct text *text, const char *json, size_t length)
{
    const char *end = json + length;
    for (const char *p = json; p < end;) {
        size_t step = 0;
        uint32_t code = 0;
        const char *found = next_unsafe_character(p, end, &step, &code);
        text_add(text, p, (size_t)(found - p));
        if (found < end) text_format(text, "\\u%04x", code);
        p = found < end ? found + step : end;
    }
}

bool is_ascii(const char *text, size_t length)
{
    uint64_t word, all = 0;
    for (; length >= sizeof word; text += sizeof word, length -= sizeof word) {
        memcpy(&word, text, sizeof word);
        all |= word;
    }
    for (size_t i = 0; i < length; i++) all |= (unsigned char)text[i];
    return !(all & UINT64_C(0x8080808080808080));
}

void text_utf8(struct text *text, const char *bytes, size_t length)
{
    const char *end = bytes + length;
    for (const char *p = bytes; p < end;) {
        size_t step = tfi_utf8_length(p, (size_t)(end - p));
        text_add(text, step ? p : "\xef\xbf\xbd", step ? step : 3);
        p += step ? step : 1;
    }
}

/* Returns the number of the \uNNNN at `p`, -1 if there is none. */
static int escaped_code(const char *p, const char *end)
{
    char digits[5] = {0};
    if (end - p < 6 || p[0] != '\\' || p[1] != 'u') return -1;
    memcpy(digits, p + 2, 4);
    return strspn(digits, "0123456789abcdefABCDEF") == 4 ? (int)strtol(digits, NULL, 16) : -1;
}

/* Copies one escape of a string. Returns its length. */
static size_t add_escape(struct text *text, const char *p, const char *end)
{
    int code = escaped_code(p, end), low = code >= 0 ? escaped_code(p + 6, end) : -1;
    bool is_high = code >= 0xd800 && code < 0xdc00, is_pair = is_high && low >= 0xdc00 && low < 0xe000;
    bool is_lone = (is_high && !is_pair) || (code >= 0xdc00 && code < 0xe000) || code == 0;
    size_t length = is_pair ? 12 : code >= 0 ? 6 : MIN((size_t)(end - p), 2);
    text_add(text, is_lone ? "\\ufffd" : p, length);
    return length;
}

bool escapes_nothing(const char *text, size_t length)
{
    for (const char *p = text, *end = text + length; (p = memchr(p, '\\', (size_t)(end - p))) != NULL; p += 2) {
        if (end - p < 2 || !p[1] || !strchr("\"\\/bfnrtu", p[1])) return true;
        if (p[1] == 'u' && escaped_code(p, end) < 0) return true;
    }
    return false;
}

/* Returns the length of a string without its quotes, from behind the first one. */
static size_t string_length(const char *from, const char *end)
{
    const char *p = from;
    while (p < end && *p != '"') p += *p == '\\' && end - p > 1 ? 2 : 1;
    return (size_t)(p - from);
}

/* Returns the length of a number word that strict JSON lacks, 0 if there is none. */
static size_t number_word(const char *p, const char *end)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        size_t length = strlen(words[i]);
        if ((size_t)(end - p) >= length && memcmp(p, words[i], length) == 0) return length;
    }
    return 0;
}

void text_strict_json(struct text *text, const char *json, size_t length)
{
    struct text utf8 = {0};
    bool in_string = false, is_plain = false; /* a string in which backslashes are backslashes */
    text_utf8(&utf8, json, length);
    const char *end = utf8.data + utf8.length;
    for (const char *p = utf8.data; p < end;) {
        size_t word = in_string ? 0 : number_word(p, end);
        if (word) {
            text_puts(text, "null");
            p += word;
        } else if (in_string && *p == '\\' && is_plain && end - p > 1 && p[1] != '"') {
            text_puts(text, "\\\\");
            p++;
        } else if (in_string && *p == '\\') {
            p += add_escape(text, p, end);
        } else if (in_string && *p > 0 && *p < ' ') {
            text_format(text, "\\u%04x", (unsigned)*p++);
        } else {
            in_string ^= *p == '"';
            if (in_string && *p == '"') is_plain = escapes_nothing(p + 1, string_length(p + 1, end));
            text_add(text, p++, 1);
        }
    }
    text_free(&utf8);
}

bool is_formula(const char *text, size_t length)
{
    if (!length || !strchr("=+-@\t\r", *text) || !*text) return false;
    char *end;
    bool is_number = length > 1 && (isdigit((unsigned char)text[1]) || text[1] == '.');
    strtod(text, &end);
    return !(is_number && *text != '=' && *text != '@' && end == text + length);
}

bool begins_character(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

size_t characters(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++) count += begins_character(text[i]);
    return count;
}

size_t characters_bytes(const char *text, size_t length, size_t count)
{
    size_t at = 0;
    for (; at < length && (count || !begins_character(text[at])); at++) count -= begins_character(text[at]);
    return at;
}

void text_quoted(struct text *text, const char *bytes, size_t length)
{
    text_puts(text, "\"");
    for (size_t i = 0, from = 0; i <= length; i++) {
        if (i == length || bytes[i] == '"' || bytes[i] == '\\') {
            text_visible(text, bytes + from, i - from);
            text_puts(text, i < length ? "\\" : "");
            from = i;
        }
    }
    text_puts(text, "\"");
}

void text_csv(struct text *text, const char *bytes, size_t length, bool formula)
{
    bool quote = false;
    for (size_t i = 0; i < length; i++) quote |= strchr(",\"\r\n", bytes[i]) != NULL;
    text_puts(text, quote ? "\"" : "");
    text_puts(text, formula ? "'" : "");
    for (size_t i = 0; i < length; i++) {
        text_add(text, "\"\"", bytes[i] == '"' && quote);
        text_add(text, bytes + i, 1);
    }
    text_puts(text, quote ? "\"" : "");
}
