/* cupti_compat.h - what headers of CUPTI before 13.0 do not have yet. */
#ifndef TFI_CUPTI_COMPAT_H
#define TFI_CUPTI_COMPAT_H

#include <cupti.h>

#if CUPTI_API_VERSION < 130000
/* As far as it is read here. */
typedef struct {
    size_t structSize;
    const char *subscriberName;
} CUpti_SubscriberParams;
#endif

#endif
