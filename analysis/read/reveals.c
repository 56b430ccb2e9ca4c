/* reveals.c - searches the header and the strings of a trace for content beyond times and shapes.
 *
 * A trace whose header does not say whether values were recorded counts as one that has them.
 */
#include "read/reveals.h"

#include <stdlib.h>
#include <string.h>

#include "read/trace.h"

static void add_key(struct text *text, const char *key)
{
    text_format(text, "%s%s", text->length ? ", " : "", key);
}

static bool is_frame(const struct string *string)
{
    const char *tab = memchr(string->text, '\t', string->length);
    return tab && memchr(tab + 1, '\t', string->length - (size_t)(tab + 1 - string->text));
}

void reveals_find(struct reveals *reveals, const struct trace *trace)
{
    const struct pairs *info = trace->info.count || !trace->live ? &trace->info : &trace->live->info;
    const char *values = pairs_get(info, "values"), *command = pairs_get(info, "command");
    struct text paths = {0}, environment = {0};
    *reveals = (struct reveals){.known = true, .values = !values || strcmp(values, "0") != 0};
    pairs_number(info, "command.left_out", &reveals->left_out);
    reveals->command = !command            ? COMMAND_UNKNOWN
                       : !reveals->values  ? COMMAND_NAME
                       : reveals->left_out ? COMMAND_SHORTENED
                                           : COMMAND_WHOLE;
    for (size_t i = 0; i < info->count; i++) {
        const char *key = info->pair[i].key;
        if (strncmp(key, "env.", 4) == 0) add_key(&environment, key + 4);
        else if (info->pair[i].value[0] == '/') add_key(&paths, key);
    }
    reveals->paths = paths.data;
    reveals->environment = environment.data;
    reveals->texts = trace->strings.count;
    for (size_t i = 0; i < trace->strings.count; i++) reveals->lines += is_frame(&trace->strings.string[i]);
}

void reveals_free(struct reveals *reveals)
{
    free(reveals->paths);
    free(reveals->environment);
    *reveals = (struct reveals){0};
}
