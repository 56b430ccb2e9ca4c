/* ncu_names.c - finds the kernel of a trace that Nsight Compute prints under another name. */
#include "ask/ncu/ncu_names.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/kernel_names.h"

#define SEVERAL (UINT32_MAX - 1)

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

/* Returns the position behind a piece that only one of the two demanglers writes; `p` if there is none: a namespace, a cast
 * before a number, `const`. */
static const char *behind_extra(const char *p, const char *end, bool follows_word)
{
    static const char anonymous[] = "(anonymous namespace)::";
    const char *word = p;
    if ((size_t)(end - p) >= strlen(anonymous) && strncmp(p, anonymous, strlen(anonymous)) == 0)
        return p + strlen(anonymous);
    if (*p == '(') {
        const char *close = memchr(p, ')', (size_t)MIN(end - p, 24));
        return close && close + 1 < end && (isdigit((unsigned char)close[1]) || close[1] == '-') ? close + 1 : p;
    }
    while (!follows_word && word < end && is_word(*word)) word++;
    if (word - p == 5 && strncmp(p, "const", 5) == 0) return word;
    return word > p && end - word > 2 && word[0] == ':' && word[1] == ':' ? word + 2 : p;
}

/* Appends template arguments without what differs between demanglers. */
static void plain_arguments(const char *p, const char *end, struct text *out)
{
    bool in_word = false;
    while (p < end) {
        const char *behind = behind_extra(p, end, in_word);
        if (behind > p) {
            p = behind;
            continue;
        }
        size_t left = (size_t)(end - p);
        if (!in_word && left >= 4 && strncmp(p, "true", 4) == 0 && (left == 4 || !is_word(p[4]))) {
            text_puts(out, "1");
            p += 4;
        } else if (!in_word && left >= 5 && strncmp(p, "false", 5) == 0 && (left == 5 || !is_word(p[5]))) {
            text_puts(out, "0");
            p += 5;
        } else if (*p == ' ') {
            p++;
        } else if (!in_word && isdigit((unsigned char)*p)) { /* 1ul is 1 */
            while (p < end && isdigit((unsigned char)*p)) text_add(out, p++, 1);
            while (p < end && strchr("uUlL", *p)) p++;
        } else {
            text_add(out, p++, 1);
        }
        in_word = p < end && is_word(p[-1]);
    }
}

/* Returns where the last part of a qualified name begins: behind the last `::` that no bracket holds. */
static size_t last_part(const char *name, size_t length)
{
    size_t from = 0, depth = 0;
    for (size_t i = 0; i < length; i++) {
        depth += name[i] == '<' || name[i] == '(';
        depth -= depth && (name[i] == '>' || name[i] == ')');
        if (!depth && name[i] == ':' && i + 1 < length && name[i + 1] == ':') from = i + 2;
    }
    return from;
}

void ncu_plain_name(const char *name, struct text *function, struct text *form)
{
    char *readable = demangled_name(name);
    struct left_outs left = {0};
    struct text brief = {0};
    short_name(readable ? readable : name, &brief, &left);
    size_t from = last_part(brief.data, brief.length), length = strcspn(brief.data + from, "<");
    if (!length) length = brief.length - from; /* operator< */
    if (function) text_add(function, brief.data + from, length);
    if (form) {
        text_add(form, brief.data + from, length);
        text_puts(form, "<");
        plain_arguments(brief.data + from + length, brief.data + brief.length, form); /* CUTLASS keeps its argument */
        for (size_t i = 0; i < left.count; i++)
            if (left.item[i].bracket == '<' && left.item[i].at >= from)
                plain_arguments(left.item[i].from, left.item[i].to, form);
    }
    free(left.item);
    text_free(&brief);
    free(readable);
}

char *readable_name(const char *name)
{
    char *readable = demangled_name(name);
    return readable ? readable : string_format("%s", name);
}

static uint32_t number_of(struct names *texts, const char *text)
{
    return names_add(texts, text ? text : "", text ? strlen(text) : 0);
}

static void enter(struct map *map, uint32_t text, uint32_t name)
{
    uint32_t known = map_get(map, text);
    map_put(map, text, known == MAP_NONE || known == name ? name : SEVERAL);
}

void ncu_matcher_init(struct ncu_matcher *matcher, const struct names *names, const uint32_t *name, size_t count)
{
    struct map known = {0};
    *matcher = (struct ncu_matcher){0};
    names_init(&matcher->texts);
    for (size_t i = 0; i < count; i++) {
        if (map_get(&known, name[i]) != MAP_NONE) continue;
        map_put(&known, name[i], 1);
        struct text function = {0}, form = {0};
        const char *whole = names_get(names, name[i])->text;
        char *readable = demangled_name(whole);
        ncu_plain_name(whole, &function, &form);
        enter(&matcher->by[MATCHED_NAME], number_of(&matcher->texts, whole), name[i]);
        if (readable) enter(&matcher->by[MATCHED_NAME], number_of(&matcher->texts, readable), name[i]);
        enter(&matcher->by[MATCHED_FORM], number_of(&matcher->texts, form.data), name[i]);
        enter(&matcher->by[MATCHED_FUNCTION], number_of(&matcher->texts, function.data), name[i]);
        free(readable);
        text_free(&function);
        text_free(&form);
    }
    map_free(&known);
}

enum ncu_matched ncu_match(const struct ncu_matcher *matcher, const char *kernel, uint32_t *name)
{
    enum ncu_matched how = MATCHED_NOT;
    struct text function = {0}, form = {0};
    ncu_plain_name(kernel, &function, &form);
    const char *text[NR_MATCHED] = {
        [MATCHED_FUNCTION] = function.data, [MATCHED_FORM] = form.data, [MATCHED_NAME] = kernel};
    for (int by = MATCHED_NAME; by >= MATCHED_FUNCTION && how == MATCHED_NOT; by--) {
        const char *looked = text[by] ? text[by] : "";
        uint32_t number = names_find(&matcher->texts, looked, strlen(looked));
        uint32_t found = number == UINT32_MAX ? MAP_NONE : map_get(&matcher->by[by], number);
        if (found == MAP_NONE) continue;
        how = found == SEVERAL ? MATCHED_SEVERAL : (enum ncu_matched)by;
        *name = found;
    }
    text_free(&function);
    text_free(&form);
    return how;
}

void ncu_matcher_free(struct ncu_matcher *matcher)
{
    names_free(&matcher->texts);
    for (int i = 0; i < NR_MATCHED; i++) map_free(&matcher->by[i]);
}
