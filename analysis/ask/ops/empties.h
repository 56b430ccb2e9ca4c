/* empties.h - the segments without a block in use, in the order in which a total that shrank takes them. */
#ifndef TFA_EMPTIES_H
#define TFA_EMPTIES_H

#include "ask/ops/segments.h"

void empties_add(struct sorted *empties, const struct segment *segment);
void empties_remove(struct sorted *empties, const struct segment *segment);
/* Finds the place of the segment to take `excess` bytes from: a guessed one, or one whose call was recorded. Returns false
 * if there is none. */
bool empties_find(const struct sorted *empties, bool guessed, uint64_t excess, struct extent *place);
/* True if the bytes are better taken from x than from y, of two whose calls were recorded. */
bool empties_prefer(const struct extent *x, const struct extent *y, uint64_t excess);

#endif
