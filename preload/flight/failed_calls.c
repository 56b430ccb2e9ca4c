/* failed_calls.c - has the seconds before an error of CUDA or NCCL kept.
 *
 * Only the first error with each number counts: those that follow are mostly its consequences.
 */
#include "flight/failed_calls.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/tfi.h"
#include "flight/moments.h"
#include "record/chunk.h"
#include "record/strings.h"

enum { CUDA_NOT_READY = 600, NCCL_IN_PROGRESS = 7, MOST_ERROR = 100000 };

static uint32_t seen[64]; /* library << 24 | result, 0: free */

void tfi_failed_calls_restart(void)
{
    memset(seen, 0, sizeof seen);
}

/* The number of an error; 0: none. A function's description begins with its library, see tfi_trace.h. */
static uint32_t error_of(uint32_t func, int64_t result)
{
    static const char *const libraries[] = {"cuda\x1f", "cudart\x1f", "nccl\x1f"};
    size_t length;
    const char *text = tfi_string_text(func, &length);
    for (uint32_t i = 0; text && i < TFI_COUNT(libraries); i++) {
        bool is_nccl = i == 2;
        if (strncmp(text, libraries[i], strlen(libraries[i])) != 0) continue;
        if (result <= 0 || result > MOST_ERROR || result == (is_nccl ? NCCL_IN_PROGRESS : CUDA_NOT_READY)) return 0;
        return (is_nccl ? 2u : 1u) << 24 | (uint32_t)result;
    }
    return 0;
}

static bool is_first(uint32_t error)
{
    for (unsigned i = 0; i < TFI_COUNT(seen); i++) {
        uint32_t found = 0;
        if (__atomic_compare_exchange_n(&seen[i], &found, error, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return true;
        if (found == error) return false;
    }
    return false;
}

TFI_COLD void tfi_flight_result(struct tfi_thread *thread, uint32_t func, uint64_t start, uint64_t end, int64_t result)
{
    uint32_t error = error_of(func, result);
    if (error && is_first(error) && tfi_moment_ask(TFI_MOMENT_ERROR, func, start, end, 0)) tfi_chunk_hand_over(thread);
}
