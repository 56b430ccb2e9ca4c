/* stage_named.h - which stage of a name was open at a moment of a thread, asked one by one. */
#ifndef TFA_STAGE_NAMED_H
#define TFA_STAGE_NAMED_H

#include "attribute.h"

struct stage_named {
    const struct ranges *ranges;
    size_t *order; /* stages by thread, name and start */
    size_t count;
    struct stage_paths paths; /* of each over those of its name and thread */
};

void stage_named_init(struct stage_named *named, const struct attribution *attribution);
void stage_named_free(struct stage_named *named);
/* The innermost; NO_PLACE if none is open. */
uint32_t stage_named_at(const struct stage_named *named, uint32_t thread, uint32_t name, int64_t time);

#endif
