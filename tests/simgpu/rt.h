/* rt.h - the simulated runtime: the driver's functions, each thread's state, and macros for runtime functions.
 *
 * It reaches the driver as the real one does: dlopen of libcuda.so.1, dlsym of cuGetProcAddress_v2, and with the result
 * all other functions, once for the legacy and once for the per-thread default stream. It uses only the begin and the
 * end of a call from the simulated GPU's own interface, for the log.
 */
#ifndef SIMGPU_RT_H
#define SIMGPU_RT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "cuda.h"
#include "cudaTypedefs.h"
#include "cuda_runtime_api.h"
#include "simgpu.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Some packages of CUDA's headers lack the header of these types. C allows a second typedef of the same type. */
typedef CUresult(CUDAAPI *PFN_cuProfilerStart_v4000)(void);
typedef CUresult(CUDAAPI *PFN_cuProfilerStop_v4000)(void);

#define D(name, version) PFN_##name##_v##version name;
struct rt_driver {
#include "rt_driver.def"
};
#undef D
extern struct rt_driver rt_driver[2]; /* for the legacy and for the per-thread default stream */
extern int (*rt_begin_call)(struct simgpu_frame *, uint32_t, const char *);
extern int (*rt_end_call)(struct simgpu_frame *, int);

struct rt_thread {
    int device;
    bool bound;
    unsigned generation; /* the process's count of resets when the thread was bound */
    unsigned per_thread;
    cudaError_t error;
};
extern __thread struct rt_thread rt_self;

#define DRV(name) (rt_driver[rt_self.per_thread].name)

/* Steps that a call needs before its body. */
enum rt_need { RT_DRIVER, RT_CONTEXT };
int rt_begin(struct simgpu_frame *frame, enum rt_need need, const char *symbol);
cudaError_t rt_end(struct simgpu_frame *frame, int result);
cudaError_t rt_context(void); /* makes a context current if there is none */
void rt_reset(void);
CUcontext rt_primary(int device);

/* rt_launch.c */
CUkernel rt_kernel(const void *host); /* NULL: not registered */
cudaError_t rt_variable(const void *host, CUdeviceptr *address, size_t *size);

/* rt_copy.c */
CUDA_MEMCPY3D rt_box(const struct cudaMemcpy3DParms *p);

#define PUBLIC __attribute__((visibility("default")))
#define RT_BEGIN(symbol, name, need, params, before, args, after)                                                      \
    static cudaError_t body_##symbol params;                                                                           \
    PUBLIC cudaError_t name params                                                                                     \
    {                                                                                                                  \
        struct simgpu_frame frame_;                                                                                    \
        int result_ = rt_begin(&frame_, need, #name);                                                                  \
        before;                                                                                                        \
        if (!result_) result_ = (int)body_##symbol args;                                                               \
        after;                                                                                                         \
        return rt_end(&frame_, result_);                                                                               \
    }
#define RT_BARE(symbol, params, args)                                                                                  \
    RT_BEGIN(symbol, symbol, RT_DRIVER, params, , args, )                                                              \
    static cudaError_t body_##symbol params
#define RT(symbol, params, args)                                                                                       \
    RT_BEGIN(symbol, symbol, RT_CONTEXT, params, , args, )                                                             \
    static cudaError_t body_##symbol params
#define RT_PER_THREAD(symbol, suffix, params, args)                                                                    \
    RT_BEGIN(symbol, symbol##suffix, RT_CONTEXT, params, rt_self.per_thread = 1, args, rt_self.per_thread = 0)         \
    RT(symbol, params, args)
#define RT_PTSZ(symbol, params, args) RT_PER_THREAD(symbol, _ptsz, params, args)
#define RT_PTDS(symbol, params, args) RT_PER_THREAD(symbol, _ptds, params, args)
/* Defines a function by the driver's. */
#define SAME(symbol, params, args, function, ...)                                                                      \
    RT(symbol, params, args)                                                                                           \
    {                                                                                                                  \
        return (cudaError_t)DRV(function)(__VA_ARGS__);                                                                \
    }
#define SAME_PTSZ(symbol, params, args, function, ...)                                                                 \
    RT_PTSZ(symbol, params, args)                                                                                      \
    {                                                                                                                  \
        return (cudaError_t)DRV(function)(__VA_ARGS__);                                                                \
    }
#define SAME_PTDS(symbol, params, args, function, ...)                                                                 \
    RT_PTDS(symbol, params, args)                                                                                      \
    {                                                                                                                  \
        return (cudaError_t)DRV(function)(__VA_ARGS__);                                                                \
    }
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        cudaError_t try_ = (cudaError_t)(call);                                                                        \
        if (try_ != cudaSuccess) return try_;                                                                          \
    } while (0)
#define NEED_VALUE(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) return cudaErrorInvalidValue;                                                                \
    } while (0)

#endif
