/* same_name.h - finds the stage of a given name that was open on a thread at a single moment. */
#ifndef TFA_SAME_NAME_H
#define TFA_SAME_NAME_H

#include "ask/attribute.h"

struct stage_named {
    const struct ranges *ranges;
    size_t *order; /* stages by thread, name and start */
    size_t count;
    struct stage_paths paths; /* links between stages of the same name and thread */
};

void stage_named_init(struct stage_named *named, const struct attribution *attribution);
void stage_named_free(struct stage_named *named);
/* Returns the innermost such stage; NO_PLACE if none is open. */
uint32_t stage_named_at(const struct stage_named *named, uint32_t thread, uint32_t name, int64_t time);

#endif
