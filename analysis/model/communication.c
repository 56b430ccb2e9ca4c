/* communication.c - searches names for the words of communication, and matches the user's globs.
 *
 * A name is searched up to LONGEST_NAME bytes. No kernel has a longer one; a damaged trace may.
 */
#include "model/communication.h"

#include <stdlib.h>
#include <string.h>

#include "base/kernel_names.h"
#include "pattern.h"

enum { LONGEST_NAME = 1 << 20, LONGEST_GLOB = 4096 };

static const struct communication_word {
    const char *word;
    size_t length;
    bool tracelens, anywhere; /* also among template arguments and parameters */
} communication[] = {
#define COMMUNICATION(word, tracelens) {word, sizeof word - 1, tracelens, true},
#define COMMUNICATION_NAME(word) {word, sizeof word - 1, false, false},
#include "collectives.def"
};

static bool word_is_at(const struct communication_word *row, const char *at, size_t left)
{
    enum { CASE = 'a' - 'A' }; /* two characters that differ in this bit alone may be one letter */
    return row->length <= left && ((at[1] ^ row->word[1]) & ~CASE) == 0 && strncasecmp(at, row->word, row->length) == 0;
}

static bool begins_with(const char *name, size_t length, const char *prefix)
{
    return length > strlen(prefix) && memcmp(name, prefix, strlen(prefix)) == 0;
}

bool is_communication(const char *name, size_t length, bool tracelens)
{
    const uint32_t begins = 0 /* the five low bits of letters, equal in both cases, with which a word begins */
#define COMMUNICATION(word, tracelens) | UINT32_C(1) << (*word & 31)
#define COMMUNICATION_NAME(word) | UINT32_C(1) << (*word & 31)
#include "collectives.def"
        ;
    bool has_name = !begins_with(name, length, "_Z") && !begins_with(name, length, "triton_");
    int depth = 0;
    for (size_t at = 0; at < MIN(length, (size_t)LONGEST_NAME); at++) {
        for (size_t i = 0; begins >> (name[at] & 31) & 1 && i < ARRAY_SIZE(communication); i++) {
            const struct communication_word *row = &communication[i];
            if (tracelens ? !row->tracelens : !row->anywhere && (depth > 0 || !has_name)) continue;
            if (word_is_at(row, name + at, length - at)) return true;
        }
        depth += name[at] == '<' || name[at] == '(';
        depth -= (name[at] == '>' && at && name[at - 1] != '-') || name[at] == ')';
    }
    return false;
}

static bool glob_is_one(const char *list, const char *text, size_t length)
{
    char glob[LONGEST_GLOB];
    while (tfi_next_name(&list, glob, sizeof glob))
        if (tfi_glob(glob, text, length, false)) return true;
    return false;
}

bool user_communication(const struct names *names, const char *text, size_t length)
{
    bool found = false;
    if (!names->communication || !names->communication->count) return false;
    struct text brief = {0};
    struct left_outs left = {0};
    short_name(text, &brief, &left);
    for (size_t i = 0; i < names->communication->count && !found; i++) {
        const char *list = names->communication->text[i];
        found = glob_is_one(list, text, length) || glob_is_one(list, brief.data, brief.length);
    }
    text_free(&brief);
    free(left.item);
    return found;
}

bool names_communication(const struct names *names, const char *text, size_t length)
{
    return is_communication(text, length, false) || user_communication(names, text, length);
}

bool is_communication_operator(const char *name, size_t length)
{
    static const char *const globs[] = {
#define COMMUNICATION_OPERATOR(glob) glob,
#include "collectives.def"
    };
    const char begins[] = {
#define COMMUNICATION_OPERATOR(glob) *glob,
#include "collectives.def"
    };
    if (!length || !memchr(begins, *name, sizeof begins)) return false;
    for (size_t i = 0; i < ARRAY_SIZE(globs); i++)
        if (*name == *globs[i] && tfi_glob(globs[i], name, length, false)) return true;
    return false;
}
