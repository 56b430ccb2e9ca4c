/* resources.h - writes the sources of compiled modules into the folder beside an execution trace. */
#ifndef TFA_RESOURCES_H
#define TFA_RESOURCES_H

#include "model/execution/sources.h"

struct resource_counts {
    uint64_t written;
    uint64_t partial; /* sources that are not whole in the trace */
    uint64_t unnamed; /* sources whose name is not one that torch gives to a module */
};

/* Writes each source as a file of the folder that torch uses for this output: NAME_resources for NAME.json. Makes no folder
 * if there is nothing to write. Returns false, after a message, if a file cannot be written. */
bool resources_write(const char *output, const struct trace *trace, const struct sources *sources,
                     struct resource_counts *counts);

#endif
