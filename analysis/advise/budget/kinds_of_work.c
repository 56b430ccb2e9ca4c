/* kinds_of_work.c - tells what a kernel or an operator does from its name, by the words of leaves.def. */
#include <string.h>

#include "advise/budget/wall.h"

enum word_of { KERNEL, OPERATOR };

static const struct word {
    enum word_of of;
    const char *word;
    enum leaf leaf;
} words[] = {
#define WORD(of, word, leaf) {of, word, LEAF_##leaf},
#include "advise/budget/leaves.def"
};

static enum leaf leaf_of_name(enum word_of of, const struct name *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (words[i].of == of && strcasestr(name->text, words[i].word)) return words[i].leaf;
    return LEAF_OTHER;
}

enum leaf kernel_leaf(const struct name *name)
{
    return leaf_of_name(KERNEL, name);
}

enum leaf operator_leaf(const struct name *name)
{
    return leaf_of_name(OPERATOR, name);
}
