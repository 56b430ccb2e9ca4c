/* budget_file.h - a budget: the largest allowed number of calls of each kind, by stage. It is a JSON file for people to edit.
 *
 *     {"version": 1, "note": "...", "stages": {"denoise": {"launches": 40, "syncs": 0}, "vae_*": {"dispatches": 1}}}
 *
 * The counts have the keys of call_kinds.h. A `note` is a text for readers, in the file or in a stage. A name that a
 * stage of the run has is that stage only; any other name with `*`, `?` or `[` is a glob.
 */
#ifndef TFA_BUDGET_FILE_H
#define TFA_BUDGET_FILE_H

#include "ask/device/call_kinds.h"
#include "base/util.h"

enum { BUDGET_VERSION = 1, BUDGET_LARGEST = 4 << 20 /* bytes */, BUDGET_STAGES = 10000, BUDGET_GLOBS = 256 };

struct budget_entry {
    char *stage; /* UTF-8 */
    bool has[NR_CALL_KINDS];
    uint64_t most[NR_CALL_KINDS];
};

struct budget {
    const char *path;
    struct budget_entry *entry; /* in the order of the file, no stage twice */
    size_t count;
};

/* Returns false after a message that says what is wrong, where, and what to write instead. Free it in both cases.
 * `path` must stay valid. */
bool budget_read(struct budget *budget, const char *path);
void budget_free(struct budget *budget);
bool budget_is_glob(const char *stage);

#endif
