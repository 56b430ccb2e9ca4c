"""test_cupti - device records equal the device model's own log, whatever CUPTI does meanwhile.

The programs run on the simulated GPU and its CUPTI. The tests compute the expected records from SIMGPU_LOG, which the
device model writes without CUPTI. SIMCUPTI_NASTY switches on the surprises of the real CUPTI.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace

import pytest

import scripted
import simlog
import tfr
from conftest import BUILD, COMMAND_TIMEOUT, ROOT, built, clean_environment, without_start
from scripted import drops

GPU = BUILD / 'simgpu'
DEVICE_KINDS = ('kernel', 'copy', 'set')
WORK = 'init kernel=5 copy=3 graph=2 streamsync sync'
CLIENTS = ('cupti_client', 'cupti_lookup')
SLOW = 'alpha 10s\nbeta 20s\n'


@pytest.fixture
def play(run, tmp_path):
    """play(steps, nasty=…, env={}) -> the trace, the log, the program's output, CUPTI's own statistics."""
    def play(steps=WORK, env=None, program='cupti_client', script=None, rc=0, preload=True, libraries=GPU, **sim):
        for name in ('log', 'stats'):
            (tmp_path / name).unlink(missing_ok=True)
        full = {'LD_LIBRARY_PATH': libraries, 'CUDA_HOME': '/nowhere', 'SIMGPU_LOG': tmp_path / 'log', 'SIMCUPTI_STATS': tmp_path / 'stats'}
        if script:
            (tmp_path / 'script').write_text(script)
            full['SIMGPU_SCRIPT'] = tmp_path / 'script'
        full.update({f'SIMCUPTI_{k.upper()}': v for k, v in sim.items()}, **(env or {}))
        result = run([built(BUILD / 'victims_gpu' / program), *steps.split()], full, preload=preload)
        assert result.rc == rc, (result.rc, result.out[-2000:], result.err[-2000:])
        got = SimpleNamespace(out=result.out, said=[line for line in result.err.splitlines() if line.startswith('tfinject: ')])
        got.traces = scripted.traces(result.dir) if result.dir.exists() else []
        got.trace = got.traces[0] if got.traces else None
        got.log = [json.loads(line) for line in (tmp_path / 'log').read_text().splitlines()]
        got.anchors = {d['device']: d for d in got.log if d['t'] == 'device'}
        stats = tmp_path / 'stats'
        got.stats = json.loads(stats.read_text().splitlines()[-1]) if stats.exists() else None
        got.lines = [json.loads(line) for line in result.out.splitlines()] if program.rpartition('/')[2] in CLIENTS else []
        got.seen = [line for line in got.lines if 'kind' in line]
        return got
    return play


# ---- our records and the log ----

def records(trace, kind):
    found = [SimpleNamespace(**r.values) for r in trace.records if r.kind == kind]
    return sorted(found, key=lambda r: (r.correlation, r.start))


WHERE = ('device', 'context', 'stream', 'correlation', 'graph', 'node', 'start', 'duration')


def ours(trace, kind):
    """Records of a kind as tuples."""
    out = []
    for r in records(trace, kind):
        where = tuple(getattr(r, name) for name in WHERE)
        if kind == 'kernel':
            out.append((scripted.text(trace, r.name), (r.grid_x, r.grid_y, r.grid_z), (r.block_x, r.block_y, r.block_z),
                        (r.static_shared, r.dynamic_shared), r.registers, *where))
        else:
            out.append((r.bytes, *((r.value,) if kind == 'set' else ()), *where))
    return out


def logged(got, kind):
    """The same tuples from the log; its device times count from the device's anchor, CUPTI's are CLOCK_REALTIME."""
    out = []
    work = [w for w in got.log if w['t'] == {'kernel': 'kernel', 'copy': 'memcpy', 'set': 'memset'}[kind]]
    for w in sorted(work, key=lambda w: (w['correlation'], w['start'])):
        where = (w['device'], w['context'], w['stream'], w['correlation'], w['graph'], w['node'],
                 w['start'] + got.anchors[w['device']]['realtime'], w['end'] - w['start'])
        if kind == 'kernel':
            out.append((w['name'], tuple(w['grid']), tuple(w['block']), tuple(w['shared']), w['registers'], *where))
        else:
            out.append((w['bytes'], *((w['value'],) if kind == 'set' else ()), *where))
    return out


def assert_equals_log(got):
    for kind in DEVICE_KINDS:
        assert ours(got.trace, kind) == logged(got, kind)


def nr_logged(got):
    return sum(len(logged(got, kind)) for kind in DEVICE_KINDS)


def nr_ours(got):
    return sum(len(records(got.trace, kind)) for kind in DEVICE_KINDS)


def assert_only_fewer(got):
    """No record is wrong, and none appears twice; some may be missing."""
    for kind in DEVICE_KINDS:
        assert not Counter(ours(got.trace, kind)) - Counter(logged(got, kind))


def correlations(got):
    """{id: function} of the correlation records."""
    return {r.values['correlation']: scripted.text(got.trace, r.values['func']).split('\x1f')[2]
            for r in got.trace.records if r.kind == 'correlation'}


# ---- without obstacles ----

def test_records_equal_the_log(play):
    got = play()
    assert_equals_log(got)
    assert nr_ours(got) > 20 and got.trace.complete and not drops(got.trace) and got.said == []


def test_program_that_is_not_linked_to_cupti(play):
    got = play('', program='driver')
    assert_equals_log(got)
    assert nr_ours(got) > 10 and got.trace.complete and not drops(got.trace)


def test_every_device_record_has_its_call(play):
    got = play()
    calls = {c['correlation']: c['symbol'] for c in got.log if c['t'] == 'call' and c['depth'] == 0}
    found = correlations(got)
    assert all(calls[i] == name for i, name in found.items())
    assert {r.correlation for kind in DEVICE_KINDS for r in records(got.trace, kind)} <= set(found)


def test_correlation_lies_in_the_wrappers_span(play):
    """Converted times of CUPTI's call records lie inside the calls that the wrapper recorded."""
    got = play('init kernel=50 sync')
    spans = [(c.time, c.time + c.duration) for c in scripted.calls(got.trace) if c.name == 'cuLaunchKernel']
    inside = [r.values for r in got.trace.records if r.kind == 'correlation']
    launches = [v for v in inside if 'cuLaunchKernel' in scripted.text(got.trace, v['func'])]
    assert len(launches) == len(spans) == 50
    slack = 3000 * 3
    assert all(any(a - slack <= v['time'] and v['time'] + v['duration'] <= b + slack for a, b in spans) for v in launches)


