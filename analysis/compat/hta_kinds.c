/* hta_kinds.c - sorts device work into kinds by the name alone, as HolisticTraceAnalysis 0.5.0 does. */
#include <string.h>

#include "compat/hta.h"

static bool starts(const struct name *name, const char *word)
{
    return name->length >= strlen(word) && memcmp(name->text, word, strlen(word)) == 0;
}

/* The `.` of HTA's patterns does not match a newline. */
static bool in_first_line(const struct name *name, const char *word)
{
    const char *end = memchr(name->text, '\n', name->length);
    size_t length = end ? (size_t)(end - name->text) : name->length;
    return memmem(name->text, length, word, strlen(word)) != NULL;
}

/* HTA's patterns: is_comm_kernel matches ^nccl.*Kernel, is_memory_kernel matches (^Memcpy)|(^Memset)|(^dma), and
 * is_compute_kernel does not match (^nccl.*Kernel)|(.*(Memcpy)|(Memset))|(.*Sync). */
static enum work_kind kind_of(enum event_class event_class, const struct name *name)
{
    (void)event_class;
    if (starts(name, "nccl") && in_first_line(name, "Kernel")) return WORK_COMMUNICATION;
    if (starts(name, "Memcpy") || starts(name, "Memset") || starts(name, "dma")) return WORK_MEMORY;
    return in_first_line(name, "Memcpy") || in_first_line(name, "Sync") ? WORK_OTHER : WORK_COMPUTATION;
}

const struct kind_rules hta_kind_rules = {kind_of, false};
