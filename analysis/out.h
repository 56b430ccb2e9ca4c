/* out.h - where an answer goes: stdout, a file, or a packed file.
 *
 * A file is written under a temporary name and renamed when it is finished, so that nobody ever sees half of one.
 */
#ifndef TFA_OUT_H
#define TFA_OUT_H

#include <zlib.h>

#include "file_out.h"
#include "visible.h"

struct out {
    int fd;
    gzFile packed; /* NULL: not packed */
    char *path;    /* NULL: stdout */
    struct file_out file;
    char *buffer;
    size_t used;
    bool failed; /* said so already; nothing more is written */
};

bool out_open(struct out *out, const char *path); /* NULL: stdout. False: a line on stderr says why */
/* The last part of the path is created in a directory that is open already: no link is followed. */
bool out_open_in(struct out *out, int directory, const char *path, unsigned mode);
void out_write(struct out *out, const char *bytes, size_t length);
void out_puts(struct out *out, const char *string);
void out_format(struct out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool out_close(struct out *out);   /* finishes the file; false if it could not be written, said on stderr */
void out_discard(struct out *out); /* leaves no file */

/* A JSON string with its quotes. Bytes that are no UTF-8 become U+FFFD each. */
void out_json_string(struct out *out, const char *bytes, size_t length);
void out_number(struct out *out, uint64_t number);
/* Nanoseconds as microseconds: 12.345; as milliseconds: 0.012345. */
void out_us(struct out *out, int64_t ns);
void out_ms(struct out *out, int64_t ns);
/* JSON as it stands in a trace, with escapes for what would act on a terminal. */
void out_json_raw(struct out *out, const char *json, size_t length);

#endif