def test_device_is_described(play):
    got = play()
    device = scripted.only([r.values for r in got.trace.records if r.kind == 'device'])
    assert scripted.text(got.trace, device['name']) == 'Simulated GPU 0' and device['simulated'] == 1
    assert device['memory'] == got.anchors[0]['memory'] and device['units'] and device['uuid_high'] and device['capability']
    assert all(r.flags & 1 for kind in DEVICE_KINDS for r in records(got.trace, kind))


@pytest.mark.parametrize('version', ['12.0', '12.2', '12.3', '12.6', '12.8', '13.0', '13.1', '13.3', '13.4'])
def test_records_of_each_version(play, version):
    """Releases before 12.5 cannot record single calls, which one line says."""
    got = play(version=version)
    assert_equals_log(got)
    assert nr_ours(got) > 20 and not drops(got.trace)
    assert [' every call of CUDA' in line for line in got.said] == ([True] if version < '12.5' else [])


def test_synchronisation(play):
    got = play()
    types = {'context': 4, 'stream': 3}
    expected = sorted((s['correlation'], types[s['name']], s['start'] + got.anchors[0]['realtime'], s['end'] - s['start'])
                      for s in got.log if s['t'] == 'sync')
    assert sorted((r.correlation, r.type, r.start, r.duration) for r in records(got.trace, 'sync')) == expected


def records_of_clocks(trace):
    return [SimpleNamespace(**r.values) for r in trace.records if r.kind == 'clock']


def test_clock_is_tied(play):
    got = play()
    """CUPTI's clock is the host's, so each pair gives the host's time within what the pairs say of their errors."""
    clock, found = tfr.Clock(got.trace.records), records_of_clocks(got.trace)
    pairs = [r for r in found if r.clock == tfr.DEVICE]
    error = 10_000 + sum(max(clock(r.ticks + r.error) - clock(r.ticks) for r in found if (r.clock == tfr.DEVICE) == device)
                         for device in (False, True))
    assert len(pairs) >= 2 and all(abs(clock(r.ticks) - r.value) <= error for r in pairs)


