/* command.c - writes the command line for the trace's header, without passwords, tokens, secrets and keys.
 *
 * A value is left out if its name looks like a secret's: the name of an option (--api-key=x, --hf_token x, -password
 * x), a variable (HF_TOKEN=x), a member in JSON ({"secret": "x"}) or a header (Authorization: Bearer x). The text
 * before the @ of a URL or of user:password@host is left out too. An argument may be a whole command (sh -c), and
 * programs that rewrite their command line leave one argument, so names are also searched for inside arguments. If
 * the end of a value is unclear, more is left out rather than less. With TFI_RECORD_VALUES=0 only the program's name
 * is kept.
 *
 * One thread reads the command line, when the process wakes. Its buffers are static because little stack may be left
 * then.
 */
#include "control/command.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "control/config.h"

#define LEFT_OUT "***"
#define CUT " ..."

/* ---- names ---- */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static bool is_letter(char c)
{
    return lower(c) >= 'a' && lower(c) <= 'z';
}

static bool is_word(char c)
{
    return is_letter(c) || (c >= '0' && c <= '9');
}

static bool is_name(char c)
{
    return is_word(c) || c == '-' || c == '_' || c == '.';
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_quote(char c)
{
    return c == '"' || c == '\'' || c == '`';
}

static bool equal(const char *at, const char *word, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (lower(at[i]) != word[i]) return false;
    return true;
}

static bool contains(const char *name, size_t count, const char *word)
{
    size_t length = strlen(word);
    for (size_t i = 0; i + length <= count; i++)
        if (equal(name + i, word, length)) return true;
    return false;
}

/* The end of the word of a name that begins at `from`: a sign, or a capital after a small letter, ends it. */
static size_t word_end(const char *name, size_t count, size_t from)
{
    size_t end = from;
    while (end < count && is_word(name[end]) &&
           !(end > from && name[end] >= 'A' && name[end] <= 'Z' && lower(name[end - 1]) == name[end - 1]))
        end++;
    return end;
}

enum word { PLAIN, SECRET, TOKENS, NUMBER };

static enum word kind_of(const char *word, size_t count)
{
    static const struct {
        const char *text;
        enum word kind;
        bool ends; /* longer words with this ending match too: hftoken, privatekey */
    } words[] = {
        {"token", SECRET, true}, {"key", SECRET, true},  {"keys", SECRET, true},   {"pass", SECRET, false},
        {"pwd", SECRET, true},   {"pw", SECRET, false},  {"auth", SECRET, false},  {"cookie", SECRET, false},
        {"sig", SECRET, false},  {"jwt", SECRET, false}, {"tokens", TOKENS, true}, {"max", NUMBER, false},
        {"min", NUMBER, false},  {"num", NUMBER, false}, {"new", NUMBER, false},   {"number", NUMBER, false},
        {"n", NUMBER, false},
    };
    for (size_t i = 0; i < TFI_COUNT(words); i++) {
        size_t length = strlen(words[i].text);
        if ((words[i].ends ? count >= length : count == length) && equal(word + count - length, words[i].text, length))
            return words[i].kind;
    }
    return PLAIN;
}

/* --tokens may be anything and counts as a secret. */
bool tfi_secret_name(const char *name, size_t count)
{
    static const char *const anywhere[] = {"password",   "passwd",        "passphrase", "passcode", "secret",
                                           "credential", "authorization", "bearer",     "signature"};
    bool tokens = false, number = false;
    for (size_t i = 0; i < TFI_COUNT(anywhere); i++)
        if (contains(name, count, anywhere[i])) return true;
    for (size_t from = 0; from < count;) {
        size_t end = word_end(name, count, from);
        enum word kind = kind_of(name + from, end - from);
        if (kind == SECRET) return true;
        tokens |= kind == TOKENS;
        number |= kind == NUMBER;
        from = end > from ? end : from + 1;
    }
    return tokens && !number;
}

/* True for a word that begins as the keys of a known service do. */
static bool looks_like_key(const char *word, size_t count)
{
    static const char *const begins[] = {"hf_",    "sk-",   "sk_",   "pk-",  "ghp_", "gho_", "ghs_",
                                         "glpat-", "xoxb-", "xoxp-", "AKIA", "ASIA", "eyJ",  "github_pat_"};
    enum { SHORTEST = 16 };
    for (size_t i = 0; i < TFI_COUNT(begins); i++) {
        size_t length = strlen(begins[i]);
        if (count >= SHORTEST && memcmp(word, begins[i], length) == 0) return true;
    }
    return false;
}

/* ---- one argument ---- */

struct argument {
    const char *at; /* its bytes */
    size_t count;
    struct tfi_text *to;
    unsigned left_out;
};

static size_t skip_blanks(const struct argument *a, size_t i)
{
    while (i < a->count && is_blank(a->at[i])) i++;
    return i;
}

static size_t end_of_word(const struct argument *a, size_t i)
{
    while (i < a->count && !is_blank(a->at[i]) && !is_quote(a->at[i])) i++;
    return i;
}

static size_t end_of_quote(const struct argument *a, size_t i, char quote, bool escaped)
{
    while (i < a->count && !(a->at[i] == quote && (escaped || a->at[i - 1] != '\\'))) i++;
    return i;
}

/* The end of a value that begins at `i` and extends as far as a shell's word. */
static size_t end_of_value(const struct argument *a, size_t i)
{
    bool escaped = i < a->count && a->at[i] == '\\';
    i += escaped;
    if (i < a->count && is_quote(a->at[i])) return end_of_quote(a, i + 1, a->at[i], escaped);
    return end_of_word(a, i);
}

static size_t leave_out(struct argument *a, size_t from, size_t value, size_t end)
{
    tfi_text_bytes(a->to, a->at + from, value - from);
    if (end > value) {
        tfi_text_bytes(a->to, LEFT_OUT, sizeof LEFT_OUT - 1);
        a->left_out++;
    }
    return end;
}

/* True for --name, which shows that the option before it has no value. */
static bool is_option(const char *at, size_t count)
{
    return count > 2 && at[0] == '-' && at[1] == '-' && is_letter(at[2]);
}

/* Writes a secret's name, from `i` to `end`, without its value; returns the end of the value. */
static size_t put_secret(struct argument *a, size_t i, size_t end, int *more)
{
    char before = 0;
    size_t sign = end, value;
    if (i) before = a->at[i - 1];
    while (sign < a->count && (is_quote(a->at[sign]) || a->at[sign] == '\\' || a->at[sign] == ']')) sign++;
    sign = skip_blanks(a, sign);
    bool listed = is_quote(before) && sign < a->count && a->at[sign] == ','; /* putenv("HF_TOKEN", "x") */
    if (sign < a->count && (a->at[sign] == '=' || a->at[sign] == ':' || listed)) {
        bool colon = a->at[sign] == ':';
        value = skip_blanks(a, sign + 1);
        if (i == 0) return leave_out(a, i, value, a->count);
        if (is_quote(before) && a->at[end] != before && a->at[end] != '\\')
            return leave_out(a, i, value, end_of_quote(a, value, before, true));
        bool quoted = value < a->count && (is_quote(a->at[value]) || a->at[value] == '\\');
        return leave_out(a, i, value, colon && !quoted ? a->count : end_of_value(a, value));
    }
    bool option = a->at[i] == '-' || (end - i == 6 && equal(a->at + i, "bearer", 6));
    value = skip_blanks(a, end);
    if (option && value == a->count) *more = true;
    if (option && value > end && !is_option(a->at + value, a->count - value))
        return leave_out(a, i, value, end_of_value(a, value));
    return leave_out(a, i, end, end);
}

/* Index of the @ behind a user and password that begin at `i`, 0 if there is none. */
static size_t find_at(const struct argument *a, size_t i)
{
    size_t found = 0;
    for (size_t end = end_of_word(a, i); i < end; i++)
        if (a->at[i] == '@') found = i;
    return found;
}

static size_t put_name(struct argument *a, size_t i, int *more)
{
    size_t end = i, at;
    while (end < a->count && is_name(a->at[end])) end++;
    if (looks_like_key(a->at + i, end - i)) return leave_out(a, i, i, end);
    if (tfi_secret_name(a->at + i, end - i)) return put_secret(a, i, end, more);
    bool colon = end < a->count && a->at[end] == ':';
    size_t value = end + (colon && a->count - end > 2 && memcmp(a->at + end, "://", 3) == 0 ? 3 : 1);
    if (colon && (at = find_at(a, value)) != 0) return leave_out(a, i, value, at);
    return leave_out(a, i, end, end);
}

unsigned tfi_command_argument(struct tfi_text *to, const char *bytes, size_t count, int *more)
{
    struct argument a = {bytes, count, to, 0};
    bool hidden = *more && !is_option(bytes, count);
    *more = false;
    for (size_t i = hidden ? leave_out(&a, 0, 0, count) : 0; i < count;) {
        if (is_name(bytes[i])) {
            i = put_name(&a, i, more);
        } else {
            char c = is_blank(bytes[i]) ? ' ' : bytes[i];
            tfi_text_bytes(to, &c, 1);
            i++;
        }
    }
    return a.left_out;
}

void tfi_secret_text(struct tfi_text *to, const char *bytes, size_t count)
{
    int more = false;
    for (size_t from = 0, end; from < count; from = end) {
        end = from + 1;
        bool blank = is_blank(bytes[from]);
        while (end < count && is_blank(bytes[end]) == blank) end++;
        const char *word = bytes + from;
        bool suspect = memmem(word, end - from, "://", 3) || contains(word, end - from, "authorization");
        for (size_t i = 0; i < end - from && !suspect; i++)
            suspect = (i == 0 || !is_name(word[i - 1])) && looks_like_key(word + i, end - from - i);
        if (suspect) tfi_command_argument(to, word, end - from, &more);
        else tfi_text_bytes(to, word, end - from);
    }
}

/* ---- the whole ---- */

static void add_pair(struct tfi_text *text, const char *key, const char *value, size_t length)
{
    tfi_text_bytes(text, key, strlen(key) + 1);
    tfi_text_bytes(text, value, length);
    tfi_text_bytes(text, "", 1);
}

static void add_program(struct tfi_text *text)
{
    static char path[4096];
    ssize_t n = tfi_readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) return;
    path[n] = 0;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    add_pair(text, "command", name, strlen(name));
}

