/* cuda_compat.h - cuda.h, and the names of types that older ones lack: the table is the same with all of them.
 *
 * C takes a second typedef of the same type, so nothing but one callback here depends on a version. Only pointers to these structures are
 * passed on.
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
#if CUDA_VERSION < 13030 /* its parameters have types that come with it */
typedef void *CUgraphRecaptureCallback;
#endif

#endif