def test_graphs_as_a_whole(play):
    got = play(env={'TFI_GRAPHS': 'graph'})
    launches = records(got.trace, 'graph_launch')
    assert len(launches) == 2
    for r in launches:
        nodes = [w for w in got.log if w.get('graph') == r.graph and w['correlation'] == r.correlation and w['graph']]
        base = got.anchors[0]['realtime']
        assert (r.start, r.start + r.duration) == (base + min(w['start'] for w in nodes), base + max(w['end'] for w in nodes))
    assert all(r.graph == 0 for r in records(got.trace, 'kernel'))


def test_more_than_the_background_thread_reads_meanwhile(play):
    """15 MB of records at once fit into the 64 MB of buffers."""
    got = play('init kernel=60000 sync')
    assert nr_ours(got) == 60000 and not drops(got.trace)


def test_eight_threads(play):
    got = play('init threads=8:500 sync')
    assert_equals_log(got)
    assert nr_ours(got) == 4000


def test_ids_wrap(play):
    got = play('init kernel=20 sync', first_correlation=4294967270)
    found = correlations(got)
    assert max(found) > 4294967270 and min(found) < 20
    for w in got.log:
        if 'correlation' in w:
            w['correlation'] = (w['correlation'] + 4294967269) % 2**32
    assert_equals_log(got)


# ---- CUPTI's surprises ----

@pytest.mark.parametrize('nasty', ['late', 'order', 'thread', 'names', 'lock', 'block', 'held', 'crash', 'slot', 'uncorrelated',
                                   'late,order,names,thread'])
def test_nastiness_that_loses_nothing(play, nasty):
    got = play('init kernel=300 copy=3 graph=2 streamsync sync', nasty=nasty)
    assert_equals_log(got)
    assert got.trace.complete and not drops(got.trace)


@pytest.mark.parametrize('every', [1, 7])
def test_records_without_times(play, every):
    got = play('init kernel=100 copy=3 sync', nasty=f'zero={every}')
    assert_only_fewer(got)
    assert nr_logged(got) - nr_ours(got) == got.stats['zeroed'] == drops(got.trace)['device_timeless'] > 0


def test_work_still_running_at_the_end(play):
    got = play('init kernel=4', nasty='running', script=SLOW, env={'SIMGPU_REAL': '1'})
    assert_only_fewer(got)
    missing = nr_logged(got) - nr_ours(got)
    assert missing == got.stats['cut'] == drops(got.trace).get('device_timeless', 0)


def test_buffers_that_never_come_back(play):
    """Buffers that come back after the files are closed are counted as buffers, because their records are unknown."""
    got = play('init kernel=300 sync', nasty='exit')
    assert nr_ours(got) == 0 and drops(got.trace)['device_kept'] == 1 and got.stats['returned'] == 1


def test_a_clock_changed_without_notice(play):
    """Times are right to some microseconds after CUPTI's clock unit changes without notice."""
    got = play('init kernel=30 sync sleep=50 kernel=90 sync sleep=50', {'TFI_FLUSH_MS': '10'}, nasty='clock=100')
    assert any("replaced CUPTI's clock" in line for line in got.said)
    pairs = list(zip(ours(got.trace, 'kernel'), logged(got, 'kernel')))
    assert len(pairs) == 120
    assert all(a[:-2] == b[:-2] and abs(a[-2] - b[-2]) < 100_000 for a, b in pairs)


# ---- CUPTI missing or defective ----

def only_line(got):
    return scripted.only(got.said)


@pytest.fixture
def only_driver(tmp_path):
    return scripted.libraries(tmp_path / 'cuda', 'libcuda.so.1')


def test_no_cupti(play, only_driver):
    """Without CUPTI there is one message, and calls are still recorded."""
    got = play('', program='driver', libraries=only_driver)
    assert 'libcupti.so was not found' in only_line(got) and 'Stages are still recorded' in only_line(got)
    assert got.out.endswith('ok\n') and nr_ours(got) == 0
    assert len(scripted.calls(got.trace)) > 30 and got.trace.complete


def test_the_trace_says_why_it_has_no_device_records(play, only_driver, analyze):
    """The message comes too late for the only chunk of the only thread."""
    got = play('', program='driver', libraries=only_driver)
    messages = analyze('info', got.trace.path)['rows'][0]['messages']
    assert [f'tfinject: {text}' for text in messages] == got.said


def test_cupti_by_its_path(play, only_driver):
    got = play('', {'TFI_CUPTI_PATH': GPU / 'libcupti.so.13'}, program='driver', libraries=only_driver)
    assert_equals_log(got)
    assert nr_ours(got) > 10 and got.said == []


