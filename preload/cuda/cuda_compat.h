/* cuda_compat.h - includes cuda.h and declares the types that older versions of it lack: one table fits all.
 *
 * C accepts a second typedef of the same type, so only one callback here depends on the version. Our wrappers only
 * pass on pointers to these structures.
 */
#ifndef TFI_CUDA_COMPAT_H
#define TFI_CUDA_COMPAT_H

#include <cuda.h>

typedef cuuint64_t CUgraphConditionalHandle;
typedef cuuint32_t CUlogicalEndpointId;
typedef struct CUDA_FABRIC_COPY_BATCH_OP_st CUDA_FABRIC_COPY_BATCH_OP;
typedef struct CUlogicalEndpointProp_struct CUlogicalEndpointProp;
typedef struct CUDA_MEMCPY3D_BATCH_OP_st CUDA_MEMCPY3D_BATCH_OP;
typedef struct CUctxCreateParams_st CUctxCreateParams;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef struct CUgraphEdgeData_st CUgraphEdgeData;
typedef struct CUgraphNodeParams_st CUgraphNodeParams;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUmemDecompressParams_st CUmemDecompressParams;
typedef struct CUmemcpyAttributes_st CUmemcpyAttributes;
typedef struct CUstreamCigCaptureParams_st CUstreamCigCaptureParams;
#if CUDA_VERSION < 13030 /* its parameters have types that are new in 13.3 */
typedef void *CUgraphRecaptureCallback;
#endif

#endif
