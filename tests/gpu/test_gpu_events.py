"""test_gpu_events - device times without CUPTI: times of stages from CUDA events equal the device model's own log.

The programs run on the simulated GPU with only its driver. The tests compute the expected values from SIMGPU_LOG.
"""

import json
import threading
import time
from collections import defaultdict
from types import SimpleNamespace

import pytest

import scripted
import tfr
from conftest import BUILD, ROOT, built, clean_environment, execute
from scripted import drops

GPU = BUILD / 'simgpu'
BY_EVENTS = 2
ANCHORS = 10_000  # nanoseconds: the host's two clocks are read one after the other, by the model and by the library


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


def stage_device(got):
    names = {r.id: scripted.text(got.trace, r.name) for r in records(got.trace, 'range_end')}
    return sorted((names.get(r.id), r.stream, r.launches, r.duration, r.flags) for r in records(got.trace, 'stage_device'))


def place(thing):
    return thing['device'], thing['context'], thing['stream']


def around(got, kernels):
    """The times of the events next to these launches of one stream."""
    at, = {place(w) for w in kernels}
    first, last = min(w['start'] for w in kernels), max(w['end'] for w in kernels)
    times = [e['time'] for e in got.log if e['t'] == 'event' and place(e) == at]
    return max(t for t in times if t <= first), min(t for t in times if t >= last)


def assert_duration(got, duration, kernels):
    """The duration is the time between these events, which the driver gives as a float of milliseconds."""
    begin, end = around(got, kernels)
    assert abs(duration - (end - begin)) <= 1 + (end - begin) / 2 ** 23


# ---- stages ----

def test_stages(play):
    got = play('kernel=3 push=1 kernel=10 sync push=2 kernel=6 other=4 pop other=2 pop push=3 kernel=5 pop kernel=7 sync',
               script='alpha 1ms\nbeta 2ms\n')
    work = by_stream(launched(got), lambda w: w['stream'])
    a, b = sorted(work)
    assert (len(work[a]), len(work[b])) == (3 + 10 + 6 + 5 + 7, 4 + 2)
    expected = [('one', a, 16, work[a][3:19]), ('one', b, 6, work[b]), ('three', a, 5, work[a][19:24]),
                ('two', a, 6, work[a][13:19]), ('two', b, 4, work[b][:4])]
    found = stage_device(got)
    assert [f[:3] for f in found] == [e[:3] for e in expected]
    for (_, _, _, duration, flags), (_, _, _, kernels) in zip(found, expected):
        assert_duration(got, duration, kernels)
        assert flags & BY_EVENTS
    assert not records(got.trace, 'kernel') and not drops(got.trace) and got.trace.complete


def test_starts_lie_on_the_hosts_clock(play):
    """On a device in real time, starts lie within the trace's own clock brackets, which a busy machine widens."""
    got = play('push=1 kernel=20 pop sleep=60 push=2 kernel=20 pop sleep=60', {'SIMGPU_REAL': '1'})
    anchor = scripted.only([d for d in got.log if d['t'] == 'device' and d['device'] == 0])
    ours = sorted(records(got.trace, 'stage_device'), key=lambda r: r.start)
    clock = tfr.Clock(got.trace.records)
    brackets = [float(clock(r.ticks + r.error) - clock(r.ticks)) for r in records(got.trace, 'clock') if r.clock == tfr.DEVICE]
    starts = [around(got, [w])[0] + anchor['realtime'] for w in launched(got)[::20]]
    assert len(ours) == len(starts) == 2 and brackets
    assert all(abs(r.start - start) <= max(brackets) + ANCHORS for r, start in zip(ours, starts)), (ours, starts, brackets)


def spans(got):
    """Launches and nanoseconds of the stages by device and stream, without the work before the first event."""
    return {(r.device, r.context, r.stream): (r.launches, r.duration) for r in records(got.trace, 'stage_device')}


