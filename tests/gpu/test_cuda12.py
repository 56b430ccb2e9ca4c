"""test_cuda12 - the library on a simulated CUDA 12.8: the same programs, a program of CUDA 12 only, and 12's CUPTI.

build/simgpu12 is built from the headers of 12.8, the library from those of 13. The tests compare the trace with the
device model's own log, as on 13, and repeat only the tests that depend on the release.
"""

import subprocess
import sys
from collections import Counter

import pytest

import scripted
import test_cupti as of_cupti
import test_gpu_pipeline as of_pipeline
import test_simgpu as of_simgpu
from conftest import BUILD, built
from scripted import drops
from simgpu import truth
from test_cupti import START, STOP, WORK, assert_client_s_times, assert_equals_log, client_s, correlations, kernels_between, nr_ours

play = of_cupti.play
GPU12 = BUILD / 'simgpu12'
CLIENT = '../simgpu12/cupti_client'


def exports(name):
    out = subprocess.run(['nm', '-D', '--defined-only', GPU12 / name], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in out.splitlines() if ' A ' not in line}


@pytest.fixture(autouse=True)
def there():
    built(GPU12 / 'libcupti.so.12')


# ---- the simulated release ----

def test_the_runtime_is_12():
    names = exports('libcudart.so.12')
    assert all(name.endswith('@@libcudart.so.12') for name in names) and len(names) > 300
    plain = {name.split('@')[0] for name in names}
    assert {'cudaGetDeviceProperties_v2', 'cudaStreamGetCaptureInfo_v3', 'cudaMemPrefetchAsync_v2_ptsz', 'cudaThreadSynchronize'} <= plain
    assert not plain & {'cudaExecutionCtxSynchronize', 'cudaMemPrefetchBatchAsync', 'cudaLaunchHostFunc_v2'}


def test_the_driver_is_12():
    names = exports('libcuda.so.1')
    assert {'cuCtxCreate_v4', 'cuMemcpyBatchAsync', 'cuEventElapsedTime_v2'} <= names
    assert not names & {'cuCtxSynchronize_v2', 'cuMemcpyBatchAsync_v2', 'cuMemPrefetchBatchAsync', 'cuCtxGetDevice_v2'}
    assert not [name for name in names if not name.startswith(('cu', 'simgpu_'))]


ASK = '''
import ctypes, sys
cuda, cupti = ctypes.CDLL('libcuda.so.1'), ctypes.CDLL(sys.argv[1])
name, version, found = ctypes.c_char_p(), ctypes.c_uint32(), ctypes.c_void_p()
cuda.cuInit(0), cuda.cuDriverGetVersion(ctypes.byref(version)), print(version.value)
print([cuda.cuGetProcAddress_v2(b'cuCtxSynchronize', ctypes.byref(found), v, ctypes.c_uint64(0), None) for v in (12080, 13000)])
cupti.cuptiGetVersion(ctypes.byref(version)), print(version.value)
for domain in (2, 1):
    ids = [i for i in range(1, 1024) if cupti.cuptiGetCallbackName(domain, i, ctypes.byref(name)) == 0]
    cupti.cuptiGetCallbackName(domain, {1: 307, 2: 448}[domain], ctypes.byref(name))
    print(ids == list(range(1, len(ids) + 1)), len(ids) + 1, name.value.decode())
'''


@pytest.mark.parametrize('version, number, runtime, driver, advise', [
    ('', 26, 487, 782, 'cudaMemAdvise_v2_v12020'), ('12.4', 22, 468, 754, 'cudaMemAdvise_v2_v12020'),
    ('13.0', 130001, 523, 807, 'cudaMemAdvise_v12020')])
def test_callback_ids_of_the_release(tmp_path, version, number, runtime, driver, advise):
    env = {'LD_LIBRARY_PATH': GPU12, 'SIMCUPTI_VERSION': version}
    out = truth.run(tmp_path, [sys.executable, '-c', ASK, 'libcupti.so.12'], **env).out.splitlines()
    assert out == ['12080', '[0, 500]', str(number), f'True {runtime} {advise}', f'True {driver} cuLaunchKernel']


@pytest.mark.parametrize('name', ['driver', 'lookup', 'order'])
def test_programs_run(tmp_path, name):
    """Programs run, even those built with 13's headers, because they call nothing that 12 lacks."""
    result = truth.run(tmp_path, [BUILD / 'victims_gpu' / name], of_simgpu.SCRIPT[1:], LD_LIBRARY_PATH=GPU12)
    assert (result.rc, result.out.splitlines()[-1]) == (0, 'ok') and len(result.logs[0].work) > 3


