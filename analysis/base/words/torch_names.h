/* torch_names.h - torch's names for the columns of its table of operators, as options take them. */
#ifndef TFA_TORCH_NAMES_H
#define TFA_TORCH_NAMES_H

#include "base/opts.h"

/* Appends the name with "device" in place of the name of any device, as torch does. */
void text_of_any_device(struct text *plain, const char *value);
/* Finds an order of `ops` by torch's name or the key of a row. Returns false after a message. */
bool torchs_order(const char *value, enum sort_key *order);

#endif
