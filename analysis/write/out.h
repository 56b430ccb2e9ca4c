/* out.h - the output of an answer: stdout, a file, or a gzip file.
 *
 * A file is written under a temporary name and renamed when it is finished, so no incomplete file is ever visible.
 */
#ifndef TFA_OUT_H
#define TFA_OUT_H

#include <string.h>

#include "base/file_out.h"
#include "base/gzip/gzip_out.h"
#include "base/escape.h"

enum { OUT_BUFFER = 1 << 16 };

struct out {
    int fd;
    struct gzip_out *packed; /* NULL: not compressed */
    char *path;              /* NULL: stdout */
    struct file_out file;
    char *buffer;
    size_t used;
    size_t room; /* of `buffer` if the output stays in memory, else 0 */
    bool failed; /* already reported; nothing more is written */
};

bool out_open(struct out *out, const char *path); /* NULL: stdout. Returns false after a message on stderr */
/* Lets nobody but the owner read the file. */
void out_hide(struct out *out);
/* Creates the last part of the path in an open directory; follows no link. */
bool out_open_in(struct out *out, int directory, const char *path, unsigned mode);
/* Begins an output that stays in memory, as `buffer` and `used`. out_discard ends it. */
void out_memory(struct out *out);
/* Makes room for `more` bytes behind those of an output in memory, which it does not count. Returns the place. */
char *out_room(struct out *out, size_t more);
void out_write_beyond(struct out *out, const char *bytes, size_t length); /* what the buffer may have no room for */
static inline void out_write(struct out *out, const char *bytes, size_t length)
{
    if (out->room || length >= OUT_BUFFER - out->used) {
        out_write_beyond(out, bytes, length);
        return;
    }
    if (length) memcpy(out->buffer + out->used, bytes, length);
    out->used += length;
}
static inline void out_puts(struct out *out, const char *string)
{
    out_write(out, string, strlen(string));
}
void out_spaces(struct out *out, size_t count);
void out_format(struct out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool out_close(struct out *out);   /* finishes the file; false, after a message on stderr, if it could not be written */
void out_forget(struct out *out);  /* drops what is not written yet; nothing more is written */
void out_discard(struct out *out); /* leaves no file */

/* Writes a JSON string with its quotes. Control characters and direction marks are escaped. Each byte that is not part
 * of valid UTF-8 becomes U+FFFD. */
void out_json_string(struct out *out, const char *bytes, size_t length);
void out_number(struct out *out, uint64_t number);
void out_int(struct out *out, int64_t number);
void out_hex(struct out *out, uint64_t number); /* as 0x7f1c */
/* Write a number, and nanoseconds as microseconds. Return the length. */
enum { NUMBER_DIGITS = 20, US_LENGTH = 24 };
size_t number_write(char to[NUMBER_DIGITS], uint64_t number);
size_t us_write(char to[US_LENGTH], int64_t ns);
/* Write nanoseconds as microseconds (12.345) and as milliseconds (0.012345). */
void out_us(struct out *out, int64_t ns);
void out_ms(struct out *out, int64_t ns);
/* Writes JSON from a trace, with escapes for characters that would act on a terminal. */
void out_json_raw(struct out *out, const char *json, size_t length);

#endif
