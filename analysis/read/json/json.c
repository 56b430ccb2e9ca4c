/* json.c - parses numbers, resolves escapes, and skips values.
 *
 * This table is the reason for a scanner of our own. Each row extracts the same members of each event from the same
 * files, behind the same inflating thread (stream.c), on 2 virtual cores. CPU time of all threads, least of several
 * runs, and peak memory:
 *
 *                               53.7 MB, 216,092 events      1.08 GB, 4,321,840 events
 *   zlib alone, one thread          40 ms     2 MB                970 ms      2 MB
 *   this scanner                    80 ms     4 MB              1,760 ms      4 MB
 *   the same, with the model        90 ms     7 MB              1,960 ms     85 MB
 *   yajl 2.1 (callbacks)           220 ms     4 MB              4,470 ms      4 MB
 *   simdjson 3.0 (on demand)       150 ms   105 MB              3,000 ms  2,050 MB
 *
 * simdjson needs the whole text in memory, and C++; yajl copies. With both cores free, inflating and scanning overlap:
 * reading events takes 1.3 to 1.4 times zlib's wall time, reading into the model 1.6 to 1.7 (scripts/bench/kineto).
 */
#include "read/json/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "read/stream/stream.h"
#include "utf8.h"

/* ---- numbers ---- */

static inline bool is_digit(char c)
{
    return (unsigned char)(c - '0') < 10;
}

/* A decimal number, with as many digits as rounding needs. */
struct decimal {
    unsigned __int128 digits;
    int64_t exponent; /* the value is digits * 10^exponent */
};

enum { MOST_EXPONENT = 100000 };

static const char *take_digits(const char *p, struct decimal *d, bool fraction)
{
    const unsigned __int128 most = (unsigned __int128)1000000000000000 * 1000000000000000; /* 10^30 */
    for (; is_digit(*p); p++) {
        bool kept = d->digits < most / 10;
        d->digits = kept ? 10 * d->digits + (unsigned)(*p - '0') : d->digits;
        d->exponent += kept ? -fraction : !fraction;
    }
    return p;
}

/* Rounds digits * 10^exponent to the nearest integer. Returns false if it is too large. */
static bool settle_decimal(struct decimal d, uint64_t *magnitude)
{
    for (; d.exponent > 0 && d.digits; d.exponent--) {
        d.digits *= 10;
        if (d.digits > UINT64_MAX) return false;
    }
    for (; d.exponent < -1 && d.digits; d.exponent++) d.digits /= 10;
    if (d.exponent < 0) d.digits = (d.digits + 5) / 10;
    *magnitude = (uint64_t)d.digits;
    return d.digits <= UINT64_MAX;
}

static const char *take_exponent(const char *p, int64_t *exponent)
{
    bool negative = p[1] == '-';
    const char *digits = p + 1 + (p[1] == '-' || p[1] == '+');
    int64_t value = 0;
    if (!is_digit(*digits)) return p;
    for (p = digits; is_digit(*p); p++) value = MIN(10 * value + (*p - '0'), MOST_EXPONENT);
    *exponent += negative ? -value : value;
    return p;
}

/* Parses any number, from behind its sign. */
static const char *slow_number(const char *p, unsigned scale, struct number *number)
{
    struct decimal d = {.exponent = scale};
    const char *start = p;
    p = take_digits(p, &d, false);
    if (*p == '.' && (p > start || is_digit(p[1]))) {
        number->is_float = true;
        p = take_digits(p + 1, &d, true);
    }
    if (p > start && (*p == 'e' || *p == 'E')) {
        number->is_float = true;
        p = take_exponent(p, &d.exponent);
    }
    if (p > start) {
        number->state = settle_decimal(d, &number->magnitude) ? NUMBER_GOOD : NUMBER_TOO_LARGE;
        number->magnitude = number->state == NUMBER_GOOD ? number->magnitude : UINT64_MAX;
    }
    return p;
}

/* Parses up to eight digits at `p` at once by adding pairs, then fours, then both halves. Returns the number of
 * digits. */
static inline unsigned eight_digits(const char *p, uint64_t *value)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    v ^= UINT64_C(0x3030303030303030);
    uint64_t others = ((v + UINT64_C(0x0606060606060606)) | v) & UINT64_C(0xf0f0f0f0f0f0f0f0);
    unsigned count = others ? (unsigned)__builtin_ctzll(others) / 8 : 8;
    v = count ? v << (64 - 8 * count) : 0; /* leading zeros fill the word */
    v = (v * 2561) >> 8;
    v = ((v & UINT64_C(0x00ff00ff00ff00ff)) * 6553601) >> 16;
    *value = ((v & UINT64_C(0x0000ffff0000ffff)) * UINT64_C(42949672960001)) >> 32;
    return count;
}