# ---- a program of 12 ----

def test_program_of_12(play):
    got = play('', program='../simgpu12/runtime12', libraries=GPU12)
    assert got.out == '12080\nok\n' and got.said == []
    assert_equals_log(got)
    assert Counter(w['name'] for w in got.log if w['t'] == 'kernel') == {'of_release_12': 5 + 3 * 2}
    assert got.trace.complete and not drops(got.trace)
    calls = {c.name: [c2.args for c2 in scripted.calls(got.trace) if c2.name == c.name] for c in scripted.calls(got.trace)}
    assert [a[1:5] for a in calls['cudaMemPrefetchAsync']] == [[4096, 1, 0, 0], [4096, 2, 2**64 - 1, 0]]
    assert [a[1:5] for a in calls['cudaMemPrefetchAsync_v2']] == [[4096, 1, 0, 0]]
    assert [a[1:] for a in calls['cudaMemAdvise']] == [[4096, 3, 1, 0]] and [a[1:] for a in calls['cudaMemAdvise_v2']] == [[4096, 1, 1, 0]]
    assert [a[1:] for a in calls['cudaStreamUpdateCaptureDependencies']] == [[0, 1], [1, 0]]
    assert [a[1] for a in calls['cudaGraphAddDependencies']] == [1]
    outermost = Counter(c['symbol'] for c in got.log if c['t'] == 'call' and c['depth'] == 0)
    assert {name: len(args) for name, args in calls.items()} == {name: outermost[name] for name in calls} and len(calls) > 25


def test_the_runtimes_own_functions_keep_12s_numbers(play):
    """CUPTI's record of a call is matched to that call by 12's callback ids, and device work belongs to it."""
    got = play('', program='../simgpu12/runtime12', libraries=GPU12)
    symbols = {c['correlation']: c['symbol'] for c in got.log if c['t'] == 'call' and c['depth'] == 0}
    found = correlations(got)
    assert set(found.values()) >= {'cudaLaunchKernel', 'cudaMemcpyAsync', 'cudaGraphLaunch', 'cudaEventSynchronize'}
    assert found == {i: symbols[i] for i in found}


def test_program_of_nvcc_with_12s_headers(play):
    """Kernels, a constant, a captured graph, threads and resets, on two devices, with the names and structures of 12."""
    of_simgpu.program('runtime_shared')
    got = play('', program='../simgpu12/runtime_shared', libraries=GPU12)
    assert got.out.endswith('ok\n') and got.said == []
    for kind in of_cupti.DEVICE_KINDS:  # nodes of a graph may start at once, so their order is free
        assert Counter(of_cupti.ours(got.trace, kind)) == Counter(of_cupti.logged(got, kind))
    assert nr_ours(got) > 200 and got.trace.complete and not drops(got.trace)


# ---- 12's CUPTI, alone and beside another client ----

def test_records_of_12s_cupti(play):
    got = play(f'{WORK} runtime=3', program=CLIENT, libraries=GPU12)
    assert_equals_log(got)
    assert nr_ours(got) > 20 and got.trace.complete and not drops(got.trace) and got.said == []


@pytest.mark.parametrize('nasty', ['', 'cbids,sticky,twice', 'late,order,thread,names'])
def test_both_sides_are_complete_on_12(play, nasty):
    got = play(f'init kernel=10 sync {START} kernel=20 sync {STOP} kernel=30 sync', program=CLIENT, libraries=GPU12, nasty=nasty)
    assert_equals_log(got)
    assert client_s(got) == kernels_between(got, 10, 30)
    assert_client_s_times(got)
    assert got.trace.complete and not drops(got.trace)


@pytest.mark.parametrize('marks', ['tfi', 'nvtx'])
def test_pipeline_on_12(run, tmp_path, analyze, marks):
    it = of_pipeline.play(run, tmp_path, marks, LD_LIBRARY_PATH=GPU12)
    of_pipeline.test_every_kernel_copy_and_set(it, analyze)
    of_pipeline.test_breakdown(it, analyze)
    of_pipeline.test_launches(it, analyze)


def test_cupti_of_each_major_beside_its_runtime(tmp_path, run):
    """If CUPTI of both majors is present, the library takes the one of the runtime's major."""
    both = f'{GPU12}:{BUILD / "simgpu"}'
    result = run([GPU12 / 'runtime12'], {'LD_LIBRARY_PATH': both, 'TFI_LOG': 'info'})
    assert result.rc == 0 and f'CUPTI version 26 was loaded from {GPU12}/libcupti.so.12' in result.err