@pytest.mark.parametrize('runtime, expected', [('12', '2025.1.1'), ('13', '2025.3.1')])
def test_cupti_of_the_runtimes_release(run, tmp_path, runtime, expected):
    """Two CUPTI libraries are mapped under file names; the library takes the one of the runtime's release."""
    cuda = scripted.libraries(tmp_path / 'cuda', 'libcuda.so.1')
    (tmp_path / f'libcudart.so.{runtime}').symlink_to(built(GPU / 'libcudart.so.13'))
    for name in ('2025.1.1', '2025.3.1'):
        shutil.copy(built(GPU / 'libcupti.so.13'), tmp_path / f'libcupti.so.{name}')
    script = ('import ctypes, sys\nfor name in sys.argv[1:]: ctypes.CDLL(name)\n'
              'ctypes.CDLL("libcuda.so.1").cuInit(0); ctypes.CDLL(sys.argv[1]).cudaFree(None)')
    result = run([sys.executable, '-c', script, *(tmp_path / n for n in (f'libcudart.so.{runtime}', 'libcupti.so.2025.1.1', 'libcupti.so.2025.3.1'))],
                 {'LD_LIBRARY_PATH': cuda, 'TFI_LOG': 'info'})
    said = [line for line in result.err.splitlines() if line.startswith('tfinject: ') and 'libcupti' in line]
    assert result.rc == 0 and said and all(f'libcupti.so.{expected}' in line for line in said), result.err


LOAD = 'import ctypes, sys\nfor name in sys.argv[1:]: ctypes.CDLL(name)\ncuda = ctypes.CDLL("libcuda.so.1")\ncuda.cuInit(0); cuda.cuCtxSynchronize()'
PLACES = {  # a library that is mapped, the folder of CUPTI, the variable that names the toolkit
    'beside a library': ('toolkit/lib64/libcublas.so.13', 'toolkit/extras/CUPTI/lib64', None),
    'beside a library of a wheel': ('python/site-packages/nvidia/cudnn/lib/libcudnn.so.9', 'python/site-packages/nvidia/cu13/lib', None),
    'in the environment': ('python/site-packages/cupy/_core/core.so', 'python/site-packages/nvidia/cu13/lib', None),
    'in Triton': ('python/site-packages/numpy/core.so', 'python/site-packages/triton/backends/nvidia/lib/cupti', None),
    'CUDA_HOME': ('other/some.so', 'toolkit/extras/CUPTI/lib64', 'CUDA_HOME'),
    'CUDA_PATH': ('other/some.so', 'toolkit/lib64', 'CUDA_PATH')}


@pytest.mark.parametrize('place', PLACES)
def test_cupti_without_a_shared_runtime(run, tmp_path, only_driver, place):
    """A program with the runtime linked in has no libcudart to look beside."""
    mapped, folder, variable = PLACES[place]
    for directory in (tmp_path / mapped).parent, tmp_path / folder:
        directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(built(GPU / 'libnvidia-ml.so.1'), tmp_path / mapped)
    (tmp_path / folder / 'libcupti.so.13').symlink_to(built(GPU / 'libcupti.so.13'))
    env = {'CUDA_HOME': tmp_path / 'none', **({variable: tmp_path / 'toolkit'} if variable else {})}
    result = run([sys.executable, '-c', LOAD, tmp_path / mapped], {'LD_LIBRARY_PATH': only_driver, 'TFI_LOG': 'info', **env})
    said = [line for line in result.err.splitlines() if line.startswith('tfinject: ') and 'libcupti' in line]
    assert result.rc == 0, result.err
    assert os.path.normpath(scripted.only(said).partition(' was loaded from ')[2]) == str(tmp_path / folder / 'libcupti.so.13')


def test_cupti_path_that_is_wrong(play):
    got = play('', {'TFI_CUPTI_PATH': '/nowhere/libcupti.so'}, program='driver')
    assert '/nowhere/libcupti.so' in only_line(got)
    assert_equals_log(got)


ERRORS = ('CUPTI_ERROR_NOT_INITIALIZED', 'CUPTI_ERROR_INSUFFICIENT_PRIVILEGES', 'CUPTI_ERROR_NOT_SUPPORTED',
          'CUPTI_ERROR_OUT_OF_MEMORY', 'CUPTI_ERROR_UNKNOWN')


