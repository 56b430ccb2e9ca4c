/* stages_with_records.h - tells of which calls of stages the records were kept: those in a stage that ENABLE_PROFILER_NAMES
 * selects, while recording was on. */
#ifndef TFA_STAGES_WITH_RECORDS_H
#define TFA_STAGES_WITH_RECORDS_H

#include "ask/choice.h"

struct selected_stages {
    const struct choice *choice;
    const char *list; /* NULL: everything is selected */
    uint64_t length, steps;
    struct stage_paths paths; /* links over the selected stages */
};

/* `choice` has its attribution. A stage that is too dear to compare counts as not selected. */
void selected_stages_init(struct selected_stages *selected, const struct choice *choice, const struct names *names);
void selected_stages_free(struct selected_stages *selected);
/* True if a range is selected, or lies in a stage that is. */
bool is_selected(const struct selected_stages *selected, size_t range);
/* True if it is, and recording was on all the time it was open. */
bool is_recorded_whole(const struct selected_stages *selected, size_t range);

#endif