/* Drops the last word of a command line that was read only in part: a secret can't be recognised in half a word. */
static size_t without_torn_word(const char *line, size_t length)
{
    while (length && line[length - 1] && !is_blank(line[length - 1])) length--;
    return length;
}

static void add_command(struct tfi_text *text)
{
    static char line[4096], shown[2048], digits[16];
    struct tfi_text to = {shown, sizeof shown - sizeof CUT, 0, 0};
    ssize_t n = tfi_read_file("/proc/self/cmdline", line, sizeof line);
    size_t length = n > 0 ? (size_t)n : 0;
    unsigned left_out = 0;
    int more = false;
    bool cut = length == sizeof line - 1;
    if (cut) length = without_torn_word(line, length);
    while (length && !line[length - 1]) length--;
    if (!length) return;
    for (size_t at = 0; at < length && !to.full;) {
        size_t count = strnlen(line + at, length - at);
        if (at) tfi_text_bytes(&to, " ", 1);
        left_out += tfi_command_argument(&to, line + at, count, &more);
        at += count + 1;
    }
    if (cut || to.full) {
        memcpy(shown + to.used, CUT, sizeof CUT - 1);
        to.used += sizeof CUT - 1;
    }
    add_pair(text, "command", shown, to.used);
    if (left_out) add_pair(text, "command.left_out", digits, tfi_fmt(digits, sizeof digits, "%u", left_out));
}

void tfi_command_header(struct tfi_text *text)
{
    add_pair(text, "values", tfi_config.record_values ? "1" : "0", 1);
    if (tfi_config.record_values) add_command(text);
    else add_program(text);
}
