/* slow_stages.c - has the seconds before a slow call of a stage kept.
 *
 * The thread gives its chunk to the writer, so that the call's own records are in the trace before these seconds go.
 */
#include "flight/slow_stages.h"

#include "base/tfi.h"
#include "flight/aggregates.h"
#include "flight/moments.h"
#include "record/chunk.h"

void tfi_flight_stage(struct tfi_thread *thread, uint32_t name, uint64_t start, uint64_t end, bool again)
{
    uint64_t usual = tfi_aggregate_stage(name, end - start, again);
    if (TFI_UNLIKELY(usual != 0) && tfi_moment_ask(TFI_MOMENT_SLOW, name, start, end, usual))
        tfi_chunk_hand_over(thread);
}
