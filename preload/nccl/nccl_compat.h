/* nccl_compat.h - includes nccl.h and declares the types that older versions of it lack: one table fits all.
 *
 * Our wrappers only pass on pointers to these structures.
 */
#ifndef TFI_NCCL_COMPAT_H
#define TFI_NCCL_COMPAT_H

#include <nccl.h>
#include <stdint.h>

#if NCCL_VERSION_CODE < 22200
typedef struct ncclSimInfo ncclSimInfo_t;
#endif
#if NCCL_VERSION_CODE < 22700
typedef struct ncclWindow *ncclWindow_t;
#endif
#if NCCL_VERSION_CODE < 22902
typedef struct ncclWaitSignalDesc ncclWaitSignalDesc_t;
#endif

#endif
