/* sources.h - the sources of the modules that torch's compiler made, put together from a trace of ours.
 *
 * A trace can be hostile, and one string can be the text of many pieces. So a source refers to the strings of its
 * pieces, and the sources of a trace have a limit, in number and in bytes: the recorder's.
 */
#ifndef TFA_SOURCES_H
#define TFA_SOURCES_H

#include "read/trace.h"

/* `name` and the pieces are the numbers of strings. The source is whole if `done` is `bytes` and `pieces` is not 0. */
struct source {
    uint64_t bytes, done;
    uint32_t *piece;
    size_t pieces, capacity;
    uint32_t name;
};

/* Initialise it with zeros. */
struct sources {
    struct source *source; /* in the order of their first piece */
    size_t count, capacity;
    struct map place;    /* in `source`, by name */
    uint64_t bytes;      /* of all pieces */
    uint64_t unkept;     /* pieces beyond the limits */
    uint64_t bad_pieces; /* complete but invalid records */
};

/* Adds the pieces in a group of `source` records. */
void sources_take(struct sources *sources, const struct trace *trace, struct decoder *decoder, struct group *group);
bool source_is_whole(const struct source *source);
void sources_free(struct sources *sources);

#endif