/* A number that one of these follows has an exponent, or more digits than plain_number takes. */
static const bool goes_on[256] = {['0' ... '9'] = true, ['.'] = true, ['e'] = true, ['E'] = true};

static inline const char *plain_number(const char *p, unsigned scale, struct number *number)
{
    static const uint64_t powers[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    number->negative = *p == '-';
    const char *start = p + number->negative, *q = start;
    uint64_t value, part;
    unsigned count = eight_digits(q, &value), left = scale;
    q += count;
    if (count == 8) {
        count = eight_digits(q, &part);
        value = value * powers[count] + part;
        q += count;
    }
    if (*q == '.' && q > start && (count = eight_digits(q + 1, &part)) <= scale) {
        number->is_float = true;
        value = value * powers[count] + part;
        left -= count;
        q += 1 + count;
    }
    bool plain = q > start && scale <= 3 && !goes_on[(unsigned char)*q];
    if (__builtin_expect(!plain, 0)) {
        q = slow_number(start, scale, number);
        return q > start ? q : p;
    }
    number->magnitude = value * powers[left];
    number->state = NUMBER_GOOD;
    return q;
}

const char *json_number(const char *p, unsigned scale, struct number *number)
{
    *number = (struct number){0};
    if (*p != '"') return plain_number(p, scale, number);
    const char *q = plain_number(p + 1, scale, number);
    if (q == p + 1 || *q != '"') {
        *number = (struct number){0};
        return p;
    }
    return q + 1;
}

/* ---- skipping values ---- */

static const bool in_word[256] = {
    ['0' ... '9'] = true, ['a' ... 'z'] = true, ['A' ... 'Z'] = true, ['-'] = true, ['+'] = true, ['.'] = true,
};

/* Skips a number or a word (true, null, NaN, -Infinity). */
static const char *skip_word(const char *p)
{
    while (in_word[(unsigned char)*p]) p++;
    return p;
}

/* Returns the next quote or bracket. */
static const char *next_mark(const char *p)
{
    const tfi_sixteen quote = tfi_sixteen_of('"'), open = tfi_sixteen_of('{'), close = tfi_sixteen_of('}');
    const tfi_sixteen bit = tfi_sixteen_of(0x20); /* turns [ and ] into { and } */
    for (;; p += 16) {
        tfi_sixteen bytes = tfi_sixteen_at(p), curly = bytes | bit;
        unsigned found = tfi_sixteen_bits((curly == open) | (curly == close) | (bytes == quote));
        if (found) return p + __builtin_ctz(found);
    }
}

/* Skips a string inside a value. If anything but , : ] or } follows, a quote was lost: failing here keeps the rest
 * from being misread. */
static const char *skip_string(const char *p, const char **stopped)
{
    bool escaped;
    *stopped = p = json_space(json_string_end(p + 1, &escaped) + 1);
    return *p == ',' || *p == ':' || *p == ']' || *p == '}' ? p : NULL;
}

const char *json_skip(const char *p, const char **stopped)
{
    uint64_t kinds = 0; /* innermost 64 levels, one bit each: 1 for an object */
    size_t depth = 0;
    bool deep = false;
    *stopped = p;
    if (*p == '"') {
        bool escaped;
        *stopped = json_string_end(p + 1, &escaped) + 1;
        return *stopped;
    }
    if (*p != '{' && *p != '[') {
        *stopped = skip_word(p);
        return *stopped > p ? *stopped : NULL;
    }
    do {
        *stopped = p = next_mark(p);
        if (*p == '"') {
            if (!(p = skip_string(p, stopped))) return NULL;
        } else if (*p == '{' || *p == '[') {
            bool is_object = *p == '{';
            kinds = kinds << 1 | is_object;
            deep |= ++depth > 64;
            p++;
            if (!is_object) continue;
            *stopped = p = json_space(p);
            if (*p == ',') *stopped = p = json_space(p + 1);
            if (*p != '"' && *p != '}') return NULL; /* a member was lost: what follows belongs to others */
        } else if ((*p == '}') != (kinds & 1) && !deep) {
            return NULL;
        } else {
            kinds >>= 1;
            depth--;
            p++;
        }
    } while (depth);
    *stopped = p;
    return p;
}

const char *json_skip_piece(struct json_skipper *s, const char *p, const char *end)
{
    for (; p < end; p++) {
        char c = *p;
        if (s->in_string) {
            s->in_string = c != '"' || s->escaped;
            s->escaped = c == '\\' && !s->escaped;
            if (!s->in_string && !s->depth) return p + 1;
        } else if (s->in_word && (c == ',' || c == '}' || c == ']' || (unsigned char)c <= ' ')) {
            return p;
        } else if (c == '"') {
            s->in_string = true;
            s->escaped = false;
        } else if (c == '{' || c == '[') {
            s->depth++;
        } else if (c == '}' || c == ']') {
            if (!s->depth || !--s->depth) return p + 1;
        } else {
            s->in_word = !s->depth && (unsigned char)c > ' ';
        }
    }
    return NULL;
}

/* ---- strings ---- */

static int hex4(const char *p, const char *end)
{
    int value = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int c = p[i] | 0x20;
        int digit = is_digit(p[i]) ? p[i] - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return -1;
        value = 16 * value + digit;
    }
    return value;
}

