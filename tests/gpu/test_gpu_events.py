"""test_gpu_events - device times without CUPTI: times from CUDA events equal the device model's own log.

The programs run on the simulated GPU with only its driver. The tests compute the expected values from SIMGPU_LOG.
"""

import json
from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest

import scripted
import tfr
from conftest import BUILD, built
from scripted import drops

GPU = BUILD / 'simgpu'
BY_EVENTS = 2
ROUNDED = 200  # nanoseconds: the error of a float of some hundred milliseconds
KERNELS = {'TFI_EVENT_KERNELS': '1'}


@pytest.fixture
def alone(tmp_path):
    """A directory with only the driver and the runtime."""
    return scripted.libraries(tmp_path / 'cuda', 'libcuda.so.1', *(p.name for p in GPU.glob('libcudart.so.1?')))


@pytest.fixture
def play(run, tmp_path, alone):
    """play(steps, env) -> the output, the log, the traces, the library's messages."""
    def play(steps, env=None, program='events', libraries=alone, preload=True, script='alpha 10us\nbeta 5us + 1us*blocks\n', rc=0):
        for log in tmp_path.glob('log-*'):
            log.unlink()
        (tmp_path / 'script').write_text(script)
        full = {'LD_LIBRARY_PATH': libraries, 'SIMGPU_LOG': tmp_path / 'log-%p', 'SIMGPU_SCRIPT': tmp_path / 'script',
                'TFI_FLUSH_MS': '20', **(env or {})}
        result = run([built(BUILD / 'victims_gpu' / program), *steps.split()], full, preload=preload)
        assert result.rc == rc, (result.rc, result.out[-2000:], result.err[-2000:])
        logs = [[json.loads(line) for line in path.read_text().splitlines()] for path in tmp_path.glob('log-*')]
        got = SimpleNamespace(out=result.out, log=max(logs, key=len))
        got.said = [line for line in result.err.splitlines() if line.startswith('tfinject: ')]
        got.traces = scripted.traces(result.dir) if result.dir.exists() else []
        got.trace = max(got.traces, key=lambda t: len(t.records)) if got.traces else None
        return got
    return play


def records(trace, kind):
    return [SimpleNamespace(**r.values) for r in trace.records if r.kind == kind]


def launched(got):
    """Kernels of the log that have their own launch."""
    return sorted((w for w in got.log if w['t'] == 'kernel' and not w['graph']), key=lambda w: w['sequence'])


def by_stream(kernels, key):
    out = defaultdict(list)
    for k in kernels:
        out[key(k)].append(k)
    return out


def assert_equals_log(got):
    """Names, shapes, counts, order and durations are the log's, by device, context and stream."""
    ours = by_stream(sorted(records(got.trace, 'kernel'), key=lambda k: k.correlation), lambda k: (k.device, k.context, k.stream))
    theirs = by_stream(launched(got), lambda w: (w['device'], w['context'], w['stream']))
    assert {k: len(v) for k, v in ours.items()} == {k: len(v) for k, v in theirs.items()}
    for place, kernels in ours.items():
        for k, w in zip(kernels, theirs[place]):
            assert scripted.text(got.trace, k.name) == w['name']
            assert [k.grid_x, k.grid_y, k.grid_z] == w['grid'] and [k.block_x, k.block_y, k.block_z] == w['block']
            # The event before a kernel ends with the work before it, so the launch's latency is part of the duration.
            assert w['end'] - w['start'] - ROUNDED <= k.duration
            assert k.flags & BY_EVENTS and k.flags & 1


def assert_durations(got):
    """On a stream that is never idle, the time between two events is the kernel's."""
    ours = sorted(records(got.trace, 'kernel'), key=lambda k: k.correlation)
    exact = [abs(k.duration - (w['end'] - w['start'])) <= ROUNDED for k, w in zip(ours, launched(got))]
    assert sum(exact) >= len(exact) * 0.9, (sum(exact), len(exact))


# ---- single launches ----

def test_kernels_equal_the_log(play):
    got = play('kernel=200 other=100 legacy=10 sync', KERNELS, script='alpha 1ms\nbeta 2ms\n')
    assert_equals_log(got)
    assert len(records(got.trace, 'kernel')) == 310 and got.trace.complete and not drops(got.trace)
    assert got.out == 'sync 0\nok\n'


def test_durations(play):
    got = play('kernel=100 sync', KERNELS, script='alpha 1ms\nbeta 2ms\n')
    assert_equals_log(got)
    assert_durations(got)


def test_starts_lie_on_the_hosts_clock(play):
    """On a device in real time, starts lie within the clock brackets, which a busy machine widens."""
    got = play('kernel=20 sleep=60 kernel=20 sleep=60', KERNELS | {'SIMGPU_REAL': '1'})
    anchor = scripted.only([d for d in got.log if d['t'] == 'device' and d['device'] == 0])
    ours = sorted(records(got.trace, 'kernel'), key=lambda k: k.correlation)
    pairs = [r for r in records(got.trace, 'clock') if r.clock == tfr.DEVICE]
    assert len(ours) == 40 and pairs
    apart = [k.start - w['start'] - anchor['realtime'] for k, w in zip(ours, launched(got))]
    assert all(abs(a) < 2_000_000 for a in apart), apart
    assert max(apart) - min(apart) < 2_000_000


