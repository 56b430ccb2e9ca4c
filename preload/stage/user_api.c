/* user_api.c - implements the functions of include/tfinject.h.
 *
 * Their ranges are those of NVTX's default domain, with a flag for their source. Programs reach the functions by weak
 * symbols, so calls come only if the library was loaded with the program.
 */
#include <string.h>

#define TFI_API __attribute__((visibility("default")))
#define TFI_NO_MACROS 1
#include "tfinject.h"

#include "base/tfi.h"
#include "record/enter.h"
#include "record/strings.h"
#include "stage/stage.h"

static struct tfi_range range_of(const char *name, uint32_t flags)
{
    return (struct tfi_range){.name = tfi_string(name, name ? strnlen(name, TFI_STRING_MAX) : 0),
                              .flags = flags | TFI_RANGE_API};
}

int tfi_range_push(const char *name)
{
    struct tfi_thread *thread = tfi_enter(TFI_WHY_STAGE);
    if (!thread) return TFI_NOT_RECORDED;
    struct tfi_range range = range_of(name, TFI_RANGE_STAGE);
    int depth = tfi_stage_push(thread, &range);
    tfi_leave(thread);
    return depth;
}

/* Ends do not wake the process: the beginning would have woken it if it was to be recorded. */
int tfi_range_pop(void)
{
    struct tfi_thread *thread = tfi_enter(TFI_WHY_NONE);
    if (!thread) return TFI_NOT_RECORDED;
    int depth = tfi_stage_pop(thread, 0);
    tfi_leave(thread);
    return depth;
}

uint64_t tfi_range_start(const char *name)
{
    struct tfi_thread *thread = tfi_enter(TFI_WHY_STAGE);
    if (!thread) return 0;
    struct tfi_range range = range_of(name, TFI_RANGE_STAGE);
    uint64_t id = tfi_stage_start(thread, &range);
    tfi_leave(thread);
    return id;
}

void tfi_range_end(uint64_t id)
{
    struct tfi_thread *thread = id ? tfi_enter(TFI_WHY_NONE) : NULL;
    if (!thread) return;
    tfi_stage_end(thread, id);
    tfi_leave(thread);
}

void tfi_mark(const char *name)
{
    struct tfi_thread *thread = tfi_enter(TFI_WHY_STAGE);
    if (!thread) return;
    struct tfi_range mark = range_of(name, 0);
    tfi_stage_mark(thread, &mark);
    tfi_leave(thread);
}
