/* empties.c - keeps the empty segments by kind, size and address. */
#include "ask/ops/empties.h"

enum { MADE_UP, GUESSED, RECORDED };

struct empty {
    uint64_t kind, size, address;
};

_Static_assert(sizeof(struct empty) == EMPTIES_WORDS * sizeof(uint64_t), "an item is its key");

static struct empty empty_of(const struct segment *segment)
{
    uint64_t kind = segment->area ? RECORDED : segment->is_made_up ? MADE_UP : GUESSED;
    return (struct empty){kind, segment->size, segment->address};
}

void empties_add(struct sorted *empties, const struct segment *segment)
{
    const struct empty empty = empty_of(segment);
    sorted_insert(empties, &empty);
}

void empties_remove(struct sorted *empties, const struct segment *segment)
{
    const struct empty empty = empty_of(segment);
    sorted_remove(empties, &empty.kind);
}

/* Returns the lowest one of a kind that has at least `size` bytes. */
static const struct empty *from(const struct sorted *empties, uint64_t kind, uint64_t size)
{
    const struct empty key = {.kind = kind, .size = size}, *found = sorted_from(empties, &key.kind);
    return found && found->kind == kind ? found : NULL;
}

/* Returns the largest one of a kind that fits into `excess`, or else the smallest one; of several the lowest. */
static const struct empty *find_empty(const struct sorted *empties, uint64_t kind, uint64_t excess)
{
    const struct empty key = {kind, excess, UINT64_MAX}, *fits = sorted_up_to(empties, &key.kind);
    return from(empties, kind, fits && fits->kind == kind ? fits->size : 0);
}

/* Preference: one of exactly that size, a made-up one, the largest that fits, the smallest that does not. */
bool empties_find(const struct sorted *empties, bool guessed, uint64_t excess, struct extent *place)
{
    const struct empty *found = find_empty(empties, guessed ? MADE_UP : RECORDED, excess);
    if (guessed && !(found && found->size == excess)) {
        const struct empty *other = find_empty(empties, GUESSED, excess);
        if (!found || (other && other->size == excess)) found = other;
    }
    if (found) *place = (struct extent){found->address, found->size};
    return found;
}

bool empties_prefer(const struct extent *x, const struct extent *y, uint64_t excess)
{
    if ((x->size <= excess) != (y->size <= excess)) return x->size <= excess;
    if (x->size != y->size) return x->size <= excess ? x->size > y->size : x->size < y->size;
    return x->address < y->address;
}