def test_every_kernel_has_its_call(play):
    got = play('kernel=50 sync', KERNELS)
    calls = [c for c in scripted.calls(got.trace) if c.name == 'cuLaunchKernel']
    found = {r.correlation: r for r in records(got.trace, 'correlation')}
    assert len(calls) == len(found) == 50 and {k.correlation for k in records(got.trace, 'kernel')} == set(found)
    for r in found.values():
        assert scripted.text(got.trace, r.func).split('\x1f')[2] == 'cuLaunchKernel'
        assert sum(c.time <= r.time and r.time + r.duration <= c.time + c.duration for c in calls) == 1


@pytest.mark.parametrize('kind', ['shared', 'static'])
def test_programs_of_the_runtime(play, kind):
    if not (BUILD / 'victims_gpu' / f'runtime_{kind}').exists():
        pytest.skip('no nvcc')
    plain = play('', program=f'runtime_{kind}', preload=False)
    got = play('', KERNELS, program=f'runtime_{kind}')
    assert got.out == plain.out
    names = Counter(scripted.text(got.trace, k.name) for k in records(got.trace, 'kernel'))
    assert names == Counter(w['name'] for w in launched(got)) and names
    funcs = {scripted.text(got.trace, r.func).split('\x1f')[2] for r in records(got.trace, 'correlation')}
    launches = {'shared': '__cudaLaunchKernel', 'static': 'cuLaunchKernel'}  # a static runtime's own functions are invisible
    assert launches[kind] in funcs, funcs


def test_per_thread_streams(play):
    got = play('perthread=10 sync', KERNELS)
    assert_equals_log(got)
    assert len({k.stream for k in records(got.trace, 'kernel')}) == 1 and len(records(got.trace, 'kernel')) == 10


def test_program_of_the_driver(play):
    plain = play('', program='driver', preload=False)
    got = play('', KERNELS, program='driver')
    assert got.out == plain.out
    names = Counter(scripted.text(got.trace, k.name) for k in records(got.trace, 'kernel'))
    assert names == Counter(w['name'] for w in launched(got)) and len(records(got.trace, 'graph_launch')) == 2


def test_eight_threads(play):
    got = play('threads=200 sync', KERNELS)
    kernels = records(got.trace, 'kernel')
    assert len(kernels) + drops(got.trace).get('events', 0) == 1600
    assert len({k.correlation for k in kernels}) == len(kernels) > 1000


def test_capture(play):
    """Captured launches stay untouched; the launch beside the capture and the graph's launches are timed."""
    steps = 'capture=5 graph=3 sync'
    plain = play(steps, preload=False)
    got = play(steps, KERNELS)
    assert got.out == plain.out == 'nodes 5\nsync 0\nok\n'
    assert len(records(got.trace, 'kernel')) == 1 and len(records(got.trace, 'graph_launch')) == 3
    assert not drops(got.trace)


def test_results_and_errno(play):
    steps = 'refused kernel=3 refused legacy=2 sync'
    plain = play(steps, preload=False)
    got = play(steps, KERNELS)
    assert got.out == plain.out and 'errno' not in got.out and 'refused 1 400' in got.out
    assert_equals_log(got)


def test_more_than_the_pool_holds(play):
    got = play('kernel=6000', KERNELS | {'SIMGPU_REAL': '1'}, script='* 20s\n')
    lost = drops(got.trace)
    assert records(got.trace, 'kernel') == [] and lost['events'] > 1000
    assert lost['events'] + lost['events_lost'] == 6000 and got.trace.complete and got.out == 'ok\n'


def test_pool_is_used_again(play):
    got = play('kernel=9000 sync kernel=9000 sync', KERNELS)
    assert len(records(got.trace, 'kernel')) + drops(got.trace).get('events', 0) == 18000
    assert drops(got.trace).get('events', 0) < 9000 and 'events_lost' not in drops(got.trace)


def test_fork(play):
    steps = 'kernel=10 fork kernel=10 sync'
    plain = play(steps, preload=False)
    got = play(steps, KERNELS)
    assert got.out == plain.out and 'child 3 3' in got.out
    assert_equals_log(got)
    assert sum(len(records(t, 'kernel')) for t in got.traces) == 20


@pytest.mark.parametrize('steps', ['kernel=10 sync context=7 kernel=5 sync', 'kernel=10 sync release', 'kernel=5 destroy other=5 sync'])
def test_contexts_and_streams_that_go(play, steps):
    plain = play(steps, preload=False)
    got = play(steps, KERNELS)
    assert got.out == plain.out
    assert_equals_log(got)
    assert not drops(got.trace)


