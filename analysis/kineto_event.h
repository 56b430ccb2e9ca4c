/* kineto_event.h - finds in one event the members that matter. */
#ifndef TFA_KINETO_EVENT_H
#define TFA_KINETO_EVENT_H

#include "read_kineto.h"

enum { EVENT_KEYS = 64 };

/* A key is found by its first eight bytes and its length. */
struct known_key {
    uint64_t word;
    const char *text;
    uint8_t length, key; /* length 0: a free place */
};

struct kineto_scanner {
    struct known_key keys[2][EVENT_KEYS]; /* of events, of their args */
    struct text scratch;                  /* texts of the event at hand, without escapes */
    bool escaped_name, escaped_category;
};

void scanner_init(struct kineto_scanner *scanner);
/* Looks at the event that begins at `p`, a `{`. Returns the place behind it, or NULL: it makes no sense, or is cut
 * (`*stopped` tells where). Its texts are good until the next call. */
const char *scan_event(struct kineto_scanner *scanner, const char *p, struct kineto_event *event, const char **stopped);
bool is_event_key(const struct kineto_scanner *scanner, const char *text, size_t length);
void scanner_free(struct kineto_scanner *scanner);

#endif
