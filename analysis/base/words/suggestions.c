/* suggestions.c - finds what a mistyped command or option means, by edit distance and by the words of suggestions.def. */
#include "base/words/suggestions.h"

#include <stdlib.h>
#include <string.h>

struct word_meant {
    const char *word, *instead;
};

static const struct word_meant commands_meant[] = {
#define COMMAND_MEANT(word, instead) {word, instead},
#include "base/words/suggestions.def"
};

static const struct word_meant options_meant[] = {
#define OPTION_MEANT(word, instead) {word, instead},
#include "base/words/suggestions.def"
};

static const char *instead_of(const char *word, const struct word_meant *meant, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(word, meant[i].word) == 0) return meant[i].instead;
    return NULL;
}

/* The nearest of the names and of the words; a name that exists comes first. */
static const char *nearest_of_both(const char *word, const char *const *names, size_t count,
                                   const struct word_meant *meant, size_t words)
{
    const char *exact = instead_of(word, meant, words), *near;
    const char **all = mem_zero(count + words, sizeof *all);
    if (count) memcpy(all, names, count * sizeof *all);
    for (size_t i = 0; i < words; i++) all[count + i] = meant[i].word;
    near = exact ? NULL : nearest(word, all, count + words);
    free(all);
    if (exact) return exact;
    if (!near) return NULL;
    const char *instead = instead_of(near, meant, words);
    for (size_t i = 0; i < count; i++)
        if (strcmp(near, names[i]) == 0) return near;
    return instead ? instead : near;
}

const char *command_meant(const char *word, const char *const *names, size_t count)
{
    return nearest_of_both(word, names, count, commands_meant, ARRAY_SIZE(commands_meant));
}

const char *option_meant(const char *word, const char *const *names, size_t count)
{
    return nearest_of_both(word, names, count, options_meant, ARRAY_SIZE(options_meant));
}