def test_sudden_end(play):
    got = play('kernel=10 sync quit', KERNELS)
    assert_equals_log(got)


@pytest.mark.parametrize('symbol', ['cuEventRecord', 'cuEventCreate', 'cuEventQuery', 'cuEventElapsedTime', 'cuStreamIsCapturing',
                                    'cuThreadExchangeStreamCaptureMode', 'cuStreamCreate', 'cuStreamGetId', 'cuCtxGetId'])
@pytest.mark.parametrize('times', ['', ':times 1'])
def test_driver_that_refuses(play, symbol, times):
    """The program's calls succeed whatever our own driver calls return (its streams come from the first two)."""
    after = ':after 2' if symbol == 'cuStreamCreate' else ''
    got = play('push=1 kernel=10 sync pop other=3 sync', KERNELS | {'SIMGPU_FAIL': f'{symbol}=801{after}{times}'})
    assert got.out == 'sync 0\nsync 0\nok\n' and got.trace.complete
    assert len(records(got.trace, 'kernel')) <= 13
    assert all(k.duration < 10_000_000 for k in records(got.trace, 'kernel'))


# ---- stages ----

def stage_device(got):
    names = {r.id: scripted.text(got.trace, r.name) for r in records(got.trace, 'range_end')}
    return sorted((names.get(r.id), r.stream, r.launches, r.duration, r.flags) for r in records(got.trace, 'stage_device'))


def span(kernels):
    return max(w['end'] for w in kernels) - min(w['start'] for w in kernels)


@pytest.mark.parametrize('env', [{}, KERNELS])
def test_stages(play, env):
    got = play('kernel=3 push=1 kernel=10 sync push=2 kernel=6 other=4 pop other=2 pop push=3 kernel=5 pop kernel=7 sync', env,
               script='alpha 1ms\nbeta 2ms\n')
    work = by_stream(launched(got), lambda w: w['stream'])
    a, b = sorted(work)
    assert (len(work[a]), len(work[b])) == (3 + 10 + 6 + 5 + 7, 4 + 2)
    expected = [('one', a, 16, work[a][3:19]), ('one', b, 6, work[b]), ('three', a, 5, work[a][19:24]),
                ('two', a, 6, work[a][13:19]), ('two', b, 4, work[b][:4])]
    found = stage_device(got)
    assert [f[:3] for f in found] == [e[:3] for e in expected]
    for (_, _, _, duration, flags), (_, _, _, kernels) in zip(found, expected):
        assert -ROUNDED <= duration - span(kernels) < 3_000_000 and flags & BY_EVENTS
    assert len(records(got.trace, 'kernel')) == (len(launched(got)) if env else 0) and not drops(got.trace)


def test_stage_that_is_not_selected(play):
    got = play('push=1 kernel=10 pop push=2 kernel=5 pop sync', {'ENABLE_PROFILER_NAMES': 'two'})
    assert [s[0] for s in stage_device(got)] == ['two']


def test_stage_timing_only(play):
    got = play('push=1 kernel=10 pop sync', {'ENABLE_PROFILER_NAMES': ''})
    assert not records(got.trace, 'stage_device') and len(records(got.trace, 'range_end')) == 1


def test_stage_that_ends_after_its_stream(play):
    got = play('push=1 kernel=10 destroy pop other=1 sync')
    assert [s[2] for s in stage_device(got)] == [10] and got.out == 'sync 0\nok\n'


# ---- messages, and when events are off ----

def messages(got):
    return [scripted.text(got.trace, r.text) for r in records(got.trace, 'message')]


def test_error_is_stated(play):
    got = play('push=1 kernel=10 pop sync', KERNELS)
    assert any('10 to 30 us' in m and 'each launch' in m for m in messages(got))
    assert not any('10 to 30 us' in line for line in got.said)


def test_an_error_gives_one_message(play):
    got = play('push=1 kernel=10 pop sync push=1 kernel=5 pop sync', {'TFI_LOG': 'info'})
    assert sum('10 to 30 us' in line for line in got.said) == 1


def test_not_beside_cupti(play):
    got = play('push=1 kernel=10 sync pop', KERNELS, libraries=GPU)
    kernels = records(got.trace, 'kernel')
    assert len(kernels) == 10 and not any(k.flags & BY_EVENTS for k in kernels)
    assert not records(got.trace, 'stage_device')
    assert not any(c['symbol'].startswith('cuEvent') for c in got.log if c['t'] == 'call')


def test_no_events_without_stages(play):
    """Without stages the library puts no event into a stream."""
    got = play('kernel=50 sync')
    assert not any(c['symbol'].startswith('cuEvent') for c in got.log if c['t'] == 'call')


def test_bad_value(play):
    got = play('kernel=1 sync', {'TFI_EVENT_KERNELS': 'yes'})
    assert any('TFI_EVENT_KERNELS=yes is not valid' in line and '0 or 1' in line for line in got.said)
