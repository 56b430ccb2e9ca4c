/* steps.c - recognises ProfilerStep#N, and gives such ranges of our traces the stage name ANY_STEP. */
#include "model/steps.h"

#include <string.h>

static const char STEP[] = "ProfilerStep#";

bool step_number(struct slice name, uint64_t *number)
{
    size_t at = sizeof STEP - 1;
    if (name.length <= at || name.length > at + 18 || memcmp(name.at, STEP, at) != 0) return false;
    for (*number = 0; at < name.length; at++) {
        unsigned digit = (unsigned)(unsigned char)name.at[at] - '0';
        if (digit > 9) return false;
        *number = 10 * *number + digit;
    }
    return true;
}

static struct slice text_of(const struct names *names, uint32_t number)
{
    const struct name *name = names_get(names, number);
    return (struct slice){name->text, name->length};
}

void name_steps(struct process *process, struct names *names)
{
    struct ranges *r = &process->ranges;
    struct map step_of = {0}; /* by name; NO_PLACE - 1: not a step */
    uint32_t any = NAME_NONE;
    for (size_t i = 0; i < r->table.count; i++) {
        uint32_t step = map_get(&step_of, r->name[i]);
        if (step == MAP_NONE) {
            uint64_t number;
            step =
                step_number(text_of(names, r->name[i]), &number) ? (uint32_t)MIN(number, NO_PLACE - 2) : NO_PLACE - 1;
            map_put(&step_of, r->name[i], step);
        }
        if (step != NO_PLACE - 1) {
            any = any ? any : names_add(names, ANY_STEP, strlen(ANY_STEP));
            r->name[i] = any;
            r->step[i] = step;
        }
    }
    map_free(&step_of);
}
