"""test_gpu_clients - other profilers of the device in the process: many sessions, Triton's Proton, all traps at once.

The program's profiler must have the same sessions as without us. We must have all work that ran while no other profiler
had the device. The device model's log is the truth.
"""

import json
from collections import Counter
from types import SimpleNamespace

import pytest

import scripted
import test_cupti
import test_gpu_torch
from conftest import BUILD, built
from scripted import drops
from test_cupti import GPU, START, STOP, client_s, kernels_between, logged, nr_logged, nr_ours, records
from test_gpu_traps import BEGIN2, END2, TRAPS

play = test_cupti.play
pipeline = test_gpu_torch.pipeline
ALL_TRAPS = ','.join({'pool': 'pool=20', 'midway': 'midway=5'}.get(name, name) for name in (*TRAPS, 'hes')
                     if name != 'misdate')  # with it kineto leaves kernels out


# ---- many sessions, of clients of either interface and without a client ----

@pytest.mark.parametrize('sessions, seed', [
    (150, 1), pytest.param(10000, 2, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_mixed_sessions(run, tmp_path, sessions, seed):
    """The program counts its own kernels session by session; ours are the log's without those of the second interface."""
    env = {'LD_LIBRARY_PATH': GPU, 'SIMGPU_LOG': tmp_path / 'log', 'SIMCUPTI_VERSION': '13.3', 'TFI_FLUSH_MS': '20',
           'SIMCUPTI_NASTY': 'v2,sticky,reregister,cbids,twice,internal'}
    result = run([built(BUILD / 'victims_gpu' / 'cupti_mixed'), sessions, seed], env, timeout=900)
    assert result.rc == 0, (result.rc, result.out[-2000:], result.err[-2000:])
    *theirs, last = [json.loads(line) for line in result.out.splitlines()]
    assert last['wrong'] == 0 and last['ours'] + last['v1'] + last['v2'] == sessions and min(last['v1'], last['v2']) > sessions / 5
    log = [json.loads(line) for line in (tmp_path / 'log').read_text().splitlines()]
    launched = [w['correlation'] for w in sorted((w for w in log if w['t'] == 'kernel'), key=lambda w: w['start'])]
    assert len(launched) == last['kernels']
    for stretch in reversed(theirs):
        del launched[stretch['from']:stretch['to']]
    trace = scripted.only(scripted.traces(result.dir))
    assert Counter(r.correlation for r in records(trace, 'kernel')) == Counter(launched)
    assert trace.complete and not drops(trace)
    assert [r.values['state'] for r in trace.records if r.kind == 'elsewhere'] == [1, 0] * last['v2']


# ---- Triton's Proton, which opens CUPTI itself and takes the subscriber slot ----

PROTON = """
import ctypes
from triton._C.libproton import proton
cuda, context, module, alpha = ctypes.CDLL('libcuda.so.1'), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
cuda.cuInit(0)
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
text = b'.version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry alpha()\\n{\\n    ret;\\n}\\n'
assert cuda.cuModuleLoadData(ctypes.byref(module), text) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(alpha), module, b'alpha') == 0


def launch(count):
    for _ in range(count):
        assert cuda.cuLaunchKernel(alpha, 1, 1, 1, 32, 1, 1, 0, None, None, None) == 0
    cuda.cuCtxSynchronize()


for i in range(3):
    launch(2)
    session = proton.start(f'session{i}', 'shadow', 'tree', 'cupti', '')
    launch(5 + i)
    proton.finalize(session, 'hatchet')
launch(1)
"""


def kernels_of(node):
    return Counter({node['frame']['name']: node['metrics']['count']} if node['metrics'].get('count') else {}) + sum(
        map(kernels_of, node['children']), Counter())


def test_proton(run, python, tmp_path):
    """Three sessions of the real Proton have the same kernels as without us, and we have all kernels."""
    libraries = scripted.libraries(tmp_path / 'cuda', 'libcuda.so.1', 'libcupti.so.13')
    (libraries / 'libcupti.so').symlink_to(built(GPU / 'libcupti.so.13'))
    (tmp_path / 'proton.py').write_text(PROTON)
    env = {'LD_LIBRARY_PATH': libraries, 'TRITON_CUPTI_LIB_PATH': libraries}
    for preload in (False, True):
        result = run([python, 'proton.py'], env, preload=preload)
        assert result.rc == 0, result.err[-2000:]
        for i in range(3):
            path = tmp_path / f'session{i}.hatchet'
            assert kernels_of(json.loads(path.read_text())[0]) == {'alpha': 5 + i}
            path.unlink()
    trace = scripted.only(scripted.traces(result.dir))
    assert len(records(trace, 'kernel')) == 3 * 2 + 5 + 6 + 7 + 1 and not drops(trace) and trace.complete


# ---- all traps at once ----

def test_client_of_both_interfaces_with_every_trap(play):
    """Five sessions of each interface have all their kernels; every record missing in our trace is counted."""
    one = f'clock {START} kernel=4 graph=2 sync {STOP} kernel=2 sync {BEGIN2} kernel=3 sync {END2} '
    got = play('init kernel=5 sync ' + one * 5 + 'kernel=1 sync', {'TFI_FLUSH_MS': '10'}, nasty=ALL_TRAPS, version='13.3')
    theirs = sum((kernels_between(got, 5 + 15 * i + 12, 5 + 15 * i + 15) for i in range(5)), Counter())
    firsts = sum((kernels_between(got, 5 + 15 * i, 5 + 15 * i + 10) for i in range(5)), Counter())
    assert client_s(got) == theirs + firsts
    spoilt = [x for x in got.seen if x['kind'] == 10 and (not x['start'] or x['end'] < x['start'])]
    assert len(spoilt) == got.stats['damaged'] == 5 * 6 - 20
    got.log = [w for w in got.log if w['t'] != 'kernel' or w['correlation'] not in theirs]
    assert drops(got.trace) == {'device_timeless': len(spoilt)}
    assert nr_ours(got) + len(spoilt) == nr_logged(got) and got.trace.complete


def test_pipeline_with_every_trap(run, tmp_path):
    """Two devices, two threads, copies and a graph: every missing record is counted."""
    env = {'LD_LIBRARY_PATH': GPU, 'SIMGPU_LOG': tmp_path / 'log', 'SIMCUPTI_STATS': tmp_path / 'stats', 'SIMCUPTI_NASTY': ALL_TRAPS,
           'TFI_FLUSH_MS': '10'}
    result = run([built(BUILD / 'victims_gpu' / 'pipeline_stages'), 'nvtx'], env)
    assert result.rc == 0 and '"ok"' in result.out, (result.out, result.err)
    trace = scripted.only(scripted.traces(result.dir))
    got = SimpleNamespace(trace=trace, log=[json.loads(line) for line in (tmp_path / 'log').read_text().splitlines()])
    got.anchors = {d['device']: d for d in got.log if d['t'] == 'device'}
    damaged = json.loads((tmp_path / 'stats').read_text().splitlines()[-1])['damaged']
    assert drops(trace) == ({'device_timeless': damaged} if damaged else {}) and trace.complete
    assert nr_ours(got) + damaged == nr_logged(got) > 30
    for kind in ('copy', 'set'):
        assert Counter((r.bytes, r.correlation) for r in records(trace, kind)) == Counter((w[0], w[4 + (kind == 'set')]) for w in logged(got, kind))


@pytest.mark.xdist_group('torch-twice')
def test_torch_with_every_trap(pipeline, lib):
    """Two sessions of torch.profiler have all their kernels, and we have all kernels."""
    got = pipeline('twice', preload=lib, SIMCUPTI_NASTY=ALL_TRAPS)
    counts = [sum(n for name, n in s.items() if name.startswith('kernel ')) for s in got.sessions]
    assert counts == test_gpu_torch.PLANS['twice'][1]
    test_gpu_torch.assert_complete(got)


# ---- what a client has without us, and no more ----

ONE_BY_ONE = 'register enable=KERNEL enable=MEMCPY kernel=4 copy=1 sync disable=KERNEL disable=MEMCPY force'


@pytest.mark.parametrize('before', ['', 'kernel=2 sync '])
def test_a_client_of_kernels_one_at_a_time(play, before):
    """A client of CUPTI_ACTIVITY_KIND_KERNEL has its kernels as such, and we have ours; also if it comes first."""
    steps = f'init {before}{ONE_BY_ONE} kernel=3 sync' if before else f'{ONE_BY_ONE.replace(" kernel=4", " init kernel=4")} kernel=3 sync'
    alone, got = play(steps, preload=False), play(steps)
    for kind in (3, 1, 10):
        plain, shared = ([(x.get('name'), x.get('grid'), x.get('bytes')) for x in run.seen if x['kind'] == kind] for run in (alone, got))
        assert shared == plain and (len(plain) >= 3) == (kind != 10)
    assert [x['result'] for x in got.lines if 'step' in x] == [x['result'] for x in alone.lines if 'step' in x]
    assert nr_ours(got) == nr_logged(got) and not drops(got.trace)


SEVERAL = {
    'external ids without calls': 'register enable=EXTERNAL_CORRELATION,CONCURRENT_KERNEL push=7 kernel=3 sync pop disable=EXTERNAL_CORRELATION,CONCURRENT_KERNEL force',
    'external ids with one call': 'register enable=EXTERNAL_CORRELATION driverapi=307 push=7 kernel=3 copy=2 sync pop nodriverapi=307 disable=EXTERNAL_CORRELATION force',
    'external ids with calls': 'register enable=EXTERNAL_CORRELATION,DRIVER push=7 kernel=3 copy=2 sync pop disable=EXTERNAL_CORRELATION,DRIVER force',
    'in one context': 'register incontext=CONCURRENT_KERNEL kernel=3 copy=1 sync outcontext=CONCURRENT_KERNEL force',
    'devices': 'register dump=DEVICE,CONCURRENT_KERNEL kernel=3 copy=1 sync disable=DEVICE,CONCURRENT_KERNEL force',
    'no more overheads': 'register enable=OVERHEAD,CONCURRENT_KERNEL kernel=3 sync disable=OVERHEAD force kernel=1 sync disable=CONCURRENT_KERNEL force',
    'overheads from now on': 'register enable=CONCURRENT_KERNEL kernel=3 sync force enable=OVERHEAD kernel=1 sync force kernel=1 sync disable=OVERHEAD,CONCURRENT_KERNEL force'}


@pytest.mark.parametrize('what', SEVERAL)
def test_records_that_only_we_enabled(play, what):
    """The client has as many records of each kind as without us."""
    steps = f'init kernel=2 sync {SEVERAL[what]} kernel=3 sync'
    alone, got = play(steps, preload=False), play(steps)
    assert Counter(x['kind'] for x in got.seen) == Counter(x['kind'] for x in alone.seen)
    assert nr_ours(got) == nr_logged(got) and not drops(got.trace)


def test_a_client_that_counts_threads_by_the_kernel(play):
    """cuptiSetThreadIdType holds for all clients: the work of stages is still theirs."""
    got = play(f'init stage=one kernel=5 sync endstage stage=two systemtid {START} kernel=5 sync {STOP} endstage stage=three kernel=5 sync endstage')
    timing = json.loads(scripted.only(sorted(got.trace.path.parent.glob('*.timing.json'))).read_text())
    sums = {name: stage['device_sum_ms'] for name, stage in timing['stages'].items()}
    assert sums['one'] and sums['one'] == sums['two'] == sums['three'] and not timing.get('device_records_left_out')
    threads = {r.values['thread'] for r in got.trace.records if r.kind == 'correlation'}
    assert len(threads) == 1 and not threads & {x['thread'] for x in got.seen if x['kind'] == 4}


# ---- profilers beside the process ----

def test_no_call_of_ours_beside_another_profiler(play, tmp_path):
    """Nothing of ours is called that an injected profiler would record: the driver sees the program's calls alone."""
    env = {'CUDA_INJECTION64_PATH': '/opt/nvidia/nsight-systems/libToolsInjection64.so'}
    steps = 'init stage=one kernel=5 copy=3 graph=2 streamsync sync endstage runtime=3'
    calls = []
    for preload in (False, True):
        got = play(steps, env, preload=preload)
        calls.append(Counter(x['symbol'] for x in got.log if x['t'] == 'call'))
    assert calls[1] == calls[0] and len(calls[0]) > 10
    assert 'another profiler has the device' in scripted.only(got.said)
    assert scripted.stages(got.trace) == ['one'] and nr_ours(got) == 0
