/* check.h - how the programs for the simulated GPU end at the first thing that is not as it should be. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        CUresult e_ = (call);                                                                                          \
        if (e_ != CUDA_SUCCESS) printf("%d: %s: %d\n", __LINE__, #call, (int)e_), exit(1);                             \
    } while (0)
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) printf("%d: not so: %s\n", __LINE__, #condition), exit(1);                                   \
    } while (0)

#endif
