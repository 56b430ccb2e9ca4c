/* strict.c - checks JSON token by token; the open brackets are bits of an array, so nothing recurses.
 *
 * The tolerant readers of traces accept more than JSON, so that damaged traces can be read. A file that other
 * programs read gets only what passes this check.
 */
#include "read/json/strict.h"

#include <ctype.h>
#include <string.h>

#include "utf8.h"

struct checker {
    const char *at, *end;
    size_t depth;
    bool is_object[JSON_DEPTH];
};

static bool is_digit(const struct checker *c)
{
    return c->at < c->end && *c->at >= '0' && *c->at <= '9';
}

static bool check_digits(struct checker *c)
{
    bool some = is_digit(c);
    while (is_digit(c)) c->at++;
    return some;
}

static bool check_byte(struct checker *c, char byte)
{
    bool there = c->at < c->end && *c->at == byte;
    c->at += there;
    return there;
}

static bool check_number(struct checker *c)
{
    check_byte(c, '-');
    if (!check_byte(c, '0') && !check_digits(c)) return false;
    if (check_byte(c, '.') && !check_digits(c)) return false;
    if (c->at < c->end && (*c->at | 0x20) == 'e') {
        c->at++;
        if (!check_byte(c, '-')) check_byte(c, '+');
        return check_digits(c);
    }
    return true;
}

static bool check_word(struct checker *c)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        size_t length = strlen(words[i]);
        if ((size_t)(c->end - c->at) >= length && memcmp(c->at, words[i], length) == 0) {
            c->at += length;
            return true;
        }
    }
    return false;
}

/* Takes the four digits of a \u escape. Returns its code, -1 if they are not there. */
static int check_code(struct checker *c)
{
    int code = 0;
    for (int i = 0; i < 4; i++, c->at++) {
        if (c->at >= c->end || !isxdigit((unsigned char)*c->at)) return -1;
        code = 16 * code + (*c->at <= '9' ? *c->at - '0' : (*c->at | 0x20) - 'a' + 10);
    }
    return code;
}

/* Takes an escape from behind its backslash. A lone half of a surrogate pair is no character. */
static bool check_escape(struct checker *c)
{
    if (c->at >= c->end || !*c->at || !strchr("\"\\/bfnrtu", *c->at)) return false;
    if (*c->at++ != 'u') return true;
    int code = check_code(c);
    if (code < 0xd800 || code > 0xdfff) return code > 0;
    if (code > 0xdbff || !check_byte(c, '\\') || !check_byte(c, 'u')) return false;
    code = check_code(c);
    return code >= 0xdc00 && code <= 0xdfff;
}

/* Skips ASCII characters of a string that may stand there as they are, sixteen at a time. */
static void skip_plain(struct checker *c)
{
    const tfi_sixteen space = tfi_sixteen_of(' '), quote = tfi_sixteen_of('"'), escape = tfi_sixteen_of('\\');
    for (; c->end - c->at >= 16; c->at += 16) {
        tfi_sixteen bytes = tfi_sixteen_at(c->at);
        unsigned found =
            tfi_sixteen_bits((bytes == quote) | (bytes == escape) | (bytes < space)); /* 0x80 is negative */
        if (found) {
            c->at += __builtin_ctz(found);
            return;
        }
    }
}

/* Takes a string from behind its opening quote. */
static bool check_string(struct checker *c)
{
    while (skip_plain(c), c->at < c->end) {
        unsigned char byte = (unsigned char)*c->at;
        size_t length = byte < 0x80 ? 1 : tfi_utf8_length(c->at, (size_t)(c->end - c->at));
        c->at += length;
        if (byte == '"') return true;
        if (byte < ' ' || !length || (byte == '\\' && !check_escape(c))) return false;
    }
    return false;
}

static void skip_space(struct checker *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r')) c->at++;
}

static bool check_scalar(struct checker *c)
{
    if (check_byte(c, '"')) return check_string(c);
    return *c->at == '-' || is_digit(c) ? check_number(c) : check_word(c);
}

/* Takes what follows a value: the ends of the objects and lists that it closes, and a comma. Returns false at the end of
 * the whole, and at an error. */
static bool check_ends(struct checker *c)
{
    while (c->depth) {
        skip_space(c);
        if (check_byte(c, ',')) return true;
        if (!check_byte(c, c->is_object[c->depth - 1] ? '}' : ']')) return false;
        c->depth--;
    }
    return false;
}

/* Takes the key of a member, and its colon. */
static bool check_key(struct checker *c)
{
    skip_space(c);
    if (!check_byte(c, '"') || !check_string(c)) return false;
    skip_space(c);
    return check_byte(c, ':');
}

/* Passes the bracket that opens an object or a list. Of an empty one it passes the end too, and sets *value. */
static bool check_open(struct checker *c, bool *value)
{
    bool is_object = *c->at++ == '{';
    if (c->depth == JSON_DEPTH) return false;
    skip_space(c);
    *value = check_byte(c, is_object ? '}' : ']');
    if (!*value) c->is_object[c->depth++] = is_object;
    return true;
}

bool json_is_strict(struct slice json)
{
    struct checker c;
    c.at = json.at;
    c.end = json.at + json.length;
    c.depth = 0;
    do {
        bool value;
        do {
            value = true;
            if (c.depth && c.is_object[c.depth - 1] && !check_key(&c)) return false;
            if (c.depth) skip_space(&c);
            if (c.at == c.end) return false;
            if (*c.at != '{' && *c.at != '[' ? !check_scalar(&c) : !check_open(&c, &value)) return false;
        } while (!value);
    } while (check_ends(&c));
    return !c.depth && c.at == c.end;
}
