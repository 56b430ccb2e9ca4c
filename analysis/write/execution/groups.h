/* groups.h - the process groups of torch.distributed, as PyTorch's execution trace describes them. */
#ifndef TFA_GROUPS_H
#define TFA_GROUPS_H

#include "model/model.h"

/* The function with which torch's observer describes the groups when it starts. Its input is the text. */
#define GROUPS_FUNCTION "## process_group:init ##"

/* Returns the description of the process's groups as JSON, which the caller frees; NULL if it has none. */
char *groups_text(const struct process *process);

#endif
