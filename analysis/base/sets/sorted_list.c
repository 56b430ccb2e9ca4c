/* sorted_list.c - keeps sorted items in leaves, and the leaves in an array. */
#include "base/sets/sorted_list.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* The array of leaves moves with every new leaf: N / LEAF_MOST entries of 16 bytes for LEAF_MOST / 2 insertions. Up to ten
 * million items, that costs less than the searches. */
#define LEAF_MOST 256

struct sorted_leaf {
    char *items; /* at least one, at most LEAF_MOST */
    size_t count;
};

/* A place between items. An item follows unless `leaf` is the number of leaves. */
struct place {
    size_t leaf, at;
};

static bool is_before(const struct sorted *s, const char *item, const uint64_t *key, bool or_equal)
{
    const uint64_t *have = (const void *)item;
    for (size_t i = 0; i < s->words; i++)
        if (have[i] != key[i]) return have[i] < key[i];
    return or_equal;
}

/* Returns the place behind all items below a key, or behind all that are not above it. */
static struct place find_key(const struct sorted *s, const uint64_t *key, bool or_equal)
{
    size_t low = 0, high = s->leaves;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct sorted_leaf *leaf = &s->leaf[middle];
        if (is_before(s, leaf->items + (leaf->count - 1) * s->item, key, or_equal)) low = middle + 1;
        else high = middle;
    }
    struct place place = {.leaf = low};
    for (high = low < s->leaves ? s->leaf[low].count : 0; place.at < high;) {
        size_t middle = place.at + (high - place.at) / 2;
        if (is_before(s, s->leaf[low].items + middle * s->item, key, or_equal)) place.at = middle + 1;
        else high = middle;
    }
    return place;
}

static void *after(const struct sorted *s, struct place place)
{
    return place.leaf < s->leaves ? s->leaf[place.leaf].items + place.at * s->item : NULL;
}

static void *before(const struct sorted *s, struct place place)
{
    if (place.at) return s->leaf[place.leaf].items + (place.at - 1) * s->item;
    return place.leaf ? s->leaf[place.leaf - 1].items + (s->leaf[place.leaf - 1].count - 1) * s->item : NULL;
}

void *sorted_below(const struct sorted *s, const uint64_t *key)
{
    return before(s, find_key(s, key, false));
}

void *sorted_up_to(const struct sorted *s, const uint64_t *key)
{
    return before(s, find_key(s, key, true));
}

void *sorted_from(const struct sorted *s, const uint64_t *key)
{
    return after(s, find_key(s, key, false));
}

void *sorted_above(const struct sorted *s, const uint64_t *key)
{
    return after(s, find_key(s, key, true));
}

static struct sorted_leaf *add_leaf(struct sorted *s, size_t at)
{
    char *items = mem_zero(LEAF_MOST, s->item);
    s->leaf = mem_grow(s->leaf, &s->capacity, s->leaves + 1, sizeof *s->leaf);
    memmove(&s->leaf[at + 1], &s->leaf[at], (s->leaves - at) * sizeof *s->leaf);
    s->leaf[at] = (struct sorted_leaf){.items = items};
    s->leaves++;
    return &s->leaf[at];
}

/* Moves the upper half of a full leaf to a new one behind it. */
static void split(struct sorted *s, size_t at)
{
    struct sorted_leaf *upper = add_leaf(s, at + 1), *lower = upper - 1;
    upper->count = lower->count / 2;
    lower->count -= upper->count;
    memcpy(upper->items, lower->items + lower->count * s->item, upper->count * s->item);
}

void *sorted_insert(struct sorted *s, const void *item)
{
    struct place place = find_key(s, item, true);
    if (!s->leaves) add_leaf(s, 0);
    if (place.leaf == s->leaves) place = (struct place){s->leaves - 1, s->leaf[s->leaves - 1].count};
    if (s->leaf[place.leaf].count == LEAF_MOST) {
        split(s, place.leaf);
        size_t lower = s->leaf[place.leaf].count;
        if (place.at > lower) place = (struct place){place.leaf + 1, place.at - lower};
    }
    struct sorted_leaf *leaf = &s->leaf[place.leaf];
    char *to = leaf->items + place.at * s->item;
    memmove(to + s->item, to, (leaf->count - place.at) * s->item);
    memcpy(to, item, s->item);
    leaf->count++;
    s->count++;
    return to;
}

bool sorted_remove(struct sorted *s, const uint64_t *key)
{
    struct place place = find_key(s, key, false);
    char *item = after(s, place);
    if (!item || !is_before(s, item, key, true)) return false;
    struct sorted_leaf *leaf = &s->leaf[place.leaf];
    leaf->count--;
    s->count--;
    memmove(item, item + s->item, (leaf->count - place.at) * s->item);
    if (!leaf->count) {
        free(leaf->items);
        s->leaves--;
        memmove(leaf, leaf + 1, (s->leaves - place.leaf) * sizeof *leaf);
    }
    return true;
}

void sorted_free(struct sorted *s)
{
    for (size_t i = 0; i < s->leaves; i++) free(s->leaf[i].items);
    free(s->leaf);
    *s = (struct sorted){.item = s->item, .words = s->words};
}
