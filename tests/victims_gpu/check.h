/* check.h - macros that end a program for the simulated GPU at the first unexpected result. */
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
