/* cudart_compat.h - cuda_runtime_api.h, and the names of types that other releases have: the table is the same with all.
 *
 * As in cuda_compat.h.
 */
#ifndef TFI_CUDART_COMPAT_H
#define TFI_CUDART_COMPAT_H

#include <cuda_runtime_api.h>

enum cudaJitOption;
enum cudaLibraryOption;
struct cudaGraphNodeParams;
struct cudaGraphRecaptureCallbackData;
struct cudaLaunchParams;
struct cudaMemcpy3DBatchOp;
struct cudaMemcpyAttributes;
typedef struct CUdevResourceDesc_st *cudaDevResourceDesc_t;
typedef struct CUlib_st *cudaLibrary_t;
typedef struct cudaExecutionContext_st *cudaExecutionContext_t;
typedef struct cudaGraphEdgeData_st cudaGraphEdgeData;
typedef unsigned long long cudaGraphConditionalHandle;

#endif
