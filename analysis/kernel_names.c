/* kernel_names.c - shortens the names of kernels.
 *
 * `void at::native::elementwise_kernel<128, 2, F>(int, F)` is at::native::elementwise_kernel. What a name of CUTLASS
 * says stands in its only template argument, which therefore stays.
 */
#include "kernel_names.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_MANGLED = 1024 };

/* Of the C++ runtime, which only this is taken from; see LDLIBS_TOOL in the Makefile. */
char *__cxa_demangle(const char *mangled, char *buffer, size_t *length, int *status) __attribute__((weak));

/* What is longer stays mangled, as with Kineto: its names and ours are the same, and the runtime's own limit is there. */
char *demangled_name(const char *name)
{
    int status;
    if (strncmp(name, "_Z", 2) != 0 || strlen(name) > LONGEST_MANGLED || !__cxa_demangle) {
        return NULL;
    }
    return __cxa_demangle(name, NULL, NULL, &status);
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

/* The end of what opens at p, with all that is nested in it; NULL if it does not close. `->` closes nothing. */
static const char *after_brackets(const char *p)
{
    int depth = 0;
    for (; *p; p++) {
        depth += strchr("<({[", *p) != NULL;
        depth -= strchr(">)}]", *p) != NULL && !(*p == '>' && p[-1] == '-');
        if (depth == 0) {
            return p + 1;
        }
    }
    return NULL;
}

static bool ends_in(const struct text *out, size_t from, const char *word)
{
    size_t length = strlen(word);
    return out->length - from >= length && memcmp(out->data + out->length - length, word, length) == 0;
}

/* operator(), operator<, operator->: signs that open no brackets. */
static size_t operator_sign(const struct text *out, size_t from, const char *p)
{
    static const char *const signs[] = {"()", "<<=", ">>=", "<=>", "<<", ">>", "<=", ">=", "->*", "->", "<", ">"};
    for (size_t i = 0; ends_in(out, from, "operator") && i < ARRAY_SIZE(signs); i++) {
        if (strncmp(p, signs[i], strlen(signs[i])) == 0) {
            return strlen(signs[i]);
        }
    }
    return 0;
}

static bool says_what_it_is(const char *from, const char *to)
{
    for (const char *p = from; p < to; p++) {
        if (!is_word(*p)) {
            return false;
        }
    }
    return strncmp(from, "cutlass", strlen("cutlass")) == 0;
}

/* One step: copies or skips what stands at *p. False: the rest is parameters, or makes no sense (*p is NULL then). */
static bool shorten(const char **p, struct text *out, size_t from)
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
        ++*p; /* a space that keeps two signs apart */
        return true;
    }
    if ((**p != '<' && **p != '(') || !follows_word) {
        text_add(out, (*p)++, 1);
        return true;
    }
    const char *start = *p, *end = after_brackets(*p);
    *p = end;
    if (!end) {
        return false;
    }
    if (*start == '<' && says_what_it_is(start + 1, end - 1)) {
        text_add(out, start, (size_t)(end - start));
    }
    if (*start == '(' && strncmp(end, " const::", strlen(" const::")) == 0) {
        *p += strlen(" const");
    } else if (*start == '(' && *end && strncmp(end, "::", 2) != 0 && *end != '#') {
        return false; /* what follows parameters are qualifiers and [clone] */
    }
    return true;
}

/* A return type, which only names with templates or parameters have. */
static void drop_type(struct text *out, size_t from)
{
    for (size_t i = out->length; i > from; i--) {
        if (out->data[i - 1] == ')' || out->data[i - 1] == '}') {
            return; /* "(anonymous namespace)" has a space too */
        }
        if (out->data[i - 1] == ' ') {
            memmove(out->data + from, out->data + i, out->length - i + 1);
            out->length -= i - from;
            return;
        }
    }
}

void short_name(const char *name, struct text *out)
{
    size_t from = out->length;
    const char *p = name, *end = name + strlen(name);
    text_puts(out, "");
    while (p && *p && shorten(&p, out, from)) {
    }
    bool is_shorter = p && out->length - from < (size_t)(end - name);
    if (is_shorter && strncmp(name, "void ", 5) == 0) {
        memmove(out->data + from, out->data + from + 5, out->length - from - 5 + 1);
        out->length -= 5;
    } else if (is_shorter) {
        drop_type(out, from);
    }
    if (!p || out->length == from) {
        out->length = from;
        text_puts(out, name);
    }
}
