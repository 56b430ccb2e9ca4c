/* outside.h - reads objects of an interpreter from outside, while its threads are free to change them. */
#ifndef TFI_OUTSIDE_H
#define TFI_OUTSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "python/layout.h"

struct iovec;

/* Nothing here takes a lock, sends a signal or touches the interpreter: memory is only read through the kernel, which
 * refuses a stale address instead of faulting. What was read counts only if it has the expected type. */

/* What is known of the interpreter, after tfi_outside_prepare(). */
struct tfi_outside {
    const struct tfi_python_layout *layout; /* NULL: it cannot be read */
    uint64_t code, str, bytes, frame;       /* addresses of the types */
    uint64_t runtime;                       /* of _PyRuntime; 0: unknown */
    void *(*first)(void), *(*main)(void);   /* return an interpreter, and only read */
};
extern struct tfi_outside tfi_outside;

/* Looks the interpreter up, which may wait for the loader's lock. False if it cannot be read. */
bool tfi_outside_prepare(void);

/* Copy memory of this process; false, with errno set, if not all of it could be read. */
bool tfi_outside_pull(void *to, uint64_t from, size_t bytes);
bool tfi_outside_pull_all(const struct iovec *to, const struct iovec *from, unsigned count);

static inline uint64_t tfi_pointer_in(const char *copy, int offset)
{
    uint64_t value;
    memcpy(&value, copy + offset, sizeof value);
    return value;
}

/* Lists the interpreters whose threads have states of their own, the newest first. Up to 3.11 a thread state of a further
 * interpreter keeps the id of the thread that made it, so only the main one is listed. Returns their number. */
#define TFI_INTERPRETERS 64
unsigned tfi_outside_interpreters(uint64_t found[TFI_INTERPRETERS]);

#define TFI_OUTSIDE_STR (80 + 4 * TFI_PYTHON_CHARACTERS) /* a str that is read, at most */

/* Adds the characters of a str; false if there is none at this address. `room` has TFI_OUTSIDE_STR bytes. */
struct tfi_text;
bool tfi_outside_name(struct tfi_text *text, uint64_t str, char *room);

/* Returns the line of the instruction at offset `at` from a line table, 0 if it cannot be read into `room`. */
int tfi_outside_line(uint64_t table, int64_t at, int first, char *room, size_t size);

/* The processor time of a thread in nanoseconds; false if it is unknown. */
bool tfi_outside_cpu(uint32_t tid, uint64_t *ns);

#endif
