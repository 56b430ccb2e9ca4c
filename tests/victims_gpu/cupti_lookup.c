/* cupti_lookup.c - cupti_client.c as a client that opens CUPTI and looks every function up by name.
 *
 * Triton's Proton does so. The client uses no symbol of a preloaded library.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <cupti.h>

#include "../simgpu/cupti_v2.h"

static void *look(const char *name)
{
    static void *library;
    if (!library) library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) printf("{\"lacks\":\"%s\"}\n", name), exit(4);
    return found;
}

#define cuptiActivityEnable_v2 ((__typeof__(&cuptiActivityEnable_v2))look("cuptiActivityEnable_v2"))
#define cuptiActivityDisable_v2 ((__typeof__(&cuptiActivityDisable_v2))look("cuptiActivityDisable_v2"))
#define cuptiActivityRegisterCallbacks_v2                                                                              \
    ((__typeof__(&cuptiActivityRegisterCallbacks_v2))look("cuptiActivityRegisterCallbacks_v2"))
#define cuptiActivitySetAttribute_v2 ((__typeof__(&cuptiActivitySetAttribute_v2))look("cuptiActivitySetAttribute_v2"))
#define cuptiGetTimestamp_v2 ((__typeof__(&cuptiGetTimestamp_v2))look("cuptiGetTimestamp_v2"))
#define cuptiSubscribe_v2 ((__typeof__(&cuptiSubscribe_v2))look("cuptiSubscribe_v2"))
#define cuptiActivityDisable ((__typeof__(&cuptiActivityDisable))look("cuptiActivityDisable"))
#define cuptiActivityEnable ((__typeof__(&cuptiActivityEnable))look("cuptiActivityEnable"))
#define cuptiActivityEnableAndDump ((__typeof__(&cuptiActivityEnableAndDump))look("cuptiActivityEnableAndDump"))
#define cuptiActivityEnableContext ((__typeof__(&cuptiActivityEnableContext))look("cuptiActivityEnableContext"))
#define cuptiActivityEnableDriverApi ((__typeof__(&cuptiActivityEnableDriverApi))look("cuptiActivityEnableDriverApi"))
#define cuptiActivityEnableLatencyTimestamps                                                                           \
    ((__typeof__(&cuptiActivityEnableLatencyTimestamps))look("cuptiActivityEnableLatencyTimestamps"))
#define cuptiActivityEnableHWTrace ((__typeof__(&cuptiActivityEnableHWTrace))look("cuptiActivityEnableHWTrace"))
#define cuptiActivityFlushAll ((__typeof__(&cuptiActivityFlushAll))look("cuptiActivityFlushAll"))
#define cuptiActivityFlushPeriod ((__typeof__(&cuptiActivityFlushPeriod))look("cuptiActivityFlushPeriod"))
#define cuptiActivityGetNextRecord ((__typeof__(&cuptiActivityGetNextRecord))look("cuptiActivityGetNextRecord"))
#define cuptiActivityGetNumDroppedRecords                                                                              \
    ((__typeof__(&cuptiActivityGetNumDroppedRecords))look("cuptiActivityGetNumDroppedRecords"))
#define cuptiActivityPopExternalCorrelationId                                                                          \
    ((__typeof__(&cuptiActivityPopExternalCorrelationId))look("cuptiActivityPopExternalCorrelationId"))
#define cuptiActivityPushExternalCorrelationId                                                                         \
    ((__typeof__(&cuptiActivityPushExternalCorrelationId))look("cuptiActivityPushExternalCorrelationId"))
#define cuptiActivityRegisterCallbacks                                                                                 \
    ((__typeof__(&cuptiActivityRegisterCallbacks))look("cuptiActivityRegisterCallbacks"))
#define cuptiActivityRegisterTimestampCallback                                                                         \
    ((__typeof__(&cuptiActivityRegisterTimestampCallback))look("cuptiActivityRegisterTimestampCallback"))
#define cuptiEnableCallback ((__typeof__(&cuptiEnableCallback))look("cuptiEnableCallback"))
#define cuptiEnableDomain ((__typeof__(&cuptiEnableDomain))look("cuptiEnableDomain"))
#define cuptiFinalize ((__typeof__(&cuptiFinalize))look("cuptiFinalize"))
#define cuptiGetCallbackName ((__typeof__(&cuptiGetCallbackName))look("cuptiGetCallbackName"))
#define cuptiGetContextId ((__typeof__(&cuptiGetContextId))look("cuptiGetContextId"))
#define cuptiGetDeviceId ((__typeof__(&cuptiGetDeviceId))look("cuptiGetDeviceId"))
#define cuptiGetResultString ((__typeof__(&cuptiGetResultString))look("cuptiGetResultString"))
#define cuptiGetStreamIdEx ((__typeof__(&cuptiGetStreamIdEx))look("cuptiGetStreamIdEx"))
#define cuptiGetTimestamp ((__typeof__(&cuptiGetTimestamp))look("cuptiGetTimestamp"))
#define cuptiGetVersion ((__typeof__(&cuptiGetVersion))look("cuptiGetVersion"))
#define cuptiSetThreadIdType ((__typeof__(&cuptiSetThreadIdType))look("cuptiSetThreadIdType"))
#define cuptiSubscribe ((__typeof__(&cuptiSubscribe))look("cuptiSubscribe"))
#define cuptiUnsubscribe ((__typeof__(&cuptiUnsubscribe))look("cuptiUnsubscribe"))

#include "cupti_client.c"
