/* gzip_out.h - writes gzip files, and compresses them on several cores.
 *
 * A file is one gzip member, as every reader of gzip takes it. It is compressed in blocks of a fixed size, each with the
 * 32 KB before it as its dictionary, so its bytes do not depend on the number of threads. All files share the threads
 * and one queue of blocks, whose length limits the memory.
 *
 * Threads: one thread of the program calls these functions.
 */
#ifndef TFA_GZIP_OUT_H
#define TFA_GZIP_OUT_H

#include <stdbool.h>
#include <stddef.h>

enum { GZIP_BLOCK = 1 << 17 }; /* bytes that are compressed at a time */

struct gzip_out;

/* Sets the number of threads of the files that are opened from now on, as jobs_count understands it. With one, the
 * caller's thread compresses. */
void gzip_out_jobs(size_t asked);

/* Begins a file in `fd`, which gzip_out_close closes. */
struct gzip_out *gzip_out_open(int fd);
/* Return 0, or the errno of the first write that failed, now or before. Blocks that wait in the queue are written
 * later, so a call may return the error of an earlier one. */
int gzip_out_write(struct gzip_out *file, const char *bytes, size_t length);
int gzip_out_close(struct gzip_out *file);
/* Closes a file that is to be removed. */
void gzip_out_discard(struct gzip_out *file);

#endif
