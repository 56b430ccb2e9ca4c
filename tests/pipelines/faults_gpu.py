"""faults_gpu - a pipeline on the simulated GPU, with one fault that can be planted: faults_gpu.py NAME bad|good.

It calls the driver by ctypes: 20 steps, each with a copy to the device and kernels, whose times the simulator's script
gives. The names are those of the rules of `tfanalyze advise` that see the fault.
"""

import ctypes
import sys
import time

NAME, BAD = sys.argv[1], sys.argv[2] == 'bad'
UNITS = 132  # of the simulated device
cuda = ctypes.CDLL('libcuda.so.1')
context, memory, stream, module, function = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()


def good(result):
    assert result == 0, result


def launch(blocks):
    count = ctypes.c_uint(blocks)
    values = (ctypes.c_void_p * 2)(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in (memory, count)))
    good(cuda.cuLaunchKernel(function, blocks, 1, 1, 128, 1, 1, 0, stream, values, None))


def wait():
    good(cuda.cuStreamSynchronize(stream))


def planted(name):
    return BAD and NAME == name


good(cuda.cuInit(0))
good(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
good(cuda.cuCtxSetCurrent(context))
good(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)))
good(cuda.cuStreamCreate(ctypes.byref(stream), 1))
pinned = ctypes.c_void_p()
good(cuda.cuMemHostAlloc(ctypes.byref(pinned), ctypes.c_size_t(1 << 20), 0))
pageable = ctypes.create_string_buffer(1 << 20)
source = ctypes.cast(pageable, ctypes.c_void_p) if planted('pageable-copies') else pinned
good(cuda.cuModuleLoadData(ctypes.byref(module), b'.version 8.0\n.target sm_75\n.address_size 64\n'
                           b'.visible .entry scale(.param .u64 out, .param .u32 n) { ret; }\n'))
good(cuda.cuModuleGetFunction(ctypes.byref(function), module, b'scale'))

for step in range(20):
    size, times = ((256, 64) if planted('small-copies') else (64 * 1024, 1))
    for i in range(times):
        good(cuda.cuMemcpyHtoDAsync_v2(memory, source, ctypes.c_size_t(size), stream))
    for i in range(4):
        launch(40 if planted('small-grids') else 4 * UNITS)
        if planted('allocator-churn'):
            for k in range(20):
                block = ctypes.c_uint64()
                good(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(1 << 20)))
                good(cuda.cuMemFree_v2(block))
    if NAME == 'low-clocks':
        time.sleep(0.01)
wait()
