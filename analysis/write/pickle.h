/* pickle.h - writes Python's pickle format, protocol 2: dicts, lists, texts, whole numbers and truth values.
 *
 *     pickle_begin(&p, out); pickle_open_dict(&p); pickle_text(&p, "key", 3); pickle_int(&p, 7); pickle_close_dict(&p);
 *     pickle_end(&p);
 */
#ifndef TFA_PICKLE_H
#define TFA_PICKLE_H

#include "write/out.h"

struct pickle {
    struct out *out;
    uint32_t remembered;
};

void pickle_begin(struct pickle *pickle, struct out *out);
void pickle_end(struct pickle *pickle);
/* Write keys and values alternately between these two. */
void pickle_open_dict(struct pickle *pickle);
void pickle_close_dict(struct pickle *pickle);
void pickle_open_list(struct pickle *pickle);
void pickle_close_list(struct pickle *pickle);
/* Each byte that is not UTF-8 becomes U+FFFD. */
void pickle_text(struct pickle *pickle, const char *bytes, size_t length);
void pickle_key(struct pickle *pickle, const char *text);
void pickle_int(struct pickle *pickle, int64_t number);
void pickle_bool(struct pickle *pickle, bool value);
/* Numbers the value written last. pickle_again writes it again by that number, as the same object. */
uint32_t pickle_remember(struct pickle *pickle);
void pickle_again(struct pickle *pickle, uint32_t number);

#endif
