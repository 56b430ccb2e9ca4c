/* captured_args.c - lists what an export says of the capture of a graph's node. */
#include "write/export/captured_args.h"

#include <string.h>

#include "model/frames.h"

static void add_name(struct captured_arg *arg, size_t *count, const char *key, const struct names *names, uint32_t name)
{
    if (name == NAME_NONE) return;
    const struct name *text = names_get(names, name);
    arg[(*count)++] = (struct captured_arg){.key = key, .text = text->text, .length = text->length};
}

/* Adds the innermost frame that names a line: those of built-in functions and of modules name none. */
static void add_line(struct captured_arg *arg, size_t *count, const struct names *names, uint32_t stack)
{
    static const char in_module[] = "nn.Module: ";
    size_t depth = stack == NAME_NONE ? 0 : stack_depth(names, stack);
    for (size_t i = 0; i < depth; i++) {
        struct text text = {0};
        frame_text(names_get(names, stack_frame(names, stack, i)), &text);
        if (text.length && *text.data != '<' && strncmp(text.data, in_module, sizeof in_module - 1) != 0) {
            *arg = (struct captured_arg){"captured at", text.data, text.length, text};
            (*count)++;
            return;
        }
        text_free(&text);
    }
}

size_t captured_args(const struct names *names, const struct graph_node *node, uint32_t op,
                     const struct op_detail *detail, struct captured_arg arg[CAPTURED_ARGS])
{
    size_t count = 0;
    if (op == NAME_NONE) return 0;
    add_name(arg, &count, "captured op", names, op);
    add_name(arg, &count, "captured shapes", names, detail->shapes);
    add_name(arg, &count, "captured modules", names, detail->modules);
    add_line(&arg[count], &count, names, detail->stack);
    const char *via = node->by_order ? "capture order" : "capture";
    arg[count++] = (struct captured_arg){.key = "captured via", .text = via, .length = strlen(via)};
    return count;
}
