/* dummy.h - a library nobody has, for tests of the wrappers; as a vendor's header would be included. */
#ifndef DUMMY_H
#define DUMMY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Adds one to x; the cheapest call there is. */
long dummy_add(long x);
/* Sets errno to `error`, leaves it if 0, and returns `result`. */
int dummy_fail(int error, int result);
/* Writes x into *out; returns nothing. */
void dummy_store(uint64_t *out, uint64_t x);
/* Calls dummy_add(x) `depth` times inside itself, one in the other's frame. */
long dummy_nested(long x, int depth);
/* Sleeps; a cancellation point. */
int dummy_sleep(unsigned ms);
/* Returns its third argument. */
const char *dummy_many(int a, int64_t b, const char *c, double *d, size_t e, uint8_t f);
/* Returns what f gives for x; f may leave it by an exception, or end the thread. */
long dummy_call(long (*f)(long), long x);

#ifdef __cplusplus
}
#endif
#endif