@pytest.mark.parametrize('error', ERRORS)
@pytest.mark.parametrize('function', ['cuptiGetVersion', 'cuptiActivityRegisterCallbacks', 'cuptiActivityEnable'])
def test_cupti_that_refuses(play, function, error):
    got = play('', program='driver', fail=f'{function}={error}')
    assert 'no device records' in only_line(got)
    assert got.out.endswith('ok\n') and len(scripted.calls(got.trace)) > 30 and got.trace.complete


@pytest.mark.parametrize('function', ['cuptiActivityFlushAll', 'cuptiGetTimestamp', 'cuptiActivityGetNextRecord',
                                      'cuptiActivityGetNumDroppedRecords', 'cuptiActivitySetAttribute',
                                      'cuptiActivityEnableRuntimeApi', 'cuptiActivityEnableDriverApi'])
def test_function_that_fails(play, function):
    got = play('', program='driver', fail=f'{function}=CUPTI_ERROR_UNKNOWN')
    assert got.out.endswith('ok\n')
    assert_only_fewer(got)
    if function not in ('cuptiActivityFlushAll', 'cuptiActivityGetNextRecord'):
        assert_equals_log(got)


@pytest.mark.parametrize('function', ['cuptiActivityEnableRuntimeApi', 'cuptiActivityEnableDriverApi'])
def test_function_that_is_missing(play, function):
    """Before 12.5 CUPTI records a whole API or nothing of it; unwanted calls are then skipped."""
    got = play(lack=function)
    assert_equals_log(got)
    assert set(correlations(got).values()) <= set('cuLaunchKernel cuGraphLaunch cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 '
                                                  'cuMemcpyDtoD_v2 cuMemcpyDtoDAsync_v2 cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemsetD8Async '
                                                  'cuMemsetD8_v2 cuStreamSynchronize cuCtxSynchronize'.split())


def test_needed_function_that_is_missing(play):
    got = play('', program='driver', lack='cuptiActivityFlushAll')
    assert 'lacks the function cuptiActivityFlushAll' in only_line(got) and got.out.endswith('ok\n')


def test_device_records_not_wanted(play):
    got = play('', {'TFI_ACTIVITIES': 'cpu'}, program='driver')
    assert got.out.endswith('ok\n') and got.stats is None and nr_ours(got) == 0


def test_no_stage_selected(play):
    """No device record is written; the work of a program without stages has no one to be summed for."""
    got = play('', {'ENABLE_PROFILER_NAMES': ''}, program='driver')
    assert got.out.endswith('ok\n') and (not got.trace or nr_ours(got) == 0)


def test_fork(play):
    """The child makes no CUPTI call; the parent continues."""
    got = play('init kernel=3 sync fork kernel=4 sync')
    parent = [t for t in got.traces if records(t, 'kernel')]
    assert len(records(scripted.only(parent), 'kernel')) == 7


# ---- beside the program's own profiler, which behaves like kineto ----

KINETO = ('MEMCPY', 'MEMSET', 'CONCURRENT_KERNEL', 'EXTERNAL_CORRELATION', 'SYNCHRONIZATION', 'RUNTIME', 'DRIVER', 'OVERHEAD')
START = 'register ' + ' '.join(f'enable={k}' for k in KINETO)
STOP = ' '.join(f'disable={k}' for k in KINETO) + ' force'
NUMBERS = {1, 2, 10, 39, 38, 5, 4, 17}


def client_s(got, kind=10):
    """The correlation ids of the kernels (or of another kind) that the program's profiler saw."""
    return Counter(line['correlation'] for line in got.seen if line['kind'] == kind)


KINDS_OF = {1: 'copy', 2: 'set', 10: 'kernel'}


def assert_client_s_times(got):
    """The client has no clock of its own, so its device times are the log's."""
    for kind, name in KINDS_OF.items():
        truth = Counter(w[-5:-4] + w[-2:] for w in logged(got, name))
        seen = Counter((x['correlation'], x['start'], x['end'] - x['start']) for x in got.seen if x['kind'] == kind)
        assert not seen - truth


def kernels_between(got, first, last):
    """Correlation ids of the kernels number `first` to `last` in order of launch."""
    ids = [w['correlation'] for w in sorted((w for w in got.log if w['t'] == 'kernel'), key=lambda w: w['start'])]
    return Counter(ids[first:last])


