/* kineto_class.c - finds the class of an event of a Kineto trace. */
#include "model/kineto/kineto_class.h"

#include <string.h>

static const struct {
    struct slice name;
    enum event_class event_class;
} class_rows[] = {
#define CATEGORY(name, event_class) {{name, sizeof name - 1}, CLASS_##event_class},
#define DEVICE_WORD(prefix, word)
#include "model/categories.def"
#undef CATEGORY
#undef DEVICE_WORD
};

enum event_class kineto_class_of(struct slice category)
{
    for (size_t i = 0; i < ARRAY_SIZE(class_rows) && category.at; i++) {
        const struct slice *name = &class_rows[i].name;
        if (category.length == name->length && memcmp(category.at, name->at, name->length) == 0)
            return class_rows[i].event_class;
    }
    return CLASS_OTHER;
}

enum event_class kineto_class(struct slice category, struct slice name)
{
    return kineto_class_with_name(kineto_class_of(category), name);
}
