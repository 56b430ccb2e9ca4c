/* broker.h - what the broker's two halves share: broker.c for clients of CUPTI's first interface, broker_v2.c for others.
 *
 * It needs CUPTI's headers, which the rest of the library does without.
 */
#ifndef TFI_BROKER_H
#define TFI_BROKER_H

#include "cupti_client.h"
#include "cupti_compat.h"
#include "hooks.h"

#define LIBRARY(name, soname)
#define HOOK_CUSTOM(class, ret, symbol, params, names) TFI_EXPORT ret symbol params;
#include "cupti.def"
#undef LIBRARY
#undef HOOK_CUSTOM

/* For cuptiFinalize while clients of the second interface are there: unsubscribes them. */
void tfi_v2_finalize(CUptiResult (*unsubscribe)(CUpti_SubscriberHandle));

#endif
