/* wanted_calls.c - table of the calls whose records we request from CUPTI, found by the numbers in those records. */
#include "cupti/client.h"

#define CALL(domain, number, symbol, class, enumerator) {TFI_CUPTI_##domain, number, #symbol, #class},
const struct tfi_cupti_call tfi_cupti_calls[] = {
#include "cupti/calls.def"
};
#undef CALL
const unsigned tfi_cupti_nr_calls = TFI_COUNT(tfi_cupti_calls);

/* Binary search: each domain's rows are in the order of their numbers, the runtime's first. */
int tfi_cupti_call_index(uint32_t domain, uint32_t number)
{
    uint64_t wanted = (uint64_t)(domain == TFI_CUPTI_DRIVER) << 32 | number;
    unsigned low = 0, high = tfi_cupti_nr_calls;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        const struct tfi_cupti_call *call = &tfi_cupti_calls[middle];
        uint64_t found = (uint64_t)(call->domain == TFI_CUPTI_DRIVER) << 32 | call->number;
        if (found == wanted) return (int)middle;
        if (found < wanted) low = middle + 1;
        else high = middle;
    }
    return -1;
}
