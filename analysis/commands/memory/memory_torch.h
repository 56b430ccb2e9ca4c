/* memory_torch.h - memory over time in the files that torch's export_memory_timeline writes: `memory --layout torch`. */
#ifndef TFA_MEMORY_TORCH_H
#define TFA_MEMORY_TORCH_H

#include "base/opts.h"

struct session;

/* The suffix of --output decides, as in torch: raw.json.gz has rows, any other one sums. */
void memory_torch(struct session *session);
/* Returns false, after a message, if the layout is a file and what else is asked for does not fit it. */
bool memory_file_fits(struct session *session);
/* True if this layout is asked for, and the name of its file ends so. */
bool memory_torch_has(const struct options *options, const char *suffix);

#endif