@pytest.mark.parametrize('steps, first, last', [
    (f'{START} init kernel=20 sync {STOP}', 0, 20),
    (f'init kernel=10 sync {START} kernel=20 sync {STOP} kernel=30 sync', 10, 30),
    (f'{START} init kernel=20 sync {STOP} kernel=30 sync', 0, 20),
], ids=['whole', 'inside', 'before'])
@pytest.mark.parametrize('version', ['12.6', '13.0', '13.2'])
def test_both_sides_are_complete(play, steps, first, last, version):
    got = play(steps, version=version)
    assert_equals_log(got)
    assert client_s(got) == kernels_between(got, first, last)
    assert_client_s_times(got)
    assert {line['kind'] for line in got.seen} <= NUMBERS
    assert got.trace.complete and not drops(got.trace)


def test_sessions_one_after_the_other(play):
    got = play(f'init {START} kernel=5 sync {STOP} kernel=5 sync {START} kernel=5 sync {STOP} kernel=5 sync')
    assert_equals_log(got)
    assert client_s(got) == kernels_between(got, 0, 5) + kernels_between(got, 10, 15)


LEAVE = ' '.join(f'disable={k}' for k in KINETO) + ' stop'  # flushes only if a buffer of the client is out
DELAYED = 'alpha 30ms\nbeta 20ms\n'
SESSIONS = {
    'whole': f'{START} init kernel=5 copy=2 sync {LEAVE}',
    'inside': f'init kernel=3 sync {START} kernel=4 copy=2 graph=1 sync {LEAVE} kernel=5 sync',
    'in a row': f'init kernel=3 sync {START} kernel=4 sync {LEAVE} kernel=5 sync {START} kernel=6 sync {LEAVE} {START} '
                f'kernel=2 sync {LEAVE} kernel=7 sync',
    'nothing in it': f'init kernel=3 sync {START} {LEAVE} kernel=3 sync {START} kernel=2 sync {LEAVE}',
    'work still runs at its start': f'init kernel=4 {START} kernel=2 sync {LEAVE} kernel=2 sync',
    'work still runs at its end': f'init kernel=4 {START} kernel=2 {LEAVE} kernel=2 sync force',
    'flushed after more work': f'init kernel=4 sync {START} kernel=2 sync {STOP.removesuffix("force")} kernel=3 sync force',
    'two and one flush': f'init kernel=4 sync {START} kernel=2 sync {STOP.removesuffix("force")} kernel=3 sync '
                         f'{START} kernel=2 sync {STOP}',
    'before the device was used': f'{START} init kernel=2 {STOP.removesuffix("force")} kernel=3 sync force',
}


def numbered(got):
    """The client's view: kernels by their number in order of launch, other device work and calls by name."""
    order = {w['correlation']: i for i, w in enumerate(sorted((w for w in got.log if w['t'] == 'kernel'), key=lambda w: w['start']))}
    return Counter((x['kind'], x.get('name'), x.get('bytes'), order[x['correlation']] if x['kind'] == 10 else None)
                   for x in got.seen if x['kind'] != 17)


@pytest.mark.parametrize('program', CLIENTS)
@pytest.mark.parametrize('clock', ['', 'clock'])
@pytest.mark.parametrize('sessions', SESSIONS)
def test_client_has_the_same_records_as_without_us(play, sessions, clock, program):
    steps = SESSIONS[sessions].replace('register', f'register {clock}', 1)
    env = {'SIMGPU_REAL': '1'} if 'still runs' in sessions else {}
    alone = play(steps, env, program=program, preload=False, script=DELAYED)
    got = play(steps, env, program=program, script=DELAYED)
    assert numbered(got) == numbered(alone)
    if clock:
        assert_times_of_its_clock(got)
    else:
        assert_client_s_times(got)
        assert_equals_log(got)
    # The simulated CUPTI calls a client's clock for each timestamp, so an end may lie before its start and is counted.
    timeless = drops(got.trace).get('device_timeless', 0) if clock else 0
    assert nr_ours(got) + timeless == nr_logged(got) and got.trace.complete
    assert set(drops(got.trace)) <= ({'device_timeless'} if clock else set())


