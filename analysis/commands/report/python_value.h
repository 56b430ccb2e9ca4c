/* python_value.h - writes JSON from a trace as Python that a person reads. */
#ifndef TFA_PYTHON_VALUE_H
#define TFA_PYTHON_VALUE_H

#include "read/json/json.h"

/* Writes a Python literal that equals the JSON value: the description of a tensor as a call of tfharness's tensor(). A
 * container that does not fit into a line has its items on lines of their own, as far as `lines` allow it. */
void python_value(struct text *to, struct slice value, size_t lines);

#endif
