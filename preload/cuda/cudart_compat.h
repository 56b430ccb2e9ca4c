/* cudart_compat.h - includes cuda_runtime_api.h and declares the types that it lacks in some releases.
 *
 * See cuda_compat.h: the table is the same with all releases.
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
