/* kept_values.h - values that many rows have at the same place, kept as they are written. Tables of text do not use them. */
#ifndef TFA_KEPT_VALUES_H
#define TFA_KEPT_VALUES_H

#include "write/emit.h"

struct emit_kept {
    struct out text, *out; /* text.buffer NULL: none yet */
    size_t cells;
    uint32_t of;
};
/* Writes the values of `of` as the row before did, or returns false: those up to emit_keep_end are then kept. */
bool emit_again(struct emit *e, struct emit_kept *kept, uint32_t of);
void emit_keep_end(struct emit *e, struct emit_kept *kept);
void emit_kept_free(struct emit_kept *kept);

#endif
