/* json.h - scans JSON in place: strings, numbers in fixed point, and values to skip.
 *
 * A zero and then quotes, STREAM_PAD bytes in all (stream.h), follow the text. So no step checks a bound, and a
 * position at or behind the end means that the text was cut. Inside a skipped value only errors that could hide its
 * end are detected. Nothing recurses.
 */
#ifndef TFA_JSON_H
#define TFA_JSON_H

#include <string.h>

#include "base/util.h"
#include "sixteen.h"

/* A piece of text without a terminating zero. */
struct slice {
    const char *at; /* NULL: no text */
    size_t length;
};

enum number_state { NUMBER_NONE, NUMBER_GOOD, NUMBER_TOO_LARGE };
struct number {
    uint64_t magnitude; /* UINT64_MAX if it is too large */
    bool negative;
    bool is_float; /* written with a point or an exponent */
    uint8_t state;
};

/* Reads a number, bare or inside a string, times 10^scale, rounded to the nearest whole. Returns the position behind
 * it; with NUMBER_NONE the position is `p`. */
const char *json_number(const char *p, unsigned scale, struct number *number);

/* Returns the position behind the value that begins at `p`, or NULL if it is invalid or cut (*stopped has the
 * position). */
const char *json_skip(const char *p, const char **stopped);

/* Resolves escapes; `to` has room for `length` bytes. Returns the number of bytes written. Invalid escapes are
 * copied unchanged. */
size_t json_unescape(char *to, const char *from, size_t length);

/* Iterates over the members of an object or the items of an array; start with `*at` set to its text. Returns false
 * at the end. */
bool json_next(struct slice *at, struct slice *key, struct slice *value);
/* Adds what must follow a text that is scanned. Returns the text without it. */
struct slice json_padded(struct text *text);
/* Compares a key with `text`, also if the key contains escapes. */
bool json_is_key(struct slice key, const char *text);
/* Returns the value of a member; a slice without `at` if it is absent. */
struct slice json_member(struct slice object, const char *key);
/* Returns the bytes of a string, or a number or word as written; NULL for other values. The caller frees it. */
char *json_text(struct slice value);
bool json_int(struct slice value, int64_t *result);
/* Returns a number, bare or in a string; NAN if it is none. */
double json_double(struct slice value);

/* State for skipping, in pieces, a value that is too large to hold. */
struct json_skipper {
    uint64_t depth;
    bool in_string, escaped, in_word;
};
/* Returns the position behind the value, or NULL if it continues. */
const char *json_skip_piece(struct json_skipper *skipper, const char *p, const char *end);

/* ---- hot: called many times per event ---- */

/* Compares byte for byte. */
static inline bool slice_is(struct slice slice, const char *text)
{
    size_t length = strlen(text);
    return slice.length == length && (!length || memcmp(slice.at, text, length) == 0); /* nothing may be at NULL */
}

static inline const char *json_space_more(const char *p)
{
    const tfi_sixteen one = tfi_sixteen_of(1), space = tfi_sixteen_of(' ');
    for (;; p += 16) {
        tfi_sixteen bytes = tfi_sixteen_at(p);
        unsigned others = tfi_sixteen_bits((bytes > space) | (bytes < one)); /* from 0x80 on a byte is negative */
        if (others) return p + __builtin_ctz(others);
    }
}

/* Skips white space. Other control characters are skipped too: valid text has none there. */
static inline const char *json_space(const char *p)
{
    if ((unsigned char)*p > ' ') return p;
    return (unsigned char)*++p > ' ' && p[-1] ? p : json_space_more(p - 1);
}

/* Finds the next quote or backslash. *is_escape comes from the vector masks, without waiting for the byte itself. */
static inline const char *json_quote_or_escape(const char *p, bool *is_escape)
{
    const tfi_sixteen quote = tfi_sixteen_of('"'), escape = tfi_sixteen_of('\\');
    for (;; p += 16) {
        tfi_sixteen bytes = tfi_sixteen_at(p);
        unsigned quotes = tfi_sixteen_bits(bytes == quote);
        unsigned escapes = tfi_sixteen_bits(bytes == escape);
        if (quotes | escapes) {
            *is_escape = (escapes & (quotes - 1)) != 0;
            return p + __builtin_ctz(quotes | escapes);
        }
    }
}

/* Returns the closing quote of a string; `p` is behind its opening quote. At or behind the end if the string is cut. */
static inline const char *json_string_end(const char *p, bool *escaped)
{
    bool is_escape;
    p = json_quote_or_escape(p, &is_escape);
    while (__builtin_expect(is_escape, 0)) {
        *escaped = true;
        p = json_quote_or_escape(p + 2, &is_escape);
    }
    return p;
}

#endif
