/* other_clients.h - shared by the files about other clients of CUPTI.
 *
 * other_clients.c decides which client a record belongs to. other_calls.c has the functions that clients of the first
 * interface call, other_clients_v2.c those of the second. This header needs CUPTI's headers, which the rest of the
 * library does without.
 */
#ifndef TFI_OTHER_CLIENTS_H
#define TFI_OTHER_CLIENTS_H

#include "cupti/client.h"
#include "cupti/compat.h"
#include "hooks/hooks.h"

#define LIBRARY(name, soname)
#define HOOK_CUSTOM(class, ret, symbol, params, names) TFI_EXPORT ret symbol params;
#include "cupti/cupti.def"
#undef LIBRARY
#undef HOOK_CUSTOM

/* ---- requests of the program's client; all of it atomic words ---- */

#define TFI_OTHER_CALLS 1024u /* callback ids; there are some 850 */
#define TFI_OTHER_WORDS (TFI_OTHER_CALLS / 64)

/* One bit for each of an API's calls. */
struct tfi_other_calls {
    uint64_t bits[TFI_OTHER_WORDS];
};

/* Returns the bit of a kind or of a callback id in its word. */
static inline uint64_t tfi_other_bit(uint32_t n)
{
    return 1ull << n % 64;
}

/* A time in which another client has something enabled: the kinds and single calls that were enabled in it at some
 * time, but for the calls that were taken out of their kind. */
struct tfi_other_window {
    uint64_t start, end; /* in CUPTI's time; 0 if unknown, or not yet */
    uint32_t before;     /* last call id known to be older, 0 if none is */
    uint32_t after;      /* first call id known to be younger */
    uint64_t kinds;
    uint64_t overhead_start, overhead_end; /* of the kind OVERHEAD, which we have always enabled; 0: not yet */
    struct tfi_other_calls runtime, driver;
};
#define TFI_OTHER_WINDOWS 4u

struct tfi_other_client {
    CUpti_BuffersCallbackRequestFunc request;
    CUpti_BuffersCallbackCompleteFunc complete;
    CUpti_TimestampCallbackFunc clock;
    bool clock_taken; /* passed on to CUPTI */
    uint64_t wanted;  /* kinds that are enabled now */
    struct tfi_other_calls runtime, driver;
    uint32_t edges; /* beginnings and ends of windows so far: odd while anything is wanted */
    uint32_t seen;  /* latest call id in any buffer so far, 0 if there was none */
    struct tfi_other_window windows[TFI_OTHER_WINDOWS];
    uint64_t dropped; /* counted when we read the count, not yet reported to the client */
};
extern struct tfi_other_client tfi_other;

/* A buffer of the program. */
struct tfi_other_copy {
    uint8_t *data;
    size_t size, used, max, count;
};

/* A buffer of the program that was requested ahead; CUPTI does not know it. */
extern struct tfi_other_ahead {
    struct tfi_other_copy copy;
    uint32_t state; /* atomic */
} tfi_other_ahead;
enum { TFI_NONE_AHEAD = 0, TFI_BUSY = 1, TFI_ONE_AHEAD = 2 };

/* Return the single calls of an API that are enabled now, and those of a window; NULL for a kind that is no API. */
static inline struct tfi_other_calls *tfi_other_calls(uint32_t kind)
{
    return kind == TFI_CUPTI_RUNTIME ? &tfi_other.runtime : kind == TFI_CUPTI_DRIVER ? &tfi_other.driver : NULL;
}

static inline struct tfi_other_calls *tfi_other_window_calls(struct tfi_other_window *w, uint32_t kind)
{
    return kind == TFI_CUPTI_RUNTIME ? &w->runtime : kind == TFI_CUPTI_DRIVER ? &w->driver : NULL;
}

/* Called by cuptiFinalize: unsubscribes the clients of the second interface. */
void tfi_v2_finalize(CUptiResult (*unsubscribe)(CUpti_SubscriberHandle));

#endif
