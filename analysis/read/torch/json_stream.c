/* json_stream.c - steps through JSON in the window of a stream. */
#include "read/torch/json_stream.h"

#include "read/json/json.h"

char json_stream_next(struct stream *s)
{
    for (;;) {
        const char *p = s->at < s->end ? json_space(s->at) : s->end;
        s->at = p < s->end ? s->at + (p - s->at) : s->end;
        if (s->at < s->end) return *s->at;
        if (!stream_more(s)) return 0;
    }
}
