/* kernel_names.c - shortens kernel names.
 *
 * `void at::native::elementwise_kernel<128, 2, F>(int, F)` becomes at::native::elementwise_kernel. The only template
 * argument of a CUTLASS kernel carries its meaning, so it stays.
 */
#include "base/kernel_names.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_MANGLED = 1024, LONGEST_DEMANGLED = 1 << 16 };

/* Declared here because it is the only function used from the C++ runtime; see LDLIBS_TOOL in the Makefile. It gives the text
 * piece by piece, keeps nothing but its stack, and returns 0 if the name is one. */
int __gcclibcxx_demangle_callback(const char *mangled, void (*take)(const char *piece, size_t length, void *context),
                                  void *context) __attribute__((weak));

struct demangled {
    struct text text;
    jmp_buf too_long;
};

static void take_piece(const char *piece, size_t length, void *context)
{
    struct demangled *to = context;
    if (length > LONGEST_DEMANGLED - to->text.length) longjmp(to->too_long, 1);
    text_add(&to->text, piece, length);
}

/* Longer names stay mangled, because Kineto leaves them mangled too (limit of the C++ runtime): both tools then use
 * the same names. A name may repeat its parts, and the repetition too: what would grow beyond LONGEST_DEMANGLED stays as it is. */
char *demangled_name(const char *name)
{
    struct demangled to = {0};
    if (strncmp(name, "_Z", 2) != 0 || strlen(name) > LONGEST_MANGLED || !__gcclibcxx_demangle_callback) return NULL;
    text_puts(&to.text, "");
    if (setjmp(to.too_long) == 0 && __gcclibcxx_demangle_callback(name, take_piece, &to) == 0) return to.text.data;
    text_free(&to.text);
    return NULL;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

const char *after_brackets(const char *p)
{
    int depth = 0;
    for (; *p; p++) {
        depth += strchr("<({[", *p) != NULL;
        depth -= strchr(">)}]", *p) != NULL && !(*p == '>' && p[-1] == '-');
        if (depth == 0) return p + 1;
    }
    return NULL;
}

static bool ends_in(const struct text *out, size_t from, const char *word)
{
    size_t length = strlen(word);
    return out->length - from >= length && memcmp(out->data + out->length - length, word, length) == 0;
}

/* Returns the length of the sign after `operator`, such as (), < or ->, which opens no bracket; 0 if there is none. */
static size_t operator_sign(const struct text *out, size_t from, const char *p)
{
    static const char *const signs[] = {"()", "<<=", ">>=", "<=>", "<<", ">>", "<=", ">=", "->*", "->", "<", ">"};
    for (size_t i = 0; ends_in(out, from, "operator") && i < ARRAY_SIZE(signs); i++)
        if (strncmp(p, signs[i], strlen(signs[i])) == 0) return strlen(signs[i]);
    return 0;
}

static bool says_what_it_is(const char *from, const char *to)
{
    for (const char *p = from; p < to; p++)
        if (!is_word(*p)) return false;
    return strncmp(from, "cutlass", strlen("cutlass")) == 0;
}

static void leave_out(struct left_outs *left, char bracket, size_t at, const char *from, const char *to)
{
    left->item = mem_grow(left->item, &left->capacity, left->count + 1, sizeof *left->item);
    left->item[left->count++] = (struct left_out){bracket, at, from, to};
}

/* Copies or skips the item at *p. Returns false if only parameters remain, or if the brackets do not match (*p is
 * NULL then). */
static bool shorten(const char **p, struct text *out, size_t from, struct left_outs *left)
{
    size_t sign = operator_sign(out, from, *p);
    bool follows_word = out->length > from && (is_word(out->data[out->length - 1]) || ends_in(out, from, "}") ||
                                               ends_in(out, from, "operator()") || ends_in(out, from, ">") ||
                                               ends_in(out, from, "operator<"));
    if (sign) {
        text_add(out, *p, sign);
        *p += sign;
        return true;
    }
    if (strncmp(*p, " <", 2) == 0 && ends_in(out, from, "operator<")) {
        ++*p; /* a space that separates two signs */
        return true;
    }
    if ((**p != '<' && **p != '(') || !follows_word) {
        text_add(out, (*p)++, 1);
        return true;
    }
    const char *start = *p, *end = after_brackets(*p);
    *p = end;
    if (!end) return false;
    if (*start == '<' && says_what_it_is(start + 1, end - 1)) text_add(out, start, (size_t)(end - start));
    else leave_out(left, *start, out->length - from, start + 1, end - 1);
    if (*start == '(' && strncmp(end, " const::", strlen(" const::")) == 0) *p += strlen(" const");
    else if (*start == '(' && *end && strncmp(end, "::", 2) != 0 && *end != '#')
        return false; /* only qualifiers and [clone] follow parameters */
    return true;
}

/* Returns the position behind the return type; `from` if there is none. Only names with templates or parameters have
 * one. */
static size_t after_type(const struct text *out, size_t from)
{
    for (size_t i = out->length; i > from; i--) {
        if (out->data[i - 1] == ')' || out->data[i - 1] == '}')
            return from; /* a space inside "(anonymous namespace)" does not count */
        if (out->data[i - 1] == ' ') return i;
    }
    return from;
}

/* Removes the text between `from` and `to`, and the pieces that were left out of it. */
static void drop_before(struct text *out, size_t from, size_t to, struct left_outs *left)
{
    size_t kept = 0;
    memmove(out->data + from, out->data + to, out->length - to + 1);
    out->length -= to - from;
    for (size_t i = 0; i < left->count; i++) {
        if (left->item[i].at >= to - from) {
            left->item[kept] = left->item[i];
            left->item[kept++].at -= to - from;
        }
    }
    left->count = kept;
}

/* Turns _ZN3foo3barI... into foo::bar, and keeps the rest as one list of arguments. The C++ runtime refuses to
 * demangle very long names. */
static bool short_mangled(const char *name, struct text *out, struct left_outs *left)
{
    size_t from = out->length;
    const char *p = name + 2 + (name[2] == 'N');
    while (isdigit((unsigned char)*p)) {
        char *word;
        unsigned long length = strtoul(p, &word, 10);
        if (!length || length > strlen(word)) return false;
        text_puts(out, out->length > from ? "::" : "");
        text_add(out, word, length);
        p = word + length;
    }
    if (out->length > from && *p) leave_out(left, '<', out->length - from, p, p + strlen(p));
    return out->length > from;
}

void short_name(const char *name, struct text *out, struct left_outs *left)
{
    size_t from = out->length;
    const char *p = name, *end = name + strlen(name);
    text_puts(out, "");
    if (strlen(name) > LONGEST_MANGLED && strncmp(name, "_Z", 2) == 0 && short_mangled(name, out, left)) return;
    out->length = from;
    while (p && *p && shorten(&p, out, from, left)) {
    }
    if (p && *p) leave_out(left, ' ', out->length - from, p, end);
    bool is_shorter = p && out->length - from < (size_t)(end - name);
    if (is_shorter) {
        bool is_void = strncmp(name, "void ", 5) == 0;
        drop_before(out, from, is_void ? from + 5 : after_type(out, from), left);
    }
    if (!p || out->length == from) {
        left->count = 0;
        out->length = from;
        text_puts(out, name);
    }
}
