/* details.c - counts the bits before a span to find its row. */
#include "model/operators/details.h"

#include <stdlib.h>

#include "base/util.h"
#include "model/names.h"

static const struct op_detail none = {.sequence = -1};

static bool is_none(const struct op_detail *d)
{
    bool has_text = d->shapes != NAME_NONE || d->types != NAME_NONE || d->concrete != NAME_NONE ||
                    d->strides != NAME_NONE || d->modules != NAME_NONE || d->stack != NAME_NONE;
    return !has_text && d->sequence == -1 && !d->flops && !d->forward_thread && !d->scope;
}

void op_details_add(struct op_details *details, size_t span, const struct op_detail *detail)
{
    if (is_none(detail)) return;
    bits_add(&details->has, span);
    details->before = mem_grow(details->before, &details->word_capacity, details->has.words, sizeof *details->before);
    while (details->words < details->has.words) details->before[details->words++] = (uint32_t)details->count;
    details->detail = mem_grow(details->detail, &details->capacity, details->count + 1, sizeof *details->detail);
    details->detail[details->count++] = *detail;
}

const struct op_detail *op_details_of(const struct op_details *details, size_t span)
{
    if (!bits_have(&details->has, span)) return &none;
    uint64_t earlier = details->has.word[span / 64] & (((uint64_t)1 << span % 64) - 1);
    return &details->detail[details->before[span / 64] + (size_t)__builtin_popcountll(earlier)];
}

void op_details_free(struct op_details *details)
{
    free(details->detail);
    free(details->before);
    bits_free(&details->has);
    *details = (struct op_details){0};
}
