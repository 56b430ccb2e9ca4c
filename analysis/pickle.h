/* pickle.h - writes Python's pickle format, protocol 2: dicts, lists, texts, whole numbers and truth values.
 *
 *     pickle_begin(&p, out); pickle_open_dict(&p); pickle_text(&p, "key", 3); pickle_int(&p, 7); pickle_close_dict(&p);
 *     pickle_end(&p);
 */
#ifndef TFA_PICKLE_H
#define TFA_PICKLE_H

#include "out.h"

struct pickle {
    struct out *out;
    uint32_t remembered;
};

void pickle_begin(struct pickle *pickle, struct out *out);
void pickle_end(struct pickle *pickle);
/* Between the two of a dict: keys and values in turn. */
void pickle_open_dict(struct pickle *pickle);
void pickle_close_dict(struct pickle *pickle);
void pickle_open_list(struct pickle *pickle);
void pickle_close_list(struct pickle *pickle);
/* Bytes that are no UTF-8 become U+FFFD each. */
void pickle_text(struct pickle *pickle, const char *bytes, size_t length);
void pickle_key(struct pickle *pickle, const char *text);
void pickle_int(struct pickle *pickle, int64_t number);
void pickle_bool(struct pickle *pickle, bool value);
/* Gives the value just written a number, by which it can be written again: the same object then. */
uint32_t pickle_remember(struct pickle *pickle);
void pickle_again(struct pickle *pickle, uint32_t number);

#endif
