/* kineto_event.h - finds the relevant members of one event. */
#ifndef TFA_KINETO_EVENT_H
#define TFA_KINETO_EVENT_H

#include "read/json/keys.h"
#include "read/kineto.h"

/* The key found last at one place of an object: its bytes, the quote behind it, and colon and space where all fit. */
struct key_guess {
    char bytes[16];
    uint16_t mask; /* of the bytes that count; 0: none yet */
    uint8_t length, key;
};

/* The number found last as pid or tid: its bytes with the comma behind them. */
struct row_guess {
    char bytes[16];
    uint16_t mask; /* as above */
    uint8_t length;
    int64_t number;
};

/* Guesses by the kind of event (phase), or of args (category), and by the number of the member in its object. */
enum { GUESSED_KINDS = 8, GUESSED_MEMBERS = 16 };

struct kineto_scanner {
    struct key_table keys[2]; /* [0]: keys of events, [1]: keys of their args */
    struct key_guess guess[2][GUESSED_KINDS][GUESSED_MEMBERS];
    struct row_guess row[2]; /* [0]: of pids, [1]: of tids */
    struct text scratch;     /* unescaped texts of the current event */
    bool escaped_name, escaped_category;
    bool ask_clean; /* as the sink's */
};

void scanner_init(struct kineto_scanner *scanner);
/* Scans the event that begins at `p`, a `{`. Returns the position behind it, or NULL if it is invalid or cut
 * (*stopped has the position). Its texts are valid until the next call. */
const char *scan_event(struct kineto_scanner *scanner, const char *p, struct kineto_event *event, const char **stopped);
bool is_event_key(const struct kineto_scanner *scanner, const char *text, size_t length);
void scanner_free(struct kineto_scanner *scanner);

#endif
