/* json_stream.h - steps through JSON in the window of a stream. */
#ifndef TFA_JSON_STREAM_H
#define TFA_JSON_STREAM_H

#include "read/stream/stream.h"

/* Moves to the next character that is no space. Returns it; 0 at the end of the file. */
char json_stream_next(struct stream *stream);

#endif
