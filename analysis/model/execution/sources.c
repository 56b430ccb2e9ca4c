/* sources.c - puts the sources of compiled modules together from their pieces.
 *
 * The pieces of a source follow one another. Two threads can write the same source at the same time, so a piece that
 * does not follow the last one is left out.
 */
#include "model/execution/sources.h"

#include <stdlib.h>

#include "base/util.h"

bool source_is_whole(const struct source *source)
{
    return source->pieces && source->done == source->bytes;
}

/* Returns the source with this name, which it adds if there is none; NULL beyond the limit. */
static struct source *source_named(struct sources *sources, uint32_t name)
{
    uint32_t place = map_get(&sources->place, name);
    if (place != MAP_NONE) return &sources->source[place];
    if (sources->count == TFI_SOURCES) return NULL;
    sources->source = mem_grow(sources->source, &sources->capacity, sources->count + 1, sizeof *sources->source);
    map_put(&sources->place, name, (uint32_t)sources->count);
    sources->source[sources->count] = (struct source){.name = name};
    return &sources->source[sources->count++];
}

static void add_piece(struct sources *sources, struct source *source, uint32_t text, uint64_t length)
{
    source->piece = mem_grow(source->piece, &source->capacity, source->pieces + 1, sizeof *source->piece);
    source->piece[source->pieces++] = text;
    source->done += length;
    sources->bytes += length;
}

static void take_piece(struct sources *sources, const struct trace *trace, uint32_t name, uint32_t text,
                       uint64_t offset, uint64_t bytes)
{
    struct source *source = source_named(sources, name);
    const struct string *string = strings_get(&trace->strings, text);
    bool is_again = source && source->pieces && source->piece[0] == text && source->bytes == bytes;
    if (!source) {
        sources->unkept++;
        return;
    }
    if (!string || (offset == 0 && is_again)) return;
    if (offset == 0) {
        sources->bytes -= source->done;
        source->pieces = 0;
        source->done = 0;
        source->bytes = bytes;
    }
    bool follows = offset == source->done && bytes == source->bytes && string->length <= bytes - offset;
    if (!follows || (source->pieces && !string->length)) return;
    if (string->length > TFI_SOURCES_BYTES - sources->bytes) sources->unkept++;
    else add_piece(sources, source, text, string->length);
}

void sources_take(struct sources *sources, const struct trace *trace, struct decoder *d, struct group *group)
{
    const uint64_t *name = group_own(d, group, COL_source_name), *text = group_own(d, group, COL_source_text);
    const uint64_t *offset = group_own(d, group, COL_source_offset), *bytes = group_own(d, group, COL_source_bytes);
    bool is_whole = name && text && offset && bytes && !group->damaged;
    if (!is_whole) sources->bad_pieces += group->count;
    for (uint32_t i = 0; i < group->count && is_whole; i++)
        take_piece(sources, trace, (uint32_t)name[i], (uint32_t)text[i], offset[i], bytes[i]);
}

void sources_free(struct sources *sources)
{
    for (size_t i = 0; i < sources->count; i++) free(sources->source[i].piece);
    free(sources->source);
    map_free(&sources->place);
    *sources = (struct sources){0};
}
