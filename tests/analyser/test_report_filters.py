"""test_report_filters - the filters of a report: screen, breakdowns, timing.json and traces of stages.

The expected answers come from the JSON of PyTorch traces (tests/kineto.py), and from the numbers that a test writes
into a .tfr trace. Every command is asked with `--cycle`, which has a meaning only for .tfr traces.
"""

import gzip
import json
import re

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

import kineto
from optrace import OpTrace
from test_filters import COMMANDS, TRACES, Trace, refusals, NEEDS
from test_ops import scheduled

US = 1000
WORK = ('kernel', 'gpu_memcpy', 'gpu_memset')


@pytest.fixture
def trace(shared_traces):
    return Trace(shared_traces / TRACES[0])


def reported(analyze, directory, *options, path, rc=0):
    """The report's JSON, and the content of each of its files."""
    answer = analyze('report', *options, '--output', directory, path, rc=rc)
    files = {f.name: json.loads(gzip.open(f).read() if f.suffix == '.gz' else f.read_text())
             for f in directory.iterdir() if f.suffix in ('.json', '.gz')}
    return answer, files


def of_stages(works):
    """{stage: [(work, from, to)]} of (work, stages, from, to)."""
    found = {}
    for w, chain, start, end in works:
        for name in {kineto.collapsed(s.name) for s in chain}:
            found.setdefault(name, []).append((w, start, end))
    return found


def compare(answer, files, works):
    row, = answer['rows']
    assert round(row['busy_us'] * 1000) == kineto.union([(s, e) for _, _, s, e in works])
    kernels = [(w, c, s, e) for w, c, s, e in works if kineto.CLASS_OF[w.kind] == 'kernel']
    assert (row['launches'], row['kernels']) == (len(kernels), len({w.name for w, _, _, _ in kernels}))
    found = {f['name']: f for n, f in files.items() if n.endswith('.breakdown.json')}
    expected = of_stages(kernels)
    assert set(expected) <= set(found)
    for name, f in found.items():
        mine = expected.get(name, [])
        assert f['launches'] == len(mine) and f['num_kernels'] == len({w.name for w, _, _ in mine}), name
        assert round(f['total_kernel_time_ms'] * 1e6) == sum(end - start for _, start, end in mine), name


def test_device_work_of_a_pytorch_trace(analyze, tmp_path, trace):
    """Breakdowns, the screen's numbers and the stages' traces hold exactly the work that the filter selects."""
    for i, (options, wanted, _) in enumerate(trace.choices()):
        if '--stage' in options or wanted is None:
            continue
        works = [(w, chain, w.start, w.end) for w, chain, _ in trace.works if wanted(w, chain)]
        answer, files = reported(analyze, tmp_path / str(i), *options, path=trace.path)
        compare(answer, files, works)
        traces = {f['tfinject']['stage']: f['traceEvents'] for n, f in files.items() if n.endswith('.trace.json.gz')}
        for name, mine in of_stages(works).items():
            events = [e for e in traces[name] if e.get('cat', '').lower() in (*WORK, 'memcpy', 'memset')]
            assert len(events) == len(mine), (options, name)


def test_stages_of_a_pytorch_trace(analyze, tmp_path, trace):
    """With --stage the rows and the screen have the kernels of that stage alone, as breakdown has them."""
    for i, (options, wanted, _) in enumerate(c for c in trace.choices() if '--stage' in c[0] and kineto.NONE not in c[0]):
        works = [w for w, chain, _ in trace.works if wanted(w, chain)]
        kernels = [w for w in works if kineto.CLASS_OF[w.kind] == 'kernel']
        answer, _ = reported(analyze, tmp_path / str(i), *options, path=trace.path)
        row, = answer['rows']
        assert round(row['busy_us'] * 1000) == kineto.union([(w.start, w.end) for w in works])
        assert (row['launches'], row['kernels']) == (len(kernels), len({w.name for w in kernels})), options
        screen = analyze('report', *options, '--top', '1000', '--output', tmp_path / f'{i}t', trace.path, format=None).out
        listed = re.findall(r'^ +(\d+) +[\d.]+ [mun]?s +[\d.]+ %', screen.partition('kernels, all ranks together')[2], re.M)
        assert sum(map(int, listed)) == len(kernels), options


def test_memory_and_dispatches_of_a_stage(analyze, tmp_path):
    """A report of a stage has the memory that was in use at the stage's own allocations, and the stage's dispatches."""
    t = OpTrace()
    t.stage('small', 100 * US, 200 * US)
    t.stage('large', 300 * US, 400 * US)
    for begin, count, size in ((100, 1, 1024), (300, 2, 4096)):
        for k in range(count):
            t.op('other::op', (begin + 10 + 20 * k) * US, (begin + 20 + 20 * k) * US)
        t.block((begin + 50) * US, begin, size, size)
        t.block((begin + 60) * US, begin, -size, 0)
    path = t.save(tmp_path / 'rank0.h.1.tfr')
    for stage, dispatches, memory in (('small', 1, '1.0 KiB'), ('large', 2, '4.0 KiB'), ('*', 3, '4.0 KiB')):
        screen = analyze('report', '--stage', stage, '--output', tmp_path / 'out', path, format=None).out
        assert f'dispatches into other libraries: {dispatches}, ' in screen and f'memory peak: {memory} in use' in screen, screen


