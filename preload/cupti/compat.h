/* compat.h - declares types that CUPTI's headers before 13.0 lack. */
#ifndef TFI_CUPTI_COMPAT_H
#define TFI_CUPTI_COMPAT_H

#include <cupti.h>

#if CUPTI_API_VERSION < 130000
/* Only the fields that are read here. */
typedef struct {
    size_t structSize;
    const char *subscriberName;
} CUpti_SubscriberParams;
#endif

#endif
