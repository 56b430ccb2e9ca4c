/* strict.h - tells whether a piece of text is one JSON value by RFC 8259. */
#ifndef TFA_JSON_STRICT_H
#define TFA_JSON_STRICT_H

#include "read/json/json.h"

/* Nothing but the value may be there, without white space around it. Strings are UTF-8, without NUL and without
 * lone halves of surrogate pairs. A value nested deeper than JSON_DEPTH is refused, as parsers that recurse refuse it. */
enum { JSON_DEPTH = 512 };
bool json_is_strict(struct slice json);

#endif
