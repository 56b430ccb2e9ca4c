/* call_kinds.c - tells the kind of a call from its name. */
#include "ask/device/call_kinds.h"

#include <string.h>

const char *const call_kind_keys[NR_CALL_KINDS] = {"launches", "graph_launches", "copies",
                                                   "memsets",  "syncs",          "dispatches"};

static bool has(const char *name, const char *word)
{
    return strstr(name, word) != NULL;
}

enum call_kind call_kind_of(const char *name)
{
    if (has(name, "GraphLaunch")) return GRAPH_LAUNCH;
    if (has(name, "Graph") || has(name, "HostFunc") || has(name, "Attribute")) return NO_KIND;
    return has(name, "Synchronize") || has(name, "urQueueFinish") || has(name, "urEventWait") ? SYNC
           : has(name, "Memcpy") && !has(name, "Get")                                         ? COPY
           : has(name, "Memset") || has(name, "USMFill")                                      ? MEMSET
           : has(name, "Launch")                                                              ? LAUNCH
                                                                                              : NO_KIND;
}

bool call_allocates(const char *name)
{
    static const char *const words[] = {"Malloc", "Free", "MemAlloc", "HostAlloc", "MemCreate", "MemMap"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (has(name, words[i])) return true;
    return false;
}
