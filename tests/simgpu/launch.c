/* launch.c - kernel launches, and the occupancy of a multiprocessor. */
#include "model.h"

/* Needs the lock. Checks the limits of the device, for a launch or for a graph node. */
CUresult sim_kernel_of(struct op *op, CUfunction f, const unsigned *grid, const unsigned *block, unsigned shared)
{
    const struct CUfunc_st *function = sim_function(f);
    NEED(function, CUDA_ERROR_INVALID_HANDLE);
    NEED_VALUE(grid[0] && grid[1] && grid[2] && block[0] && block[1] && block[2]);
    NEED_VALUE(grid[0] <= 2147483647 && grid[1] <= 65535 && grid[2] <= 65535);
    NEED_VALUE(block[0] <= 1024 && block[1] <= 1024 && block[2] <= 64 && block[0] * block[1] * block[2] <= 1024);
    NEED_VALUE(shared <= (unsigned)function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES]);
    *op = (struct op){.kind = OP_KERNEL};
    op->kernel = (CUDA_KERNEL_NODE_PARAMS_v2){.func = f,
                                              .gridDimX = grid[0],
                                              .gridDimY = grid[1],
                                              .gridDimZ = grid[2],
                                              .blockDimX = block[0],
                                              .blockDimY = block[1],
                                              .blockDimZ = block[2],
                                              .sharedMemBytes = shared};
    return CUDA_SUCCESS;
}

static __thread simgpu_wait next_wait;
static __thread void *next_user;

PUBLIC void simgpu_next_kernel(simgpu_wait wait, void *user)
{
    next_wait = wait;
    next_user = user;
}

static CUresult launch(CUfunction f, const unsigned *grid, const unsigned *block, unsigned shared, CUstream stream)
{
    LOCKED;
    struct CUstream_st *s;
    struct op op;
    TRY(sim_stream(stream, &s));
    TRY(sim_kernel_of(&op, f, grid, block, shared));
    op.wait = next_wait;
    op.wait_user = next_user;
    next_wait = NULL;
    return sim_submit(s, &op);
}

API_PTSZ(cuLaunchKernel,
         (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
          CUstream stream, void **params, void **extra),
         (f, gx, gy, gz, bx, by, bz, shared, stream, params, extra))
{
    return launch(f, (const unsigned[]){gx, gy, gz}, (const unsigned[]){bx, by, bz}, shared, stream);
}
API_PTSZ(cuLaunchCooperativeKernel,
         (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
          CUstream stream, void **params),
         (f, gx, gy, gz, bx, by, bz, shared, stream, params))
{
    return launch(f, (const unsigned[]){gx, gy, gz}, (const unsigned[]){bx, by, bz}, shared, stream);
}
API_PTSZ(cuLaunchKernelEx, (const CUlaunchConfig *c, CUfunction f, void **params, void **extra), (c, f, params, extra))
{
    NEED_VALUE(c);
    return launch(f, (const unsigned[]){c->gridDimX, c->gridDimY, c->gridDimZ},
                  (const unsigned[]){c->blockDimX, c->blockDimY, c->blockDimZ}, c->sharedMemBytes, c->hStream);
}

/* ---- occupancy: threads, blocks and shared memory of one multiprocessor ---- */

static CUresult active_blocks(int *blocks, CUfunction f, int size, size_t shared)
{
    NEED_VALUE(blocks && size > 0 && size <= 1024);
    NEED(sim_function(f), CUDA_ERROR_INVALID_HANDLE);
    int by_shared = (int)(233472 / (shared + 1024));
    *blocks = 2048 / size < 32 ? 2048 / size : 32;
    if (by_shared < *blocks) *blocks = by_shared;
    return CUDA_SUCCESS;
}
API(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, CUfunction f, int size, size_t shared),
    (blocks, f, size, shared))
{
    return active_blocks(blocks, f, size, shared);
}
API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
    (int *blocks, CUfunction f, int size, size_t shared, unsigned flags), (blocks, f, size, shared, flags))
{
    return active_blocks(blocks, f, size, shared);
}

static CUresult potential(int *grid, int *size, CUfunction f, int limit)
{
    int blocks;
    NEED_VALUE(grid && size);
    *size = limit > 0 && limit < 1024 ? limit : 1024;
    TRY(active_blocks(&blocks, f, *size, 0));
    *grid = blocks * 16;
    return CUDA_SUCCESS;
}
API(cuOccupancyMaxPotentialBlockSize,
    (int *grid, int *size, CUfunction f, CUoccupancyB2DSize shared_of, size_t shared, int limit),
    (grid, size, f, shared_of, shared, limit))
{
    return potential(grid, size, f, limit);
}
API(cuOccupancyMaxPotentialBlockSizeWithFlags,
    (int *grid, int *size, CUfunction f, CUoccupancyB2DSize shared_of, size_t shared, int limit, unsigned flags),
    (grid, size, f, shared_of, shared, limit, flags))
{
    return potential(grid, size, f, limit);
}
API(cuOccupancyAvailableDynamicSMemPerBlock, (size_t * shared, CUfunction f, int blocks, int size),
    (shared, f, blocks, size))
{
    NEED_VALUE(shared && blocks > 0 && blocks <= 32 && size > 0);
    NEED(sim_function(f), CUDA_ERROR_INVALID_HANDLE);
    *shared = (size_t)(233472 / blocks - 1024);
    return CUDA_SUCCESS;
}
API(cuOccupancyMaxPotentialClusterSize, (int *size, CUfunction f, const CUlaunchConfig *config), (size, f, config))
{
    NEED_VALUE(size && config);
    *size = 8;
    return CUDA_SUCCESS;
}
API(cuOccupancyMaxActiveClusters, (int *clusters, CUfunction f, const CUlaunchConfig *config), (clusters, f, config))
{
    NEED_VALUE(clusters && config);
    *clusters = 2;
    return CUDA_SUCCESS;
}
