/* fuzz.h - is shared by the fuzzers: the function that libFuzzer calls, and the check of an invariant. */
#ifndef TFI_FUZZ_H
#define TFI_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static inline void require(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "does not hold: %s\n", what);
        abort();
    }
}

#endif