def assert_times_of_its_clock(got):
    """The client's clock is twice CLOCK_MONOTONIC, which the log has too; device times count from the anchor.

    CUPTI reads that clock when it is told of a call, and converts times of the device by two readings."""
    calls = {c['correlation']: c for c in got.log if c['t'] == 'call' and c['depth'] == 0}
    kernels = {w['correlation']: w for w in got.log if w['t'] == 'kernel' and not w['graph']}
    compared = Counter()
    for x in got.seen:
        compared[x['kind']] += 1
        if x['kind'] == 4 and x['correlation'] in calls:
            c = calls[x['correlation']]
            assert c['start'] <= x['start'] / 2 <= c['end'] <= x['end'] / 2 <= c['told']
        elif x['kind'] == 10 and x['correlation'] in kernels:
            w = kernels[x['correlation']]
            base = got.anchors[w['device']]['monotonic']
            assert all(abs(x[edge] / 2 - base - w[edge]) < 1_000_000 for edge in ('start', 'end'))
        else:
            compared[x['kind']] -= 1
    assert compared[10]


def test_client_sees_only_its_own_kinds(play):
    got = play('init register enable=MEMSET kernel=5 graph=2 sync disable=MEMSET force')
    assert_equals_log(got)
    assert {line['kind'] for line in got.seen} == {2}


def test_client_sees_calls_it_asked_for(play):
    """A client that asked for one driver function does not get the others that we record."""
    got = play('init register enable=CONCURRENT_KERNEL driverapi=17 kernel=5 sync force')
    assert {line['name'] for line in got.seen if line['kind'] == 4} == {'cuCtxSynchronize'}
    assert_equals_log(got)


def test_disabling_calls_does_not_disable_ours(play):
    got = play(f'init {START} nodriverapi=307 kernel=5 sync {STOP} kernel=5 sync')
    assert not [line for line in got.seen if line['kind'] == 4 and line['name'] == 'cuLaunchKernel']
    assert list(correlations(got).values()).count('cuLaunchKernel') == 10


@pytest.mark.parametrize('nasty', ['late', 'order', 'thread', 'names', 'lock', 'uncorrelated'])
def test_nastiness_with_two_clients(play, nasty):
    got = play(f'init kernel=10 sync {START} kernel=20 sync {STOP} kernel=30 sync', nasty=nasty)
    assert_equals_log(got)
    assert client_s(got) == kernels_between(got, 10, 30)


def test_small_buffers_of_the_client(play):
    got = play(f'buffers=2048 init kernel=10 sync {START} kernel=200 sync {STOP} kernel=3 sync')
    assert_equals_log(got)
    assert client_s(got) == kernels_between(got, 10, 210)


def test_client_that_refuses_buffers(play):
    got = play(f'refuse=0:1000 init {START} kernel=20 sync {STOP} kernel=3 sync')
    assert_equals_log(got)


@pytest.mark.parametrize('when', ['early', 'late'])
def test_clients_clock(play, when):
    """A client's callback changes the unit of all records: its own keep it, ours are converted."""
    steps = {'early': f'clock init {START} kernel=20 sync {STOP} sleep=30 kernel=5 sync',
             'late': f'init kernel=5 sync sleep=30 clock {START} kernel=20 sync {STOP} sleep=30 kernel=5 sync'}[when]
    got = play(steps)
    pairs = list(zip(ours(got.trace, 'kernel'), logged(got, 'kernel')))
    assert len(pairs) == len(logged(got, 'kernel')) and all(a[:-2] == b[:-2] for a, b in pairs)
    assert all(abs(a[-2] - b[-2]) < 100_000 for a, b in pairs)
    assert sum(client_s(got).values()) == 20


def test_finalize_does_not_end_ours(play):
    got = play(f'init {START} kernel=5 sync {STOP} finalize kernel=5 sync')
    assert_equals_log(got)
    assert [line['result'] for line in got.lines if line.get('step') == 'finalize'] == ['CUPTI_SUCCESS']


def test_subscriber_slot_stays_free(play):
    got = play('init kernel=3 sync subscribe domain=1 kernel=3 sync unsubscribe')
    assert {line['result'] for line in got.lines if 'step' in line} == {'CUPTI_SUCCESS'}


def test_without_ours_everything_passes_through(play):
    """Without device records of ours, the program's profiler sees the same as without the library."""
    steps = f'init {START} kernel=5 copy=2 sync {STOP}'
    with_library, without = play(steps, {'TFI_ACTIVITIES': 'cpu'}), play(steps, preload=False)
    kinds = [Counter(line['kind'] for line in got.seen) for got in (with_library, without)]
    assert kinds[0] == kinds[1] and kinds[0][10] == 5


# ---- selected calls ----

