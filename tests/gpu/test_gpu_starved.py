"""test_gpu_starved - which line of Python keeps the device idle, beside the simulator's log and the program's own clocks."""

import json

import pytest

import simlog
from conftest import BUILD

pytestmark = pytest.mark.slow
PROGRAM = """
import ctypes, json, sys, time
cuda = ctypes.CDLL('libcuda.so.1')
context, memory, stream, module, function = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
def good(result): assert result == 0, result
good(cuda.cuInit(0))
good(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
good(cuda.cuCtxSetCurrent(context))
good(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)))
good(cuda.cuStreamCreate(ctypes.byref(stream), 1))
good(cuda.cuModuleLoadData(ctypes.byref(module), b'.version 8.0\\n.target sm_75\\n.address_size 64\\n'
                           b'.visible .entry scale(.param .u64 out, .param .u32 n) { ret; }\\n'))
good(cuda.cuModuleGetFunction(ctypes.byref(function), module, b'scale'))
def launch():
    count = ctypes.c_uint(64)
    values = (ctypes.c_void_p * 2)(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in (memory, count)))
    good(cuda.cuLaunchKernel(function, 64, 1, 1, 128, 1, 1, 0, stream, values, None))
    good(cuda.cuStreamSynchronize(stream))
def starve(end):
    while time.monotonic() < end: pass
def read(): time.sleep(.006)
def prepare(end):
    while time.monotonic() < end: pass
starved = []
launch()
for step in range(int(sys.argv[1])):
    begin = time.monotonic_ns()
    starve(begin / 1e9 + .008)
    starved.append([begin, time.monotonic_ns()])
    read()
    prepare(time.monotonic() + .006)
    launch()
json.dump(starved, open(sys.argv[2], 'w'))
"""


def overlap(gaps, starved):
    """The time that gaps and periods have in common; both are in order, and neither has two that overlap."""
    common, i = 0, 0
    for begin, end in starved:
        while i and gaps[i - 1][1] > begin:
            i -= 1
        while i < len(gaps) and gaps[i][0] < end:
            common += max(0, min(end, gaps[i][1]) - max(begin, gaps[i][0]))
            i += 1
    return common


@pytest.mark.parametrize('steps, samples, points', [(120, 300, 12), pytest.param(1200, 5000, 3, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
def test_the_line_that_starves_the_device(python, run, analyze, tmp_path, steps, samples, points):
    """One line causes about 40 % of the idle time of the device; more on a busy machine, by the log."""
    script = tmp_path / 'starve.py'
    script.write_text(PROGRAM.lstrip('\n'))
    (tmp_path / 'script').write_text('latency 2us\n* 3ms\n')
    done = run([python, script, str(steps), tmp_path / 'starved.json'], {
        'LD_LIBRARY_PATH': BUILD / 'simgpu', 'SIMGPU_LOG': tmp_path / 'log', 'SIMGPU_SCRIPT': tmp_path / 'script', 'SIMGPU_REAL': '1', 'TFI_SAMPLE_HZ': '500'}, timeout=500)
    assert done.rc == 0, done.err
    truth = simlog.read(tmp_path / 'log')
    works = sorted((truth.devices[w.device]['monotonic'] + w.start, truth.devices[w.device]['monotonic'] + w.end) for w in truth.works)
    gaps = [(a[1], b[0]) for a, b in zip(works, works[1:]) if b[0] > a[1]]
    idle = sum(end - begin for begin, end in gaps)
    share = 100 * overlap(gaps, json.loads((tmp_path / 'starved.json').read_text())) / idle
    answer = analyze('hotspots', done.dir, '--by', 'line')
    line = 1 + PROGRAM.lstrip('\n').split('\n').index('def starve(end):') + 1
    row, = [r for r in answer['rows'] if r['file'] == str(script) and r['line'] == line]
    assert answer['totals']['samples'] > samples and abs(answer['totals']['device_idle_us'] - idle / 1e3) < idle / 1e5
    assert abs(100 * row['device_idle_us'] / answer['totals']['device_idle_us'] - share) <= points
    assert analyze('hotspots', done.dir, '--from', '0')['totals']['device_idle_us'] is None  # it is that of the whole process
