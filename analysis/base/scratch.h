/* scratch.h - bytes that are written once and read again later, in a temporary file without a name.
 *
 * The first bytes stay in memory, so small answers create no file. The file lies in $TMPDIR, or in /tmp, and vanishes
 * with the process, however that ends.
 */
#ifndef TFA_SCRATCH_H
#define TFA_SCRATCH_H

#include "base/util.h"

enum { SCRATCH_WINDOWS = 16 };

struct scratch {
    int fd;           /* -1: no file yet */
    char *buffer;     /* the bytes from `spilled` on */
    uint64_t spilled; /* bytes in the file */
    size_t used;
    /* Bytes read from the file. A reader that follows several tables at once needs a window of each. */
    struct scratch_window {
        char *data;
        uint64_t at, used; /* its place in the file, and the number of the last scratch_get that used it */
        size_t length, room;
    } window[SCRATCH_WINDOWS];
    uint64_t gets;
    bool failed; /* already reported; nothing more is written */
};

void scratch_init(struct scratch *scratch);
/* Returns the offset of the bytes. */
uint64_t scratch_add(struct scratch *scratch, const char *bytes, size_t length);
/* Returns bytes that were added, or NULL after a failure. They are valid until the next call. */
const char *scratch_get(struct scratch *scratch, uint64_t offset, size_t length);
void scratch_free(struct scratch *scratch);

#endif
