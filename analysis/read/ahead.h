/* ahead.h - inflates the chunks of a trace on two threads: the caller's, and one of its own. */
#ifndef TFA_AHEAD_H
#define TFA_AHEAD_H

#include <stddef.h>
#include <stdint.h>

struct trace;

/* Starts the thread. Returns NULL if the system refuses it. The trace must stay open until ahead_close(). */
struct ahead *ahead_open(const struct trace *trace);
/* Returns the payload of a deflated chunk, valid until the next call; NULL if it is damaged. Only one thread calls it,
 * with growing numbers of pieces, and may skip some. */
const uint8_t *ahead_payload(struct ahead *ahead, size_t piece);
void ahead_close(struct ahead *ahead); /* NULL: does nothing */

#endif
