/* json.h - scans JSON where it lies: strings, numbers in fixed point, and values that nobody wants.
 *
 * Behind the text stand a zero and then quotes, STREAM_PAD bytes in all (stream.h): so no step looks at a bound, and a
 * place at the end or behind it means that the text was cut. What is wrong inside a value that is skipped is found as
 * far as it could hide where the value ends. Nothing recurses.
 */
#ifndef TFA_JSON_H
#define TFA_JSON_H

#include <emmintrin.h>

#include "util.h"

/* A piece of text; without a terminating zero. */
struct slice {
    const char *at; /* NULL: none */
    size_t length;
};

enum number_state { NUMBER_NONE, NUMBER_GOOD, NUMBER_TOO_LARGE };
struct number {
    uint64_t magnitude; /* UINT64_MAX if it is too large */
    bool negative;
    bool is_float; /* written with a point or an exponent */
    uint8_t state;
};

/* A number, as it is or in a string, times 10^scale, rounded to the nearest whole. Returns the place behind it; with
 * NUMBER_NONE the place is `p`. */
const char *json_number(const char *p, unsigned scale, struct number *number);

/* Behind the value that begins at `p`, or NULL: it makes no sense, or is cut (`*stopped` tells where). */
const char *json_skip(const char *p, const char **stopped);

/* Resolves escapes; `to` has room for `length` bytes. Returns how many were written. What is no escape stays as it is. */
size_t json_unescape(char *to, const char *from, size_t length);

/* The members of an object, or the items of an array, one by one; start with `*at` being its text. False at the end. */
bool json_next(struct slice *at, struct slice *key, struct slice *value);
/* Is it this key, also where it is written with escapes? */
bool json_is_key(struct slice key, const char *text);
/* The value of a member, or one without `at`. */
struct slice json_member(struct slice object, const char *key);
/* A string's bytes, a number or a word as it stands, and NULL for the rest; to be freed. */
char *json_text(struct slice value);
bool json_int(struct slice value, int64_t *result);

/* To go over a value in pieces, where it is too large to be held. */
struct json_skipper {
    uint64_t depth;
    bool in_string, escaped, in_word;
};
/* Behind the value, or NULL: it goes on. */
const char *json_skip_piece(struct json_skipper *skipper, const char *p, const char *end);

/* ---- in every event, many times ---- */

static inline const char *json_space_more(const char *p)
{
    const __m128i zero = _mm_setzero_si128(), space = _mm_set1_epi8(' ');
    for (;; p += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)p);
        __m128i low = _mm_cmpeq_epi8(_mm_max_epu8(bytes, space), space); /* of these only a zero is no space */
        unsigned is_space = (unsigned)_mm_movemask_epi8(_mm_andnot_si128(_mm_cmpeq_epi8(bytes, zero), low));
        if (is_space != 0xffff) {
            return p + __builtin_ctz(~is_space);
        }
    }
}

/* Behind white space. Other control characters are taken for it as well: no valid text has them there. */
static inline const char *json_space(const char *p)
{
    if ((unsigned char)*p > ' ') {
        return p;
    }
    return (unsigned char)*++p > ' ' && p[-1] ? p : json_space_more(p - 1);
}

/* The next quote or backslash; which of them is told without waiting for the byte itself. */
static inline const char *json_quote_or_escape(const char *p, bool *is_escape)
{
    const __m128i quote = _mm_set1_epi8('"'), escape = _mm_set1_epi8('\\');
    for (;; p += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)p);
        unsigned quotes = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, quote));
        unsigned escapes = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, escape));
        if (quotes | escapes) {
            *is_escape = (escapes & (quotes - 1)) != 0;
            return p + __builtin_ctz(quotes | escapes);
        }
    }
}

/* The closing quote of a string that begins at `p`, behind its opening one; at or behind the end if it is cut. */
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
