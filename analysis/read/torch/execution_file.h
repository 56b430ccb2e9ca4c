/* execution_file.h - reads PyTorch's execution trace (.json or .json.gz) node by node.
 *
 * A sink gets the nodes and the other members of the outermost object in file order. Its arguments point into the
 * reader's buffer, are valid only during the call, and are as they stand in the file: nothing in them is checked.
 */
#ifndef TFA_EXECUTION_FILE_H
#define TFA_EXECUTION_FILE_H

#include "read/json/json.h"
#include "read/trace.h"

struct execution_sink {
    void *context;
    void (*member)(void *context, struct slice key, struct slice value); /* key: the string with its quotes */
    void (*node)(void *context, struct slice node);                      /* any JSON value */
    void (*end_of_nodes)(void *context);
};

/* Result of reading, with the damage found. */
struct execution_damage {
    uint64_t nodes;  /* nodes read */
    uint64_t large;  /* nodes and members that are too large, and were left out */
    uint64_t unread; /* members with a key that is too long, and `nodes` that are no list or a second one */
    bool cut;        /* the file ends too early */
};

/* Returns false if the file is unusable; a note gives the reason. Damage adds notes too, and the sink gets the valid
 * part. */
bool execution_file_read(const char *path, const struct execution_sink *sink, struct execution_damage *damage,
                         struct notes *notes);

#endif
