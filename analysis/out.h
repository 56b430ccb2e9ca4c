/* out.h - where an answer goes: stdout, a file, or a packed file.
 *
 * A file is written under a temporary name and renamed when it is finished, so that nobody ever sees half of one.
 */
#ifndef TFA_OUT_H
#define TFA_OUT_H

#include <zlib.h>

#include "util.h"

struct out {
    int fd;
    gzFile packed; /* NULL: not packed */
    char *path;    /* NULL: stdout */
    char *temporary;
    char *buffer;
    size_t used;
    bool failed; /* said so already; nothing more is written */
};

bool out_open(struct out *out, const char *path); /* NULL: stdout. False: a line on stderr says why */
void out_write(struct out *out, const char *bytes, size_t length);
void out_puts(struct out *out, const char *string);
void out_format(struct out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool out_close(struct out *out);   /* finishes the file; false if it could not be written, said on stderr */
void out_discard(struct out *out); /* leaves no file */

/* A JSON string with its quotes. Bytes that are no UTF-8 become U+FFFD each. */
void out_json_string(struct out *out, const char *bytes, size_t length);
void out_number(struct out *out, uint64_t number);
/* Nanoseconds as microseconds: 12.345. */
void out_us(struct out *out, int64_t ns);
/* Length of the UTF-8 sequence at p, 0 if it is none. */
size_t utf8_length(const char *p, const char *end);

#endif
