/* nccl_sim.h - the simulated NCCL: ranks on one machine that meet in shared memory and really move data.
 *
 * A communicator is a segment of shared memory. Each rank has a window in it for data, and each pair of ranks a
 * mailbox. A collective is a kernel of the simulated device that waits for its peers. It starts on each rank when the
 * rank reaches it. It ends on all ranks at the same time: the latest start plus the duration in the device's script.
 * All ranks share one clock, CLOCK_MONOTONIC. Environment: SIMNCCL_LOG (nccl_log.c), SIMNCCL_SCRIPT (nccl_script.c),
 * SIMNCCL_TIMEOUT_MS (how long a rank waits for others, default 20000).
 */
#ifndef NCCL_SIM_H
#define NCCL_SIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>
#include <nccl.h>

#include "simgpu.h"

/* The vendor defines the prototypes; many of their parameters have no effect here. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define MAX_RANKS 64
#define WINDOW (1u << 20)
#define MAIL (32u << 10)
#define MAX_REDUCTIONS 8

enum function { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER, SCATTER, SEND, RECV };

/* ---- nccl_shared.c: the segment of a communicator ---- */

struct shared_rank {
    uint32_t joined, phase[2]; /* of the barriers, by enum barrier */
    int32_t color, key;
    uint64_t signature, start;
};
struct mailbox {
    uint32_t full, bytes;
    uint64_t signature, sender_start, receiver_start; /* the receiver stores its start before it empties the box */
    char data[MAIL];
};
struct segment {
    struct shared_rank rank[MAX_RANKS];
    char memory[]; /* windows, then mailboxes */
};
enum barrier { ON_DEVICE, ON_HOST };

struct ncclComm {
    char id[200]; /* the same on all ranks; names the group in the log */
    int rank, ranks, device;
    struct segment *shared;
    pthread_mutex_t running; /* one kernel at a time */
    uint32_t phase[2];
    uint32_t splits, shrinks;
    uint64_t collectives, sent[MAX_RANKS], received[MAX_RANKS];
    double scale[MAX_REDUCTIONS]; /* for ncclRedOpCreatePreMulSum */
    int nr_scales;
    bool blocking, aborted, lost; /* lost: the script lost the rank */
    int state;                    /* the ncclResult_t of ncclCommGetAsyncError */
    bool has_plugin;              /* the profiler plugin knows the communicator */
    void *plugin;                 /* the plugin's context of it */
    uint64_t enqueued[RECV + 1];  /* by function, as NCCL counts for the plugin */
};

bool simnccl_join(ncclComm_t comm);
bool simnccl_barrier(ncclComm_t comm, enum barrier which);
bool simnccl_until(ncclComm_t comm, const uint32_t *word, uint32_t least);
char *simnccl_window(ncclComm_t comm, int rank);
struct mailbox *simnccl_mailbox(ncclComm_t comm, int from, int to);
uint64_t simnccl_clock(void);

/* ---- nccl_data.c: the data of one operation ---- */

struct task {
    enum function function;
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    int reduction, peer; /* peer: or root; -1: none */
    ncclComm_t comm;
    cudaStream_t stream;
    uint64_t sequence;
    bool mismatched; /* the script asks for it */
};

size_t simnccl_type_bytes(ncclDataType_t type);
/* Runs the collective; `*latest` becomes the latest start of all ranks. False if a peer is missing or runs another. */
bool simnccl_exchange(const struct task *task, uint64_t start, uint64_t *latest, uint64_t *starts);
bool simnccl_mail(struct task *const *tasks, size_t count, uint64_t start, uint64_t *latest);

/* ---- nccl_group.c: groups, and kernels ---- */

ncclResult_t simnccl_add(const struct task *task);
ncclResult_t simnccl_job(ncclResult_t (*work)(void *), const void *data, size_t bytes, bool blocking, int *state);
bool simnccl_in_group(void);

/* ---- nccl_driver.c: the driver, found as by a static runtime ---- */

struct driver {
    CUresult (*cuLaunchKernelEx)(const CUlaunchConfig *, CUfunction, void **, void **);
    CUresult (*cuLibraryLoadData)(CUlibrary *, const void *, CUjit_option *, void **, unsigned, CUlibraryOption *,
                                  void **, unsigned);
    CUresult (*cuLibraryGetKernel)(CUkernel *, CUlibrary, const char *);
    CUresult (*cuStreamIsCapturing)(CUstream, CUstreamCaptureStatus *);
    CUresult (*cuCtxGetDevice)(CUdevice *);
    CUresult (*cuMemAlloc)(CUdeviceptr *, size_t);
    CUresult (*cuMemFree)(CUdeviceptr);
    void (*next_kernel)(simgpu_wait, void *);
};
const struct driver *simnccl_driver(void);
CUfunction simnccl_kernel(const char *name);

/* ---- nccl_log.c, nccl_script.c ---- */

void simnccl_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void simnccl_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
void simnccl_log_comm(const char *function, ncclComm_t comm, const char *parent, int result);
const char *simnccl_name(enum function function);
int simnccl_task_text(char *text, size_t size, const struct task *task);

enum fault { FAULT_NONE, FAULT_DELAY, FAULT_LOSE, FAULT_MISMATCH };
enum fault simnccl_fault(const struct task *task, uint64_t *delay);

/* How the script lets a collective run. */
struct choice {
    char algorithm[32], protocol[32];
    int channels, warps;
};
void simnccl_choice(const struct task *task, struct choice *choice);
int simnccl_newest_plugin(void);

/* ---- nccl_plugin.c: the profiler plugin ---- */

void simnccl_plugin_begin(ncclComm_t comm);
void simnccl_plugin_end(ncclComm_t comm);
/* Tells the plugin of the operations of one kernel. */
void simnccl_plugin_enqueued(struct task *const *tasks, size_t count);

#define PUBLIC __attribute__((visibility("default")))

#endif