def assert_one_stage(got, kernels):
    """The only stage has these launches of the log, by device, context and stream, and their time."""
    wanted = by_stream(kernels, place)
    found = spans(got)
    assert {at: launches for at, (launches, _) in found.items()} == {at: len(w) for at, w in wanted.items()}
    assert len(records(got.trace, 'stage_device')) == len(found)
    for at, (_, duration) in found.items():
        assert_duration(got, duration, wanted[at])


# A library that opens a stage for the whole program, which knows none.
ONE_STAGE = '#include "tfinject.h"\n__attribute__((constructor)) static void begin(void) { tfi_range_push("whole"); }\n'


@pytest.mark.parametrize('program', ['runtime_shared', 'runtime_static', 'driver'])
def test_programs_without_stages(play, lib, tmp_path, program):
    """Launches are seen whichever way they take: symbols, look-ups, either runtime. A stage that is open at the exit has a time."""
    if not (BUILD / 'victims_gpu' / program).exists():
        pytest.skip('no nvcc')
    (tmp_path / 'stage.c').write_text(ONE_STAGE)
    made = execute(['gcc', '-shared', '-fPIC', f'-I{ROOT}/include', '-o', 'stage.so', 'stage.c'], clean_environment(), tmp_path)
    assert made.rc == 0, made.err
    plain = play('', program=program, preload=False)
    got = play('', program=program, preload=f'{lib} {tmp_path / "stage.so"}')
    assert got.out == plain.out
    found, graphs = spans(got), sum(c['symbol'].startswith('cuGraphLaunch') for c in got.log if c['t'] == 'call')
    single = {at: len(w) for at, w in by_stream(launched(got), place).items()}
    assert all(single[at] == 50 for at in set(single) - set(found))  # streams of the program's other threads
    assert sum(launches for launches, _ in found.values()) == sum(single[at] for at in found) + graphs
    assert all(single[at] <= launches for at, (launches, _) in found.items()) and not drops(got.trace)


def test_per_thread_streams(play):
    got = play('push=1 perthread=10 sync pop')
    assert_one_stage(got, launched(got))


def test_eight_threads(play):
    """Only the launches of the stage's own thread count, whatever other threads launch into the same streams."""
    got = play('push=1 kernel=50 threads=200 kernel=50 pop sync')
    assert [s[:3] for s in stage_device(got)] == [('one', launched(got)[0]['stream'], 100)]
    assert not drops(got.trace) and got.trace.complete


def test_capture(play):
    """Captured launches stay untouched; the launch beside the capture and the graph's launches are timed."""
    steps = 'push=1 capture=5 pop push=2 graph=3 pop sync'
    plain = play(steps, preload=False)
    got = play(steps)
    assert got.out == plain.out == 'nodes 5\nsync 0\nok\n'
    assert [(s[0], s[2]) for s in stage_device(got)] == [('one', 1), ('two', 3)]
    assert not drops(got.trace)


def test_results_and_errno(play):
    steps = 'push=1 refused kernel=3 refused legacy=2 pop sync'
    plain = play(steps, preload=False)
    got = play(steps)
    assert got.out == plain.out and 'errno' not in got.out and 'refused 1 400' in got.out
    assert_one_stage(got, launched(got))


def test_more_than_the_pool_holds(play):
    """Stages that do not end in time are counted: without an event, or lost at the end."""
    got = play(' '.join(['push=1 kernel=1 pop'] * 6000), {'SIMGPU_REAL': '1'}, script='* 20s\n')
    lost = drops(got.trace)
    assert records(got.trace, 'stage_device') == [] and lost['events'] > 1000
    assert lost['events'] + lost['events_lost'] == 6000 and got.trace.complete and got.out == 'ok\n'