/* Resolves one \u escape, or the two of a surrogate pair. A lone surrogate becomes three bytes that are not valid
 * UTF-8. */
static size_t unescape_unicode(char *to, const char **from, const char *end)
{
    int c = hex4(*from + 2, end);
    if (c < 0) {
        *to = *(*from)++;
        return 1;
    }
    *from += 6;
    if (c >= 0xd800 && c < 0xdc00 && end - *from >= 6 && (*from)[0] == '\\' && (*from)[1] == 'u') {
        int low = hex4(*from + 2, end);
        if (low >= 0xdc00 && low < 0xe000) {
            *from += 6;
            c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    return tfi_utf8_put(to, (uint32_t)c);
}

size_t json_unescape(char *to, const char *from, size_t length)
{
    static const char codes[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    const char *end = from + length, *start = to;
    if (escapes_nothing(from, length)) { /* but a quote, or the text would end there */
        for (; from < end; from++)
            if (*from != '\\' || end - from < 2 || from[1] != '"') *to++ = *from;
        return (size_t)(to - start);
    }
    while (from < end) {
        const char *code = *from == '\\' && end - from >= 2 && from[1] ? strchr(codes, from[1]) : NULL;
        if (code) {
            *to++ = bytes[code - codes];
            from += 2;
        } else if (*from == '\\' && end - from >= 2 && from[1] == 'u') {
            to += unescape_unicode(to, &from, end);
        } else {
            *to++ = *from++;
        }
    }
    return (size_t)(to - start);
}

/* ---- small objects, member by member ---- */

bool json_next(struct slice *at, struct slice *key, struct slice *value)
{
    const char *p = at->at, *end = at->length ? p + at->length : p, *stopped; /* an empty slice may have no `at` */
    bool escaped, inside = at->length && (*p == '{' || *p == '[' || *p == ',');
    p = inside ? json_space(p + 1) : end;
    *key = (struct slice){0};
    if (p < end && *p == '"') {
        const char *quote = json_string_end(p + 1, &escaped), *colon = quote < end ? json_space(quote + 1) : end;
        if (colon < end && *colon == ':') {
            *key = (struct slice){p + 1, (size_t)(quote - p - 1)};
            p = json_space(colon + 1);
        }
    }
    const char *after = p < end ? json_skip(p, &stopped) : NULL;
    if (!after || after > end) return false;
    *value = (struct slice){p, (size_t)(after - p)};
    after = json_space(after);
    *at = (struct slice){MIN(after, end), (size_t)(end - MIN(after, end))};
    return true;
}

struct slice json_padded(struct text *text)
{
    static const char pad[STREAM_PAD] = {0};
    size_t length = text->length;
    text_add(text, pad, sizeof pad);
    memset(text->data + length + 1, '"', STREAM_PAD - 1);
    return (struct slice){text->data, length};
}

bool json_is_key(struct slice key, const char *text)
{
    char plain[128];
    size_t length = strlen(text);
    if (key.at && key.length > length && key.length <= sizeof plain)
        key = (struct slice){plain, json_unescape(plain, key.at, key.length)};
    return key.at && slice_is(key, text);
}

struct slice json_member(struct slice object, const char *key)
{
    struct slice name, value, found = {0};
    while (json_next(&object, &name, &value))
        if (json_is_key(name, key)) found = value;
    return found;
}

char *json_text(struct slice value)
{
    if (!value.length || *value.at == '{' || *value.at == '[') return NULL;
    if (*value.at != '"') return mem_text(value.at, value.length);
    char *text = mem_text(value.at, value.length);
    text[json_unescape(text, value.at + 1, value.length - 2)] = 0;
    return text;
}

bool json_int(struct slice value, int64_t *result)
{
    struct number number;
    if (!value.length) return false;
    json_number(value.at, 0, &number);
    if (number.state != NUMBER_GOOD || number.magnitude > INT64_MAX) return false;
    *result = number.negative ? -(int64_t)number.magnitude : (int64_t)number.magnitude;
    return true;
}

double json_double(struct slice value)
{
    char *text = json_text(value), *end = text;
    double number = text ? strtod(text, &end) : NAN;
    if (end == text) number = NAN;
    free(text);
    return number;
}