def test_numbers_of_calls():
    """cupti/calls.def has the numbers of the installed headers, and every launch, copy, set and wait in them."""
    makefile = (BUILD / 'headers.mk').read_text()
    include = re.search(r'^CUPTI_INC = (.*)', makefile, re.M)[1]
    rows = re.findall(r'^CALL\((\w+), (\d+), (\w+), \w+, "(\w+)"\)', (ROOT / 'preload/cupti/calls.def').read_text(), re.M)
    assert len(rows) > 200
    for domain in ('RUNTIME', 'DRIVER'):
        with open(f'{include}/cupti_{domain.lower()}_cbid.h') as header:
            numbers = dict(re.findall(rf'CUPTI_{domain}_TRACE_CBID_(\w+)\s*=\s*(\d+)', header.read()))
        table = {name: number for d, number, _, name in rows if d == domain}
        assert all(numbers.get(name, number) == number for name, number in table.items())
        wanted = re.compile(r'cuda(Launch|Memcpy|Memset|GraphLaunch|\w+Synchronize|StreamWaitEvent)|__cudaLaunch'
                            r'|cu(Launch|Memcpy|Memset|GraphLaunch|\w+Synchronize|StreamWaitEvent)')
        assert {n for n in numbers if wanted.match(n)} <= set(table)
        assert [int(n) for d, n, *_ in rows if d == domain] == sorted(int(n) for d, n, *_ in rows if d == domain)


# ---- selection by stage, and SIGKILL ----

STAGES = """
import ctypes, sys
cuda, library = ctypes.CDLL('libcuda.so.1'), ctypes.CDLL(None)
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
cuda.cuInit(0)
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096)) == 0
for value, name in enumerate(sys.argv[1:]):
    if name != '-':
        library.tfi_range_push(name.encode())
    for i in range(3):
        assert cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(value), ctypes.c_size_t(64)) == 0
    if name != '-':
        library.tfi_range_pop()
cuda.cuCtxSynchronize()
"""


NAMES = ['encode', 'denoise', '(none)', 'denoise', 'vae_decode']


@pytest.mark.parametrize('names, expected', [(None, {0, 1, 2, 3, 4}), ('denoise', {1, 3}), ('vae_*,encode', {0, 4}), ('*', {0, 1, 3, 4}), ('', set())])
def test_selection(run, python, analyze, tmp_path, names, expected):
    """Records are those of the selected stages; the device time of each stage, by the device's log, is known all the same."""
    (tmp_path / 'stages.py').write_text(STAGES)
    log = tmp_path / 'log'
    env = {'LD_LIBRARY_PATH': GPU, 'ENABLE_PROFILER_NAMES': names, 'SIMGPU_LOG': log}
    result = run([python, tmp_path / 'stages.py', *('-' if name == '(none)' else name for name in NAMES)], env)
    assert result.rc == 0, result.err
    trace = scripted.only(scripted.traces(result.dir))
    assert Counter(r.value & 0xff for r in records(trace, 'set')) == Counter({value: 3 for value in expected})
    assert drops(trace).get('device_summed', 0) >= 3 * (5 - len(expected)) and 'device_outside' not in drops(trace)
    ran = Counter()
    for i, work in enumerate(simlog.read(log).works):
        ran[NAMES[i // 3]] += work.duration
    rows = {row['stage']: row for row in without_start(analyze('stages', result.dir, rc=None)['rows'])}
    assert {name: row['device_us'] for name, row in rows.items()} == pytest.approx({name: ns / 1000 for name, ns in ran.items()}, abs=0.001)
    for name, row in rows.items():
        assert (row['device_busy_us'] is None) == (NAMES.index(name) not in expected)
        assert name == '(none)' or row['done_us'] >= max(row['wall_us'], row['device_us'] / row['calls'])


def test_kill(tmp_path, lib):
    """A killed process leaves all device records that are older than TFI_FLUSH_MS."""
    env = clean_environment() | {'LD_LIBRARY_PATH': str(GPU), 'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(tmp_path / 'run'),
                                 'TFI_FLUSH_MS': '20'}
    program = subprocess.Popen([built(BUILD / 'victims_gpu' / 'cupti_client'), 'init', 'kernel=100', 'sync', 'sleep=1000000'], env=env)

    def kernels():
        return [r for path in (tmp_path / 'run').rglob('*.tfr') for r in records(tfr.read(path), 'kernel')]
    try:
        deadline = time.monotonic() + COMMAND_TIMEOUT
        while len(kernels()) < 100 and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        program.send_signal(signal.SIGKILL)
        program.wait()
    assert len(kernels()) == 100 and scripted.only(scripted.traces(tmp_path / 'run'))
