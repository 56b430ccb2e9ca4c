/* cupti_v2.h - CUPTI's second interface, with kinds and buffers for every client. Headers declare it from 13.2 on.
 *
 * It declares the simulated part, for older headers. The contents of a configuration have no effect.
 */
#ifndef CUPTI_V2_H
#define CUPTI_V2_H

#include <stdint.h>

#include <cupti.h>

#pragma GCC visibility push(default)
#if CUPTI_API_VERSION < 130200
typedef struct {
    size_t structSize;
} CUpti_BufferCallbackRequestInfo;
typedef struct {
    size_t structSize;
    uint64_t threadId;
    void **ppRecordLayouts;
    size_t numRecordLayouts;
} CUpti_BufferCallbackCompleteInfo;
typedef struct CUpti_ActivityConfig_st CUpti_ActivityConfig;
typedef void (*CUpti_BuffersCallbackRequestFunc_v2)(uint8_t **buffer, size_t *size, size_t *max,
                                                    CUpti_BufferCallbackRequestInfo *info);
typedef void (*CUpti_BuffersCallbackCompleteFunc_v2)(uint8_t *buffer, size_t size, size_t valid,
                                                     CUpti_BufferCallbackCompleteInfo *info);
CUptiResult cuptiActivityEnable_v2(CUpti_SubscriberHandle subscriber, CUpti_ActivityKind kind,
                                   CUpti_ActivityConfig *config);
CUptiResult cuptiActivityDisable_v2(CUpti_SubscriberHandle subscriber, CUpti_ActivityKind kind,
                                    CUpti_ActivityConfig *config);
CUptiResult cuptiActivityRegisterCallbacks_v2(CUpti_SubscriberHandle subscriber,
                                              CUpti_BuffersCallbackRequestFunc_v2 request,
                                              CUpti_BuffersCallbackCompleteFunc_v2 complete);
CUptiResult cuptiActivitySetAttribute_v2(CUpti_SubscriberHandle subscriber, CUpti_ActivityAttribute attribute,
                                         size_t *size, void *value);
#endif
#if CUPTI_API_VERSION < 130300
CUptiResult cuptiActivityGetNextRecord_v2(CUpti_SubscriberHandle subscriber, uint8_t *buffer, size_t valid,
                                          CUpti_Activity **record);
CUptiResult cuptiActivityGetNumDroppedRecords_v2(CUpti_SubscriberHandle subscriber, CUcontext context, uint32_t stream,
                                                 size_t *dropped);
CUptiResult cuptiGetTimestamp_v2(CUpti_SubscriberHandle subscriber, uint64_t *timestamp);
#endif
#pragma GCC visibility pop

#endif