def test_window_of_a_pytorch_trace(analyze, tmp_path, trace):
    """Work that lies partly in the window counts with its part inside, on the device and on the host."""
    first, last = kineto.span(trace.document)
    low, high = first + (last - first) // 3, first + 2 * (last - first) // 3
    options = ['--from', (low - first) / 1e9, '--to', (high - first) / 1e9]
    works = [(w, chain, max(w.start, low), min(w.end, high)) for w, chain, _ in trace.works
             if w.start < high and w.end > low]
    answer, files = reported(analyze, tmp_path / 'out', *options, path=trace.path)
    compare(answer, files, works)
    assert answer['rows'][0]['span_us'] * 1000 == pytest.approx(high - low, abs=1)
    rows = {r['stage']: r for r in analyze('stages', *options, trace.path)['rows']}
    timing = files['timing.json']
    assert {n: s['calls'] for n, s in timing['stages'].items()} == {n: r['calls'] for n, r in rows.items() if r['calls']}
    assert timing['wall_clock_ms'] == pytest.approx((high - low) / 1e6)
    assert all(s['duration_ms'] <= (high - low) / 1e6 for s in timing['stages'].values())


def test_a_report_of_nothing(analyze, tmp_path, trace):
    result = analyze('report', '--step', '100000', '--output', tmp_path / 'out', trace.path, format='text', rc=1)
    assert 'nothing matches' in result.err and not (tmp_path / 'out').exists()


# ---- a .tfr trace ----

def test_devices_streams_and_steps_of_a_tfr_trace(analyze, tmp_path):
    """Two steps on two devices and two streams; kernel lengths are powers of two, so a sum tells which kernels it has."""
    t = OpTrace()
    for step in range(2):
        begin = step * 1000 * US + 10 * US
        t.stage(f'ProfilerStep#{step}', begin, begin + 900 * US)
        for k, (device, stream) in enumerate(((0, 7), (0, 9), (1, 7))):
            t.work('kernel', begin + (100 + 100 * k) * US, begin + (150 + 100 * k) * US, 2 ** (3 * step + k) * US,
                   name=f'k{3 * step + k}', device=device, stream=stream)
    path = t.save(tmp_path / 'rank2.h.1.tfr')
    for options, total in ((['--step', '0'], 7), (['--step', '1'], 56), (['--device', '1'], 4 + 32), (['--stream', '9'], 2 + 16),
                           (['--device', '0', '--stream', '7', '--step', '1'], 8), ([], 63)):
        directory = tmp_path / ('_'.join(options) or 'all')
        answer, files = reported(analyze, directory, *options, path=path)
        assert answer['rows'][0]['busy_us'] == total, options
        breakdown = next(f for n, f in files.items() if n.endswith('.breakdown.json'))
        assert breakdown['total_kernel_time_ms'] == pytest.approx(total / 1000)
        events = next(f for n, f in files.items() if n.endswith('.trace.json.gz'))['traceEvents']
        kernels = [e for e in events if e.get('cat') == 'kernel']
        assert sum(e['dur'] for e in kernels) == total
        calls = files['timing.json']['stages']['ProfilerStep*']['calls']
        assert calls == (1 if '--step' in options else 2)
        screen = analyze('report', *options, '--output', directory, path, format=None).out
        assert f'{total:.3f} us' in screen


def test_a_breakdown_of_operators_is_whole_or_absent(analyze, tmp_path):
    """Of a stage that was not selected, or while recording was off, only some operators may be in the trace."""
    for name, env, whole in (('all', {}, {'out', 'in', 'late'}), ('list', {'env.ENABLE_PROFILER_NAMES': 'in'}, {'in'}),
                             ('off', {}, {'in'}), ('empty', {'env.ENABLE_PROFILER_NAMES': ''}, set())):
        t = OpTrace(**env)
        t.stage('out', 10 * US, 900 * US)
        t.stage('in', 100 * US, 300 * US)
        t.stage('late', 1000 * US, 1500 * US)
        t.op('mm', 110 * US, 150 * US)
        t.op('mm', 400 * US, 450 * US)
        t.op('mm', 1100 * US, 1150 * US)
        if name == 'off':
            t.recording(500 * US, 0)
            t.recording(1050 * US, 2)
        (tmp_path / name).mkdir()
        _, files = reported(analyze, tmp_path / name, path=t.save(tmp_path / name / 'rank0.h.1.tfr'))
        found = {f['name']: f['launches'] for n, f in files.items() if n.endswith('.breakdown.json')}
        assert found == {n: 1 + (n == 'out') for n in whole}, name


