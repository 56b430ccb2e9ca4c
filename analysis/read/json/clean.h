/* clean.h - makes the text of a trace valid JSON, for files that other programs read. */
#ifndef TFA_JSON_CLEAN_H
#define TFA_JSON_CLEAN_H

#include "base/escape.h"
#include "read/json/json.h"

/* Room for the texts that differ from the trace's. */
struct strict {
    struct text clean, valid, key, source;
};

/* Returns a value as strict JSON without unsafe characters: unchanged if it is, else with what JSON lacks replaced (NaN
 * becomes null, bytes that are no UTF-8 become U+FFFD), without `at` if that is not enough. The scanner can read the
 * result, which is valid until the next call. */
struct slice strict_clean(struct strict *strict, struct slice json);

/* The same, with each value that cannot be made valid as null. */
struct slice strict_json(struct strict *strict, struct slice json);

/* Tells whether both return the value unchanged. */
bool json_is_clean(struct slice json);

void strict_free(struct strict *strict);

#endif
