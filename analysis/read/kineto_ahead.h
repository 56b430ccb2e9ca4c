/* kineto_ahead.h - scans the events of a block of JSON before the reader comes to it, on another thread. */
#ifndef TFA_KINETO_AHEAD_H
#define TFA_KINETO_AHEAD_H

#include "read/kineto_event.h"
#include "read/stream/stream.h"

/* More events in a block are left to the reader. */
enum { KINETO_AHEAD = (STREAM_BLOCK + STREAM_CARRY) / 64 };

struct kineto_scan {
    struct kineto_event event[KINETO_AHEAD];
    size_t count;
    char *after;                             /* behind the last one */
    char texts[STREAM_BLOCK + STREAM_CARRY]; /* unescaped ones */
};

/* The scanner is only read, and lasts as long as the reading. */
struct stream_ahead kineto_ahead(const struct kineto_scanner *scanner);

#endif