def test_pool_is_used_again(play):
    got = play(' '.join(['push=1 kernel=1 pop'] * 6000 + ['sync']) + ' ' + ' '.join(['push=2 kernel=1 pop'] * 6000 + ['sync']))
    assert len(stage_device(got)) + drops(got.trace).get('events', 0) == 12000
    assert drops(got.trace).get('events', 0) < 6000 and 'events_lost' not in drops(got.trace)


def test_fork(play):
    """A child is not in its parent's stages: its launch opens none of them, and the parent's count goes on."""
    steps = 'push=1 kernel=10 fork kernel=10 pop sync'
    plain = play(steps, preload=False)
    got = play(steps)
    assert got.out == plain.out and 'child 3 3' in got.out
    assert_one_stage(got, launched(got))
    assert sum(len(records(t, 'stage_device')) for t in got.traces) == 1


@pytest.mark.parametrize('steps', ['push=1 kernel=10 sync context=7 kernel=5 pop sync', 'push=1 kernel=10 pop sync release',
                                   'push=1 kernel=5 destroy other=5 pop sync'])
def test_contexts_and_streams_that_go(play, steps):
    plain = play(steps, preload=False)
    got = play(steps)
    assert got.out == plain.out
    assert_one_stage(got, launched(got))
    assert not drops(got.trace)


def test_sudden_end(play, analyze, tmp_path):
    """The process ends once the background thread has fetched the times."""
    def end_once_fetched():
        while 'stage_device' not in analyze('dump', tmp_path / 'run', format=None, rc=any).out:
            time.sleep(0.05)
        (tmp_path / 'fetched').touch()

    watcher = threading.Thread(target=end_once_fetched, daemon=True)
    watcher.start()
    got = play(f'push=1 kernel=10 pop sync file={tmp_path / "fetched"} quit')
    watcher.join()
    assert_one_stage(got, launched(got))


@pytest.mark.parametrize('symbol', ['cuEventRecord', 'cuEventCreate', 'cuEventQuery', 'cuEventElapsedTime', 'cuStreamIsCapturing',
                                    'cuThreadExchangeStreamCaptureMode', 'cuStreamCreate', 'cuStreamGetId', 'cuCtxGetId'])
@pytest.mark.parametrize('times', ['', ':times 1'])
def test_driver_that_refuses(play, symbol, times):
    """The program's calls succeed whatever our own driver calls return (its streams come from the first two)."""
    after = ':after 2' if symbol == 'cuStreamCreate' else ''
    got = play('push=1 kernel=10 sync pop push=2 other=3 pop sync', {'SIMGPU_FAIL': f'{symbol}=801{after}{times}'})
    assert got.out == 'sync 0\nsync 0\nok\n' and got.trace.complete
    assert len(stage_device(got)) <= 2
    for r in records(got.trace, 'stage_device'):
        times = [e['time'] for e in got.log if e['t'] == 'event' and place(e) == (r.device, r.context, r.stream)]
        assert r.duration <= (max(times) - min(times)) * (1 + 2 ** -23) + 1


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
    got = play('push=1 kernel=10 pop sync')
    assert any('10 to 30 us' in m and 'of stages' in m for m in messages(got))
    assert not any('10 to 30 us' in line for line in got.said)


def test_an_error_gives_one_message(play):
    got = play('push=1 kernel=10 pop sync push=1 kernel=5 pop sync', {'TFI_LOG': 'info'})
    assert sum('10 to 30 us' in line for line in got.said) == 1


def test_not_beside_cupti(play):
    got = play('push=1 kernel=10 sync pop', libraries=GPU)
    kernels = records(got.trace, 'kernel')
    assert len(kernels) == 10 and not any(k.flags & BY_EVENTS for k in kernels)
    assert not records(got.trace, 'stage_device')
    assert not any(c['symbol'].startswith('cuEvent') for c in got.log if c['t'] == 'call')


def test_no_events_without_stages(play):
    """Without stages the library puts no event into a stream."""
    got = play('kernel=50 sync')
    assert not any(c['symbol'].startswith('cuEvent') for c in got.log if c['t'] == 'call')
