/* dummy.h - the header of libdummy.so, a library for the tests of the wrappers: stands for a vendor's header. */
#ifndef DUMMY_H
#define DUMMY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Adds one to x; the cheapest call. */
long dummy_add(long x);
/* Sets errno to `error` unless that is 0, and returns `result`. */
int dummy_fail(int error, int result);
/* Writes x into *out; returns nothing. */
void dummy_store(uint64_t *out, uint64_t x);
/* Calls dummy_add(x) from `depth` nested calls of itself. */
long dummy_nested(long x, int depth);
/* Sleeps. It is a cancellation point. */
int dummy_sleep(unsigned ms);
/* Returns `c`. */
const char *dummy_many(int a, int64_t b, const char *c, double *d, size_t e, uint8_t f);
/* Returns f(x). An exception may leave f, or f may end the thread. */
long dummy_call(long (*f)(long), long x);

#ifdef __cplusplus
}
#endif
#endif
