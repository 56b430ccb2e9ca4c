/* memory_rows.h - reads the raw rows of torch's memory timeline, as export_memory_timeline writes them to .raw.json.gz.
 *
 * The file is one list of rows [time, action, bytes, category] of one device, which it does not name. Bytes are negative
 * where memory goes. A change of a tensor's version is two rows: its old category loses the bytes, its new one has them.
 */
#ifndef TFA_MEMORY_ROWS_H
#define TFA_MEMORY_ROWS_H

#include <stdatomic.h>

#include "base/file_in.h"
#include "read/trace.h"

/* torch.profiler._memory_profiler.Action, with its values. */
enum memory_action { ACTION_PREEXISTING = 1, ACTION_CREATE, ACTION_INCREMENT_VERSION, ACTION_DESTROY, NR_ACTIONS };
enum { MEMORY_CATEGORIES = 8 }; /* in the order of torch's _CATEGORY_TO_INDEX */

struct memory_row {
    int64_t time; /* nanoseconds since 1970; -1: before the profile */
    int64_t bytes;
    uint8_t action, category;
};

struct memory_rows_sink {
    void *context;
    void (*row)(void *context, const struct memory_row *row);
};

/* Result of reading, with the damage found. */
struct memory_rows_damage {
    uint64_t rows; /* rows read */
    uint64_t bad;  /* items of the list that are no rows, and were left out */
    bool cut;      /* the list does not end */
    bool broken;   /* the file is damaged in another way */
};

/* Recognises such a file by its first row, or, if it is empty, by its name. */
bool is_memory_rows_file(const char *path, enum file_how how);
/* Returns false if the file is unusable; a note gives the reason. Damage adds notes too, and the sink gets the valid
 * part. `done` counts bytes of the file, for the progress line. */
bool memory_rows_read(const char *path, enum file_how how, const struct memory_rows_sink *sink,
                      struct memory_rows_damage *damage, struct notes *notes, atomic_ullong *done);

#endif
