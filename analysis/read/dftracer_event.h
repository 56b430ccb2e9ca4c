/* dftracer_event.h - scans one event of a dftracer trace. */
#ifndef TFA_DFTRACER_EVENT_H
#define TFA_DFTRACER_EVENT_H

#include "read/dftracer.h"
#include "read/json/keys.h"

struct dftracer_scanner {
    struct key_table keys[2]; /* [0]: keys of events, [1]: keys of their args */
    struct text scratch;      /* unescaped texts of the current event */
    uint32_t escaped;         /* bits of enum dftracer_text */
};

void dftracer_scanner_init(struct dftracer_scanner *scanner);
/* Scans the event that begins at `p`, a `{`. Returns the position behind it, or NULL if it is invalid or cut. Its
 * texts are valid until the next call. */
const char *dftracer_scan(struct dftracer_scanner *scanner, const char *p, struct dftracer_event *event);
void dftracer_scanner_free(struct dftracer_scanner *scanner);

#endif