# ---- --cycle ----

def answers(analyze, command, path, *options):
    """Text in which the names of the selected kernels k0 … k5 and steps occur."""
    if command == 'report':
        directory = path.parent / ('report' + '_'.join(options))
        analyze('report', *options, '--output', directory, path)
        names = sorted(directory.iterdir())
        texts = {n.name: (gzip.open(n, 'rt') if n.suffix == '.gz' else n.open()).read() for n in names}
        return ''.join(t for n, t in texts.items() if 'breakdown' in n or 'trace' in n)
    if command == 'export tensorboard':
        directory = path.parent / ('tensorboard' + '_'.join(options))
        analyze(*command.split(), *options, '--output', directory, path, format=None)
        return ''.join((gzip.open(f, 'rt') if f.suffix == '.gz' else f.open()).read() for f in directory.iterdir())
    if command == 'export pftrace':
        trace = path.parent / ('pftrace' + '_'.join(options))
        analyze(*command.split(), *options, '--output', trace, path, format=None)
        packets = perfetto_trace_pb2.Trace.FromString(trace.read_bytes()).packet
        return ' '.join(name.name for packet in packets for name in packet.interned_data.event_names)
    if command == 'critical-path':
        options += ('--nodes',)
    if command == 'patterns':
        options += ('--operator', 'ProfilerStep')
    return analyze(*command.split(), *options, path, format=None if command.startswith('export') or command == 'merge' else 'csv').out


# Commands whose answers name kernels, and those with a column that adds up to what a cycle has.
NAMED = ['breakdown', 'critical-path', 'patterns', 'ops', 'dump', 'merge', 'export chrome', 'export pftrace', 'export pfw', 'export tensorboard', 'report']
SUMMED = {'stages': 'device_us', 'timeline': 'busy_us', 'kinds': 'total_us', 'launches': 'launches', 'api': 'calls',
          'report': 'busy_us', 'idle': 'works', 'steps': 'kernel_us', 'annotations': 'total_us', 'diff': 'total_b_us'}
ASKED = [command for command in COMMANDS if (command, '--cycle') not in refusals()]


@pytest.mark.parametrize('command', NAMED)
def test_names_of_cycles(analyze, tmp_path, command):
    """A cycle has its recorded steps, not its warm-up: k2 in the first, k4 in the second."""
    path = scheduled(tmp_path / 'rank2.h.1.tfr')
    for options, kernels in ((['--cycle', '0'], {'k2'}), (['--cycle', '1'], {'k4'}), (['--cycle', '0-1'], {'k2', 'k4'}),
                             (['--cycle', '1,7'], {'k4'})):
        text = answers(analyze, command, path, *options)
        assert set(re.findall(r'\bk[0-9]\b', text)) == kernels, (options, text[:2000])


@pytest.mark.parametrize('command', SUMMED)
def test_sums_of_cycles(analyze, tmp_path, command):
    path = scheduled(tmp_path / 'rank2.h.1.tfr')
    extra = ['--output', tmp_path / 'out'] if command == 'report' else []
    each = command in ('launches', 'api', 'idle')
    for options, total in ((['--cycle', '0'], 1 if each else 3), (['--cycle', '1'], 1 if each else 5),
                           (['--cycle', '0-1'], 2 if each else 8)):
        rows = analyze(command, *options, *extra, *[path] * (1 + (command == 'diff')))['rows']
        assert sum(r[SUMMED[command]] for r in rows) == total, (options, rows)


@pytest.mark.parametrize('command', ASKED)
def test_a_missing_cycle(analyze, tmp_path, command):
    path = scheduled(tmp_path / 'rank2.h.1.tfr')
    extra = ['--output', tmp_path / 'out'] if command in ('report', 'export tensorboard', 'export parquet') else NEEDS.get(command, [])
    never = {'counters': 'no ranges with CUPTI counters', 'ncu report': 'needs a file of Nsight Compute'}  # the trace never has any
    assert never.get(command, 'nothing matches --cycle 2') in analyze(*command.split(), '--cycle', '2', *extra, *[path] * (1 + (command == 'diff')), format=None, rc=1).err


def test_a_cycle_of_a_report(analyze, tmp_path):
    """A cycle's stages are those that began in it; each keeps the whole duration of its call, until its kernel was done."""
    path = scheduled(tmp_path / 'rank2.h.1.tfr')
    _, files = reported(analyze, tmp_path / 'out', '--cycle', '1', path=path)
    stage, = files['timing.json']['stages'].values()
    assert (stage['calls'], stage['duration_ms']) == (1, pytest.approx(1.004))
