/* functions.c - parses the descriptions of the functions that a process called. */
#include "model/model.h"

#include "read/schema.h"

#include <stdlib.h>
#include <string.h>

static char *part(const char **at, const char *end, char separator)
{
    const char *stop = *at < end ? memchr(*at, separator, (size_t)(end - *at)) : NULL;
    char *text = mem_text(*at, (size_t)((stop ? stop : end) - *at));
    *at = stop ? stop + 1 : end;
    return text;
}

static void parse_func(struct func *func, const char *text, size_t length)
{
    const char *at = text, *end = text + length;
    func->library = part(&at, end, '\x1f');
    func->call_class = part(&at, end, '\x1f');
    func->name = part(&at, end, '\x1f');
    if (!*func->name && !*func->call_class) { /* not a description: the text becomes the name */
        free(func->name);
        func->name = mem_text(text, length);
    }
    while (at < end) {
        char *argument = part(&at, end, ',');
        char *colon = strchr(argument, ':');
        func->arg = mem_resize(func->arg, func->args + 1, sizeof *func->arg);
        func->type = mem_resize(func->type, func->args + 1, sizeof *func->type);
        func->type[func->args] = colon ? type_by_name(colon + 1, strlen(colon + 1)) : TFI_TYPE_UINT;
        if (colon) *colon = 0;
        func->arg[func->args++] = argument;
    }
}

uint32_t process_func(struct process *process, uint32_t string, const char *text, size_t length)
{
    uint32_t place = map_get(&process->func_of, string);
    if (place == MAP_NONE) {
        place = (uint32_t)process->funcs;
        process->func = mem_grow(process->func, &process->func_capacity, process->funcs + 1, sizeof *process->func);
        process->func[process->funcs] = (struct func){.string = string};
        parse_func(&process->func[process->funcs++], text, length);
        map_put(&process->func_of, string, place);
    }
    return place;
}

void func_free(struct func *func)
{
    for (unsigned k = 0; k < func->args; k++) free(func->arg[k]);
    free(func->arg);
    free(func->type);
    free(func->library);
    free(func->call_class);
    free(func->name);
}
